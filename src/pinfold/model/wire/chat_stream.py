"""Reads a streamed chat answer, as server-sent events or bare JSON lines, into a reply."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Literal, TypeAlias

import anyio
from msgspec.structs import replace

from pinfold.events import BadEvent, Json, Reply, Request, RequestFailed, Thought
from pinfold.model.wire.failures import holds_error, one_line, refusal
from pinfold.model.wire.http import Answer, Wire
from pinfold.model.wire.payload import as_object, parse_payload
from pinfold.model.wire.reply_assembler import ReplyAssembler

Done: TypeAlias = Literal["[DONE]"]
DONE: Done = "[DONE]"
DRAIN_S = 0.5
"""Wait for the end of a finished answer, so that the next request can reuse the connection."""
_LOST = 3
"""Unreadable events that are skipped before the whole answer fails."""
_STREAMS = ("text/event-stream", "application/x-ndjson")
LOST = "{} of the pieces that the server sent could not be read: something may be missing in the answer"


class StreamedModel:
    """A model whose server streams its replies. Subclasses send the request and convert events to OpenAI's chunks."""

    tail_s: float
    """Wait for events, such as usage, after a finished answer."""

    def __init__(self, name: str, model: str, wire: Wire, *, takes_tools: bool = True) -> None:
        self.name = name
        self.model = model
        self.takes_tools = takes_tools
        """False once the server has said that it supports no tools."""
        self._wire = wire

    async def aclose(self) -> None:
        await self._wire.aclose()

    async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
        """Yield pieces as they arrive, then the complete reply. Raises RequestFailed."""
        async with AsyncExitStack() as stack:
            answer = await self._answer(request, stack)
            assembler = ReplyAssembler()
            try:
                async with aclosing(events(answer, lambda: assembler.finished, tail_s=self.tail_s)) as chunks:
                    async for chunk in chunks:
                        if chunk == DONE:
                            assembler.finished = True
                            continue
                        if holds_error(chunk):
                            raise refusal(None, chunk, url=answer.url, secrets=self._wire.secrets)
                        for piece in assembler.add(self._to_chunk(chunk)):
                            yield piece
                self._check_whole(assembler, answer)
            except RequestFailed as failure:
                # An error after the complete answer does no harm.
                if not (assembler.begun and assembler.finished):
                    failure.request_id = failure.request_id or answer.request_id or assembler.id
                    raise
            for piece in assembler.end():
                yield piece
            reply = assembler.reply(model=self.name, request_id=answer.request_id)
            yield await self._complete(
                replace(reply, notices=(LOST.format(answer.lost),)) if answer.lost else reply, request
            )

    async def _answer(self, request: Request, stack: AsyncExitStack) -> Answer:
        raise NotImplementedError

    def _to_chunk(self, sent: dict[str, Json]) -> dict[str, Json]:
        return sent

    def _check_whole(self, assembler: ReplyAssembler, answer: Answer) -> None:
        if not assembler.begun and answer.kind == "application/json":
            raise not_a_chat(answer, "there are no choices in it")
        if not assembler.finished:
            raise RequestFailed("the reply broke off")
        if not assembler.begun:
            raise RequestFailed("the server sent an empty reply")

    async def _complete(self, reply: Reply, request: Request) -> Reply:
        """Return the reply with anything the server left out, such as usage."""
        raise NotImplementedError


async def events(
    answer: Answer, finished: Callable[[], bool], *, tail_s: float
) -> AsyncGenerator[dict[str, Json] | Done]:
    """Yield every object the server sends, and DONE where it sends that. Raises RequestFailed if it is no such stream.

    Once `finished()` is true, wait at most `tail_s` for more.
    """
    reader = _Reader(answer)
    first = b""
    seen = False
    limit_s = math.inf
    async with aclosing(answer.lines()) as source:
        while True:
            lines = None
            with anyio.move_on_after(limit_s):
                lines = await anext(source, None)
            if lines is None:
                break
            for line in lines:
                # Comments and blank lines are keep-alives; there may be very many.
                if line.startswith(b":") or not (line or reader.waiting):
                    continue
                first = first or _first(line, answer)
                for event in reader.take(line):
                    seen = True
                    yield event
                    limit_s = DRAIN_S if event == DONE else tail_s if finished() else limit_s
    for event in reader.end():
        seen = True
        yield event
    if first and not seen and answer.kind not in _STREAMS:
        raise not_a_chat(answer, one_line(first.decode("utf-8", "replace")))


def _first(line: bytes, answer: Answer) -> bytes:
    """Return the start of an answer. Raises RequestFailed for a web page."""
    beginning = line.strip()
    if beginning and ("html" in answer.kind or beginning.startswith(b"<")):
        raise not_a_chat(answer, "a web page")
    return beginning


def not_a_chat(answer: Answer, what: str) -> RequestFailed:
    """Build the error for a server that answers with something other than chat."""
    words = f"{answer.url} did not answer with a chat reply ({what}); is the URL right?"
    return RequestFailed(words, status=404, request_id=answer.request_id)


class _Reader:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._pending: list[str] = []
        self._bare = False

    @property
    def waiting(self) -> bool:
        """True within an event of several lines."""
        return bool(self._pending)

    def take(self, line: bytes) -> Sequence[dict[str, Json] | Done]:
        line = line.removeprefix(b"\xef\xbb\xbf")
        if line.startswith(b"data:"):
            return self._data(line[5:].removeprefix(b" "))
        if self._bare or (not self._pending and line.lstrip().startswith(b"{")):
            self._bare = True
            return self._data(line)
        if line.startswith(b"error:"):
            # Not in the standard, but some servers send it.
            return self._data(b'{"error": %b}' % line[6:])
        return self.end() if self._pending and not line.strip() else ()

    def end(self) -> Sequence[dict[str, Json] | Done]:
        """Return the event whose lines were collected, if any."""
        text = "\n".join(self._pending)
        self._pending.clear()
        if not text:
            return ()
        try:
            return (_parse_object(text),)
        except BadEvent:
            self._answer.lost += 1
            if self._answer.lost > _LOST:
                words = f"the server sent pieces that are not JSON: {one_line(text[:120])!r}"
                raise RequestFailed(words) from None
            return ()

    def _data(self, value: bytes) -> Sequence[dict[str, Json] | Done]:
        text = value.decode("utf-8", "replace")
        if not self._pending:
            # Nearly always one line is one object; if not, it is one line of several.
            try:
                return (_parse_object(text),)
            except BadEvent:
                pass
        if text.strip() == DONE:
            return (*self.end(), DONE)
        self._pending.extend([text] if text.strip() else [])
        return ()


def _parse_object(text: str) -> dict[str, Json]:
    if not isinstance(value := parse_payload(text), dict):
        raise BadEvent("not an object")
    return as_object(value)
