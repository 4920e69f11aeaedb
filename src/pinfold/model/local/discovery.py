"""Which model servers answer on this machine, and what they say of themselves.

By hand over a socket: at a start, the library that talks to models would cost more than all the answers.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from socket import socket
from typing import Literal, TypeAlias, cast
from urllib.parse import urlsplit

import anyio
import msgspec

from pinfold.events import Json
from pinfold.model.names import ollama_url
from pinfold.model.wire.payload import a_count, a_list, a_text, an_object

Kind: TypeAlias = Literal["ollama", "lmstudio", "llamacpp", "vllm", "openai"]
"""`openai`: some other server that speaks as OpenAI does."""
Tools: TypeAlias = Literal["native", "none", "unknown"]

LIMIT_S = 0.4
"""For each server, all questions together."""
PLACES = ("http://127.0.0.1:1234", "http://127.0.0.1:8080", "http://127.0.0.1:8000")
"""Where LM Studio, llama.cpp and vLLM listen unless told otherwise; any of them may be anywhere."""
_ANSWER_BYTES = 4 << 20
_MOST_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    id: str
    context: int | None = None
    """Tokens it has room for: as it runs if it does, else at most."""
    tools: Tools = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    kind: Kind
    base_url: str
    """For Ollama its own, for the others the one that chat completions are under."""
    models: tuple[FoundModel, ...] = ()
    needs_key: bool = False
    """It does not answer without a key."""

    def name_of(self, model: FoundModel) -> str:
        """What a user types to get this model."""
        return f"ollama:{model.id}" if self.kind == "ollama" else f"{self.base_url}#{model.id}"


async def probe(environ: Mapping[str, str], places: tuple[str, ...] = PLACES) -> tuple[FoundServer, ...]:
    """Every server that answers in time, Ollama first. Raises nothing: what does not answer is not there."""
    ollama = ollama_url(environ)
    found: dict[str, FoundServer | None] = dict.fromkeys((ollama, *places))

    async def look(url: str) -> None:
        answers = _Answers(url)
        with anyio.move_on_after(LIMIT_S):
            await (answers.of_ollama() if url == ollama else answers.of_others())
        found[url] = answers.identify_server()

    async with anyio.create_task_group() as tasks:
        for url in found:
            tasks.start_soon(look, url)
    return tuple(server for server in found.values() if server is not None)


class _Answers:
    """What one server said in time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._said: dict[str, Json] = {}
        self._refused = False
        self._shown: dict[str, Json] = {}

    async def of_ollama(self) -> None:
        async with anyio.create_task_group() as tasks:
            for path in ("/api/tags", "/api/ps"):
                tasks.start_soon(self._ask, path)
        async with anyio.create_task_group() as tasks:
            for model in self._list("/api/tags", "models")[:_MOST_SHOWN]:
                tasks.start_soon(self._show, a_text(model.get("name")))

    async def of_others(self) -> None:
        async with anyio.create_task_group() as tasks:
            for path in ("/v1/models", "/props", "/api/v0/models", "/api/tags"):
                tasks.start_soon(self._ask, path)

    async def _ask(self, path: str) -> None:
        status, said = await _request_json(self._url, path)
        if status == 200:
            self._said[path] = said
        self._refused = self._refused or status in (401, 403)

    async def _show(self, model: str) -> None:
        _, self._shown[model] = await _request_json(self._url, "/api/show", {"model": model})

    def _list(self, path: str, name: str) -> list[dict[str, Json]]:
        return [an_object(item) for item in a_list(an_object(self._said.get(path)).get(name))]

    def identify_server(self) -> FoundServer | None:
        if "models" in an_object(self._said.get("/api/tags")):
            return FoundServer(kind="ollama", base_url=self._url, models=self._ollama_models())
        listed = self._list("/v1/models", "data")
        base_url = f"{self._url}/v1"
        if not listed:
            return FoundServer(kind="openai", base_url=base_url, needs_key=True) if self._refused else None
        kind = self._kind(listed)
        models = tuple(self._model(kind, item) for item in listed if a_text(item.get("id")))
        return FoundServer(kind=kind, base_url=base_url, models=models)

    def _kind(self, listed: Sequence[Mapping[str, Json]]) -> Kind:
        owners = {a_text(item.get("owned_by")) for item in listed}
        if "vllm" in owners:
            return "vllm"
        if "llamacpp" in owners or "default_generation_settings" in an_object(self._said.get("/props")):
            return "llamacpp"
        if any("state" in item for item in self._list("/api/v0/models", "data")):
            return "lmstudio"
        return "openai"

    def _model(self, kind: Kind, item: Mapping[str, Json]) -> FoundModel:
        model = a_text(item.get("id"))
        match kind:
            case "llamacpp":
                props = an_object(self._said.get("/props"))
                settings = an_object(props.get("default_generation_settings"))
                runs_with = a_count(settings.get("n_ctx")) or a_count(an_object(item.get("meta")).get("n_ctx"))
                caps = an_object(props.get("chat_template_caps"))
                tools = _tool_support(caps.get("supports_tools"))
                return FoundModel(id=model, context=runs_with or None, tools=tools)
            case "lmstudio":
                more = {a_text(of.get("id")): of for of in self._list("/api/v0/models", "data")}.get(model, {})
                size = a_count(more.get("loaded_context_length")) or a_count(more.get("max_context_length"))
                tools = _tool_support("tool_use" in a_list(more["capabilities"]) if "capabilities" in more else None)
                return FoundModel(id=model, context=size or None, tools=tools)
            case _:
                return FoundModel(id=model, context=a_count(item.get("max_model_len")) or None)

    def _ollama_models(self) -> tuple[FoundModel, ...]:
        loaded = self._list("/api/ps", "models")
        running = {a_text(item.get("name")): a_count(item.get("context_length")) for item in loaded}
        names = (a_text(item.get("name")) for item in self._list("/api/tags", "models"))
        return tuple(self._ollama_model(name, running.get(name, 0)) for name in names if name)

    def _ollama_model(self, name: str, running: int) -> FoundModel:
        shown = an_object(self._shown.get(name))
        info = an_object(shown.get("model_info"))
        most = max((a_count(info[key]) for key in info if key.endswith(".context_length")), default=0)
        tools = _tool_support("tools" in a_list(shown["capabilities"]) if "capabilities" in shown else None)
        return FoundModel(id=name, context=running or most or None, tools=tools)


def _tool_support(can: Json) -> Tools:
    return "unknown" if can is None else "native" if can else "none"


async def _request_json(url: str, path: str, body: Json = None) -> tuple[int, Json]:
    """Status and JSON of an answer; 0 if none can be read."""
    try:
        answer = await _exchange(url, path, b"" if body is None else msgspec.json.encode(body))
        response = _Response(answer)
        return response.status, msgspec.json.decode(response.read())
    except (OSError, ValueError, HTTPException, RecursionError, anyio.BrokenResourceError, msgspec.MsgspecError):
        return 0, None


async def _exchange(url: str, path: str, body: bytes) -> bytes:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "127.0.0.1", parts.port or (443 if secure else 80)
    head = f"{'POST' if body else 'GET'} {parts.path}{path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
    head += f"Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = bytearray()
    stream = await anyio.connect_tcp(host, port, tls=True) if secure else await anyio.connect_tcp(host, port)
    async with stream:
        await stream.send(head.encode() + body)
        while len(answer) < _ANSWER_BYTES and not _is_whole(answer):
            try:
                answer += await stream.receive()
            except anyio.EndOfStream:
                break
    return bytes(answer)


class _Response(HTTPResponse):
    """An answer that has been received."""

    def __init__(self, answer: bytes) -> None:
        self._received = io.BytesIO(answer)
        super().__init__(cast("socket", self))
        self.begin()

    def makefile(self, _mode: str) -> io.BytesIO:
        return self._received


def _is_whole(answer: bytearray) -> bool:
    """Some servers keep the connection open although they were asked to close it."""
    if b"\r\n\r\n" not in answer:
        return False
    try:
        response = _Response(bytes(answer))
        is_sized = response.chunked or response.length is not None
        response.read()
    except (HTTPException, ValueError):
        return False
    return bool(is_sized)
