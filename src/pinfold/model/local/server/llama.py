"""A GGUF file behind an endpoint: llama.cpp in a process of its own, asked in its own words."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from pinfold.events import Json
from pinfold.model.local.model_host import Host, Served
from pinfold.model.local.server.call_extraction import Chunk
from pinfold.model.local.server.openai_requests import Body, Refusal
from pinfold.model.names import ignores_declared_tools
from pinfold.model.wire.failures import one_line
from pinfold.model.wire.http import send
from pinfold.model.wire.payload import an_object

if TYPE_CHECKING:
    import httpx2

_CONNECT_S = 5.0
_KEEP_ALIVE_S = 2.0
"""llama.cpp closes a connection after 5 s, also if a request is on its way just then."""


class LlamaBackend:
    def __init__(self, name: str, host: Host, served: Served, *, weights: str) -> None:
        """`weights`: what they are called, whatever the model is offered as."""
        self.name = name
        self.context: int | None = served.context or None
        self.tells_tools = served.tells_tools and not ignores_declared_tools(weights)
        self._host = host
        self._served = served
        self._client: httpx2.AsyncClient | None = None

    async def chunks(self, body: Body) -> AsyncGenerator[Chunk]:
        async with self._request(_path(body), {**body, "stream": True}) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                if data and data != "[DONE]":
                    yield _parse_chunk(data.encode())

    async def answer(self, body: Body) -> Chunk:
        async with self._request(_path(body), body) as response:
            return _parse_chunk(await response.aread())

    async def embed(self, body: Body) -> Json:
        async with self._request("embeddings", body) as response:
            return {**_parse_chunk(await response.aread()), "model": self.name}

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        self._host.release()

    @asynccontextmanager
    async def _request(self, path: str, body: Body) -> AsyncGenerator[httpx2.Response]:
        """The answer, with a status of success. One whose process has ended is started again. Raises Refusal."""
        import httpx2

        if not self._host.is_running():
            await self._restart()
        url = f"{self._served.url}/v1/{path}"
        # As in builtin.Repeatable.
        repeats = {"cache_prompt": False} if body.get("seed") is not None else {}
        sent = msgspec.json.encode({**repeats, **body, "model": self.name})
        try:
            async with aclosing(await send(self._http(), "POST", url, sent)) as response:
                if response.status_code != 200:
                    raise _refusal(response.status_code, await response.aread())
                yield response
        except httpx2.HTTPError as error:
            raise Refusal(f"llama.cpp broke off: {one_line(str(error))}", status=502) from error

    async def _restart(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        self._served = await self._host.ready()

    def _http(self) -> httpx2.AsyncClient:
        import httpx2

        if self._client is None:
            headers = {"Authorization": f"Bearer {self._served.key}", "Content-Type": "application/json"}
            timeout = httpx2.Timeout(None, connect=_CONNECT_S)  # it says nothing while it reads a long prompt
            self._client = httpx2.AsyncClient(
                headers=headers, timeout=timeout, limits=httpx2.Limits(keepalive_expiry=_KEEP_ALIVE_S), trust_env=False
            )
        return self._client


def _path(body: Body) -> str:
    return "completions" if "prompt" in body else "chat/completions"


def _parse_chunk(data: bytes) -> Chunk:
    try:
        return msgspec.json.decode(data, type=dict[str, Json])
    except msgspec.MsgspecError as error:
        raise Refusal(f"llama.cpp answered with something else than JSON: {error}", status=502) from error


def _refusal(status: int, data: bytes) -> Refusal:
    said = an_object(_parse_chunk(data).get("error"))
    words, kind = str(said.get("message") or f"llama.cpp answered {status}"), str(said.get("type") or "")
    code = "context_length_exceeded" if kind == "exceed_context_size_error" else kind
    return Refusal(words, status=status, code=code)
