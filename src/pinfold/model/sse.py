"""The pieces of a streamed answer: server-sent events, or bare JSON from a server that does not stream."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal, TypeAlias

import anyio

from pinfold.events import BadEvent, Json, RequestFailed
from pinfold.model.failures import one_line
from pinfold.model.http import Answer
from pinfold.model.payload import an_object, parsed

Done: TypeAlias = Literal["[DONE]"]
DONE: Done = "[DONE]"
DRAIN_S = 0.2
"""For the end of an answer after its last word, so that the next request can have the connection."""
_STREAMS = ("text/event-stream", "application/x-ndjson")


async def events(
    answer: Answer, finished: Callable[[], bool], *, tail_s: float
) -> AsyncGenerator[dict[str, Json] | Done]:
    """Every object the server sends, and DONE where it says so. Raises RequestFailed for what is no such stream.

    Once the reader has `finished`, more is waited for no longer than `tail_s`.
    """
    reader = _Reader()
    first = b""
    seen = False
    limit_s = math.inf
    async with aclosing(answer.lines()) as lines:
        while True:
            line = None
            with anyio.move_on_after(limit_s):
                line = await anext(lines, None)
            if line is None:
                break
            if not first:
                first = line.strip().removeprefix(b"\xef\xbb\xbf")
                if "html" in answer.kind or first.startswith(b"<"):
                    raise not_a_chat(answer, "a web page")
            for event in reader.take(line.decode("utf-8", "replace")):
                seen = True
                yield event
                if event == DONE:
                    limit_s = DRAIN_S
            if limit_s == math.inf and finished():
                limit_s = tail_s
    for event in reader.end():
        seen = True
        yield event
    if first and not seen and answer.kind not in _STREAMS:
        raise not_a_chat(answer, one_line(first.decode("utf-8", "replace")))


def not_a_chat(answer: Answer, what: str) -> RequestFailed:
    """Someone answers there, but it is not a model."""
    return RequestFailed(
        f"{answer.url} answers with something else than a chat reply ({what}); is the URL right?",
        status=404,
        request_id=answer.request_id,
    )


class _Reader:
    def __init__(self) -> None:
        self._pending: list[str] = []
        self._bare = False

    def take(self, line: str) -> list[dict[str, Json] | Done]:
        line = line.removeprefix("\ufeff")
        if self._bare or (not self._pending and line.lstrip().startswith("{")):
            self._bare = True
            return self._data(line)
        if not line.strip():
            return self.end()
        field, _, value = line.partition(":")
        # Not in the standard, but sent: `error:` in place of `data:`.
        return self._data(value.removeprefix(" ")) if field in ("data", "error") else []

    def end(self) -> list[dict[str, Json] | Done]:
        """What was waiting for more lines."""
        text = "\n".join(self._pending)
        self._pending.clear()
        return [_object(text)] if text.strip() else []

    def _data(self, value: str) -> list[dict[str, Json] | Done]:
        if value.strip() == DONE:
            return [*self.end(), DONE]
        if not self._pending:
            # Nearly always one line is one object. If it is not, it is one part of several.
            try:
                return [_checked(parsed(value))] if value.strip() else []
            except BadEvent:
                pass
        self._pending.append(value)
        return []


def _object(text: str) -> dict[str, Json]:
    try:
        return _checked(parsed(text))
    except BadEvent as error:
        raise RequestFailed(f"the server sent a piece that is not JSON: {one_line(text[:120])!r}") from error


def _checked(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise BadEvent("not an object")
    return an_object(value)
