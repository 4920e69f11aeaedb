"""Backend for a Transformers folder: torch on the CPU, one reply at a time."""

from __future__ import annotations

import array
import asyncio
import base64
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread

from pinfold.events import Json
from pinfold.model.errors import CannotServe
from pinfold.model.local.server.openai_format import Body, Chunk, Refusal, text_of
from pinfold.model.names import ignores_declared_tools
from pinfold.model.wire.failures import one_line
from pinfold.model.wire.payload import as_count, as_list, as_object, as_text, objects_in

_CHATS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_CONTEXT = 2048
"""Default for a folder whose config names no context size."""
_SAMPLING = ("temperature", "top_p", "top_k")


@dataclass(frozen=True, slots=True)
class _End:
    """How a reply ended."""

    finish: Literal["stop", "length"]
    tokens: int
    error: str = ""


class TransformersBackend:
    """Created by `load`."""

    def __init__(self, name: str, tokenizer: Any, model: Any, *, chats: bool) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._model = model
        self._chats = chats
        self._alone = asyncio.Lock()  # not anyio's: a reply may begin in one task and end in another
        told = [getattr(model.config, "max_position_embeddings", None), getattr(model.config, "n_positions", None)]
        self.context: int = next((size for size in told if isinstance(size, int)), _CONTEXT)
        self.tells_tools = "tools" in str(tokenizer.chat_template or "") and not ignores_declared_tools(name)

    @classmethod
    def load(cls, folder: Path) -> TransformersBackend:
        """Blocks. Downloads nothing and runs no code from the folder. Raises CannotServe."""
        for module in ("torch", "transformers"):
            if find_spec(module) is None:
                raise CannotServe(f"a Transformers folder needs {module}; install it: pinfold extras add transformers")
        transformers: Any = import_module("transformers")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        local = {"local_files_only": True, "trust_remote_code": False}
        try:
            config = transformers.AutoConfig.from_pretrained(folder, **local)
            chats = any(str(name).endswith(_CHATS) for name in config.architectures or ())
            kind = transformers.AutoModelForCausalLM if chats else transformers.AutoModel
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
            model = kind.from_pretrained(folder, dtype="auto", **local).eval()
        except Exception as error:
            raise CannotServe(f"{folder} cannot be loaded: {one_line(str(error))}") from error
        return cls(folder.resolve().name, tokenizer, model, chats=chats)

    async def answer(self, body: Body) -> Chunk:
        text, last = "", dict[str, Json]()
        finish: Json = None
        async with aclosing(self.chunks({**body, "stream_options": {"include_usage": True}})) as chunks:
            async for chunk in chunks:
                last = chunk
                for choice in objects_in(chunk, "choices"):
                    text += as_text(choice.get("text") or as_object(choice.get("delta")).get("content"))
                    finish = choice.get("finish_reason") or finish
        if "prompt" in body:
            return {**last, "choices": [_text_choice(text, finish)]}
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {**last, "object": "chat.completion", "choices": [choice]}

    async def chunks(self, body: Body) -> AsyncGenerator[Chunk]:
        if not self._chats:
            raise Refusal(f"{self.name} writes no text; it has embeddings", status=501)
        inputs = self._inputs(body)
        read = len(inputs["input_ids"][0])
        settings = self._settings(body, read)
        is_chat = "prompt" not in body
        base: Chunk = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": int(time.time()),
            "model": self.name,
        }
        if is_chat:
            yield {**base, "choices": [_choice({"role": "assistant", "content": ""})]}
        async with self._alone, aclosing(self._generate(inputs, settings)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    said = _choice({"content": piece}) if is_chat else _text_choice(piece)
                    yield {**base, "choices": [said]}
                    continue
                if piece.error:
                    raise Refusal(piece.error, status=500)
                ended = _choice({}, piece.finish) if is_chat else _text_choice("", piece.finish)
                yield {**base, "choices": [ended]}
                if as_object(body.get("stream_options")).get("include_usage"):
                    usage = {"prompt_tokens": read, "completion_tokens": piece.tokens}
                    yield {**base, "choices": [], "usage": {**usage, "total_tokens": sum(usage.values())}}

    async def embed(self, body: Body) -> Json:
        given = body.get("input")
        texts = [given] if isinstance(given, str) else as_list(given)
        if not texts or not all(isinstance(text, str) and text for text in texts):
            raise Refusal("input must be a text, or a list of texts, none of them empty")
        async with self._alone:
            vectors, tokens = await anyio.to_thread.run_sync(self._vectors, texts)
        made: list[Json] = list(vectors)
        if body.get("encoding_format") == "base64":
            made = [base64.b64encode(array.array("f", vector).tobytes()).decode() for vector in vectors]
        data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(made)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "model": self.name, "data": data, "usage": usage}

    async def aclose(self) -> None:
        """Do nothing: the model's memory is freed when the process ends."""

    def _inputs(self, body: Body) -> Any:
        if "prompt" in body:
            return self._tokenizer(body["prompt"], return_tensors="pt")
        # Chat templates expect text only.
        messages = [{**message, "content": text_of(message)} for message in objects_in(body, "messages")]
        if not self._tokenizer.chat_template:
            text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
            return self._tokenizer(f"{text}assistant:", return_tensors="pt")
        # If the last message is the assistant's, the model continues it.
        goes_on = messages[-1]["role"] == "assistant"
        jinja: Any = import_module("jinja2")
        try:
            return self._tokenizer.apply_chat_template(
                messages,
                tools=as_list(body.get("tools")) or None,
                add_generation_prompt=not goes_on,
                continue_final_message=goes_on,
                return_tensors="pt",
                return_dict=True,
            )
        except (jinja.TemplateError, ValueError, TypeError) as error:
            raise Refusal(f"the model's template refuses this conversation: {one_line(str(error))}") from error

    def _settings(self, body: Body, read: int) -> dict[str, Any]:
        room = self.context - read
        if room <= 0:
            words = f"the conversation ({read:,} tokens) is longer than the context length of {self.context:,} tokens"
            raise Refusal(words, code="context_length_exceeded")
        asked = as_count(body.get("max_completion_tokens")) or as_count(body.get("max_tokens")) or room
        settings: dict[str, Any] = {"max_new_tokens": min(asked, room), "do_sample": False}
        if body.get("temperature") != 0:
            given = {name: body[name] for name in _SAMPLING if isinstance(body.get(name), int | float)}
            settings |= {"do_sample": True, **given}
        stop = body.get("stop")
        if stops := [stop] if isinstance(stop, str) else [text for text in as_list(stop) if isinstance(text, str)]:
            settings |= {"stop_strings": stops, "tokenizer": self._tokenizer}
        if isinstance(seed := body.get("seed"), int):
            settings["seed"] = seed
        return settings

    async def _generate(self, inputs: Any, settings: dict[str, Any]) -> AsyncGenerator[str | _End]:
        """Generate in a thread; closing the generator stops the thread at the next token."""
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[str | _End]()
        stop = threading.Event()

        def tell(piece: str | _End) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        thread = threading.Thread(target=self._write, args=(inputs, settings, tell, stop), daemon=True)
        thread.start()
        try:
            while True:
                piece = await pieces.get()
                yield piece
                if isinstance(piece, _End):
                    break
        finally:
            stop.set()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(thread.join)

    def _write(self, inputs: Any, settings: dict[str, Any], tell: Any, stop: threading.Event) -> None:
        torch: Any = import_module("torch")
        transformers: Any = import_module("transformers")
        settings = dict(settings)
        if (seed := settings.pop("seed", None)) is not None:
            torch.manual_seed(seed)

        def on_text(text: str, stream_end: bool = False) -> None:  # noqa: ARG001 - as it is called
            if text:
                tell(text)

        def is_over(*_: Any, **__: Any) -> Any:
            return torch.tensor([stop.is_set()])

        streamer = transformers.TextIteratorStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True)
        streamer.on_finalized_text = on_text
        try:
            with torch.inference_mode():
                written = self._model.generate(
                    **inputs,
                    **settings,
                    streamer=streamer,
                    stopping_criteria=transformers.StoppingCriteriaList([is_over]),
                )
            tokens = len(written[0]) - len(inputs["input_ids"][0])
            tell(_End("length" if tokens >= settings["max_new_tokens"] else "stop", tokens))
        except Exception as error:  # noqa: BLE001 - whatever torch raises, the client must hear the end
            tell(_End("stop", 0, error=f"the model failed: {one_line(str(error))}"))

    def _vectors(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        torch: Any = import_module("torch")
        vectors: list[list[float]] = []
        tokens = 0
        for text in texts:
            inputs = self._tokenizer(text, return_tensors="pt", truncation=True, max_length=self.context)
            inputs.pop("token_type_ids", None) if self._chats else None
            with torch.inference_mode():
                out = self._model(**inputs, output_hidden_states=True)
            mean = out.hidden_states[-1][0].float().mean(dim=0)
            vectors.append(torch.nn.functional.normalize(mean, dim=0).tolist())
            tokens += len(inputs["input_ids"][0])
        return vectors, tokens


def _choice(delta: Mapping[str, Json], finish: str | None = None) -> Json:
    return {"index": 0, "delta": dict(delta), "finish_reason": finish}


def _text_choice(text: str, finish: Json = None) -> Json:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
