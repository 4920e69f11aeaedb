"""A GGUF file behind an endpoint: llama.cpp in a process of its own."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from pinfold.events import BadEvent, ContextTooLong, Json, RequestFailed
from pinfold.model.local.model_host import Host, Served
from pinfold.model.local.server.openai_format import Body, Chunk, Refusal
from pinfold.model.names import ignores_declared_tools
from pinfold.model.wire.chat_stream import DONE, events
from pinfold.model.wire.failures import Refused
from pinfold.model.wire.http import Answer, Patience, Wire
from pinfold.model.wire.payload import an_object, parse_payload

_DAY_S = 86_400.0
_PATIENCE = Patience(connect_s=5.0, first_s=_DAY_S, idle_s=_DAY_S)
"""llama.cpp says nothing while it reads a long prompt."""


class LlamaBackend:
    def __init__(self, name: str, host: Host, served: Served, *, weights: str) -> None:
        """`weights`: what they are called, whatever the model is offered as."""
        self.name = name
        self.context: int | None = served.context or None
        self.tells_tools = served.tells_tools and not ignores_declared_tools(weights)
        self._host = host
        self._wire = _connect(served)

    async def chunks(self, body: Body) -> AsyncGenerator[Chunk]:
        async with (
            self._request(_path(body), {**body, "stream": True}) as answer,
            aclosing(events(answer, lambda: False, tail_s=math.inf)) as chunks,
        ):
            async for chunk in chunks:
                if chunk != DONE:
                    yield chunk

    async def answer(self, body: Body) -> Chunk:
        return await self._ask(_path(body), body)

    async def embed(self, body: Body) -> Json:
        return {**await self._ask("embeddings", body), "model": self.name}

    async def aclose(self) -> None:
        await self._wire.aclose()
        self._host.release()

    async def _ask(self, path: str, body: Body) -> Chunk:
        async with self._request(path, body) as answer:
            try:
                return an_object(parse_payload((await answer.whole()).decode()))
            except (BadEvent, UnicodeError) as error:
                raise Refusal(f"llama.cpp answered with something else than JSON: {error}", status=502) from error

    @asynccontextmanager
    async def _request(self, path: str, body: Body) -> AsyncGenerator[Answer]:
        """The answer, with a status of success. One whose process has ended is started again. Raises Refusal."""
        if not self._host.is_running():
            await self._wire.aclose()
            self._wire = _connect(await self._host.ready())
        # As in builtin.Repeatable.
        repeats = {"cache_prompt": False} if body.get("seed") is not None else {}
        try:
            async with self._wire.post(f"v1/{path}", {**repeats, **body, "model": self.name}) as answer:
                yield answer
        except ContextTooLong as error:
            raise Refusal(str(error), code="context_length_exceeded") from error
        except Refused as error:
            raise Refusal(error.words, status=error.status or 502) from error
        except RequestFailed as error:
            raise Refusal(f"llama.cpp broke off: {error}", status=502) from error


def _connect(served: Served) -> Wire:
    return Wire(served.url, patience=_PATIENCE, key=served.key)


def _path(body: Body) -> str:
    return "completions" if "prompt" in body else "chat/completions"
