"""Finds the model servers that answer on this machine, and lists their models.

Uses the standard library: importing httpx2 at startup would take longer than all the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from pinfold.events import Json
from pinfold.model.names import ollama_url
from pinfold.model.wire.payload import as_count, as_list, as_object, as_text, longest_context, objects_in

Kind: TypeAlias = Literal["ollama", "lmstudio", "llamacpp", "vllm", "openai"]
"""`openai`: any other OpenAI-compatible server."""
Tools: TypeAlias = Literal["native", "none", "unknown"]

LIMIT_S = 0.4
"""For all requests to one server together."""
PLACES = ("http://127.0.0.1:1234", "http://127.0.0.1:8080", "http://127.0.0.1:8000")
"""Default addresses of LM Studio, llama.cpp and vLLM; each may run any kind of server."""
_ANSWER_BYTES = 4 << 20
_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}
_MOST_SHOWN = 40
_OF_OLLAMA = ("/api/tags", "/api/ps")
_OF_OTHERS = ("/v1/models", "/props", "/api/v0/models", "/api/tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    id: str
    context: int | None = None
    """Size of its context in tokens: as loaded if it is loaded, else the maximum."""
    tools: Tools = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundServer:
    kind: Kind
    base_url: str
    """The root URL for Ollama, and the parent of `chat/completions` for other servers."""
    models: tuple[FoundModel, ...] = ()
    needs_key: bool = False
    """True if it does not answer without a key."""

    def name_of(self, model: FoundModel) -> str:
        """Return the name a user types for this model."""
        return f"ollama:{model.id}" if self.kind == "ollama" else f"{self.base_url}#{model.id}"


async def probe(environ: Mapping[str, str], places: tuple[str, ...] = PLACES) -> tuple[FoundServer, ...]:
    """Return every server that answers in time, Ollama first. Never raises."""
    ollama = ollama_url(environ)
    found: dict[str, FoundServer | None] = dict.fromkeys((ollama, *places))

    async def look(url: str) -> None:
        answers = _Answers(url)
        with anyio.move_on_after(LIMIT_S):
            await answers.gather(_OF_OLLAMA if url == ollama else _OF_OTHERS)
        found[url] = answers.identify_server()

    async with anyio.create_task_group() as tasks:
        for url in found:
            tasks.start_soon(look, url)
    return tuple(server for server in found.values() if server is not None)


class _Answers:
    """The responses of one server that arrived in time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._said: dict[str, Json] = {}
        self._refused = False
        self._shown: dict[str, Json] = {}

    async def gather(self, paths: Sequence[str]) -> None:
        async with anyio.create_task_group() as tasks:
            for path in paths:
                tasks.start_soon(self._ask, path)
        if "/api/ps" in paths:
            async with anyio.create_task_group() as tasks:
                for model in self._list("/api/tags", "models")[:_MOST_SHOWN]:
                    tasks.start_soon(self._show, as_text(model.get("name")))

    async def _ask(self, path: str) -> None:
        status, said = await self._request(path)
        if status == 200:
            self._said[path] = said
        self._refused = self._refused or status in (401, 403)

    async def _show(self, model: str) -> None:
        _, self._shown[model] = await self._request("/api/show", {"model": model})

    async def _request(self, path: str, body: Json = None) -> tuple[int, Json]:
        return await anyio.to_thread.run_sync(partial(_request_json, self._url, path, body), abandon_on_cancel=True)

    def _list(self, path: str, name: str) -> list[dict[str, Json]]:
        return objects_in(self._said.get(path), name)

    def identify_server(self) -> FoundServer | None:
        if "models" in as_object(self._said.get("/api/tags")):
            names = [as_text(item.get("name")) for item in self._list("/api/tags", "models")]
            models = tuple(self._ollama_model(name) for name in names if name)
            return FoundServer(kind="ollama", base_url=self._url, models=models)
        listed = self._list("/v1/models", "data")
        base_url = f"{self._url}/v1"
        if not listed:
            return FoundServer(kind="openai", base_url=base_url, needs_key=True) if self._refused else None
        kind = self._kind(listed)
        models = tuple(self._model(kind, item) for item in listed if as_text(item.get("id")))
        return FoundServer(kind=kind, base_url=base_url, models=models)

    def _kind(self, listed: Sequence[Mapping[str, Json]]) -> Kind:
        owners = {as_text(item.get("owned_by")) for item in listed}
        if "vllm" in owners:
            return "vllm"
        if "llamacpp" in owners or "default_generation_settings" in as_object(self._said.get("/props")):
            return "llamacpp"
        if any("state" in item for item in self._list("/api/v0/models", "data")):
            return "lmstudio"
        return "openai"

    def _model(self, kind: Kind, item: Mapping[str, Json]) -> FoundModel:
        model = as_text(item.get("id"))
        match kind:
            case "llamacpp":
                props = as_object(self._said.get("/props"))
                settings = as_object(props.get("default_generation_settings"))
                runs_with = as_count(settings.get("n_ctx")) or as_count(as_object(item.get("meta")).get("n_ctx"))
                caps = as_object(props.get("chat_template_caps"))
                tools = _tool_support(caps.get("supports_tools"))
                return FoundModel(id=model, context=runs_with or None, tools=tools)
            case "lmstudio":
                more = {as_text(of.get("id")): of for of in self._list("/api/v0/models", "data")}.get(model, {})
                size = as_count(more.get("loaded_context_length")) or as_count(more.get("max_context_length"))
                tools = _tool_support("tool_use" in as_list(more["capabilities"]) if "capabilities" in more else None)
                return FoundModel(id=model, context=size or None, tools=tools)
            case _:
                return FoundModel(id=model, context=as_count(item.get("max_model_len")) or None)

    def _ollama_model(self, name: str) -> FoundModel:
        loaded = self._list("/api/ps", "models")
        running = {as_text(item.get("name")): as_count(item.get("context_length")) for item in loaded}
        shown = as_object(self._shown.get(name))
        tools = _tool_support("tools" in as_list(shown["capabilities"]) if "capabilities" in shown else None)
        return FoundModel(id=name, context=running.get(name) or longest_context(shown) or None, tools=tools)


def _tool_support(can: Json) -> Tools:
    return "unknown" if can is None else "native" if can else "none"


def _request_json(url: str, path: str, body: Json = None) -> tuple[int, Json]:
    """Blocks. Return the status and JSON of a response; status 0 if none can be read."""
    method, content = ("GET", None) if body is None else ("POST", msgspec.json.encode(body))
    try:
        parts = urlsplit(url)
        connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        with closing(connect(parts.hostname or "127.0.0.1", parts.port, timeout=LIMIT_S)) as connection:
            connection.request(method, f"{parts.path}{path}", content, _HEADERS)
            response = connection.getresponse()
            return response.status, msgspec.json.decode(response.read(_ANSWER_BYTES))
    except (OSError, ValueError, HTTPException, RecursionError, msgspec.MsgspecError):
        return 0, None
