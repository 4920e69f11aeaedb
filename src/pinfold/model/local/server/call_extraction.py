"""Calls that a model wrote as text, made native ones on their way to the client. Native ones pass as they are."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeAlias

from pinfold.events import Json, ToolSchema, plain_json
from pinfold.model.protocol.reply_parser import parse_reply
from pinfold.model.wire.payload import a_list, a_text, an_object

Chunk: TypeAlias = dict[str, Json]
_MARKS = re.compile(r"[`~<{\[]")
"""A call may begin with any of these."""


class CallExtractor:
    """One choice of one reply. Text goes on as it comes until it might be a call; then it waits for the end."""

    def __init__(self, tools: Sequence[ToolSchema], quoted: Sequence[str]) -> None:
        self._tools = tools
        self._quoted = quoted
        names = "|".join(re.escape(tool.name) for tool in tools)
        self._called = re.compile(rf"^[ \t]*(?:{names})[ \t]*\(", re.MULTILINE)
        self._text = ""
        self._sent = 0
        self._line = 0
        """Where the last line begins; before it nothing looks like a call."""
        self._held: int | None = None
        """From here on it may be one."""
        self._is_native = False

    def text(self, piece: str) -> str:
        """What of it can go on now."""
        self._text += piece
        return self._up_to(self._safe())

    def native(self) -> None:
        """The server has read a call by itself."""
        self._is_native = True

    def end(self) -> tuple[str, list[Json]]:
        """The rest of the text, or the calls that it was."""
        calls = () if self._is_native else parse_reply(self._text, self._tools, quoted=self._quoted).calls
        if not calls:
            return self._up_to(len(self._text)), []
        return "", [
            {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": call.tool, "arguments": plain_json(call.args)},
            }
            for call in calls
        ]

    def _up_to(self, end: int) -> str:
        said = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return said

    def _safe(self) -> int:
        if self._held is not None:
            return self._held
        found = (pattern.search(self._text, self._line) for pattern in (_MARKS, self._called))
        if starts := [match.start() for match in found if match]:
            self._held = min(starts)
            return self._held
        self._line = self._text.rfind("\n") + 1
        begun = self._text[self._line :].strip()
        may_become = begun and any(tool.name.startswith(begun) for tool in self._tools)
        return self._line if may_become else len(self._text)


async def extract_calls(
    chunks: AsyncGenerator[Chunk], tools: Sequence[ToolSchema], quoted: Sequence[str]
) -> AsyncGenerator[Chunk]:
    """Chunks of a streamed reply."""
    choices: dict[int, CallExtractor] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            passed: list[Json] = []
            for choice in map(an_object, a_list(chunk.get("choices"))):
                number = choice.get("index")
                sifter = choices.setdefault(number if isinstance(number, int) else 0, CallExtractor(tools, quoted))
                passed.append(_extract_from_choice(choice, sifter))
            yield {**chunk, "choices": passed}


def _extract_from_choice(choice: dict[str, Json], sifter: CallExtractor) -> Json:
    delta = dict(an_object(choice.get("delta")))
    if delta.get("tool_calls"):
        sifter.native()
    if isinstance(delta.get("content"), str):
        delta["content"] = sifter.text(a_text(delta["content"]))
    if choice.get("finish_reason") is None:
        return {**choice, "delta": delta}
    rest, calls = sifter.end()
    if rest:
        delta["content"] = a_text(delta.get("content")) + rest
    if not calls:
        return {**choice, "delta": delta}
    delta["tool_calls"] = [{"index": at, **an_object(call)} for at, call in enumerate(calls)]
    return {**choice, "delta": delta, "finish_reason": "tool_calls"}


def extract_calls_from_reply(answer: Chunk, tools: Sequence[ToolSchema], quoted: Sequence[str]) -> Chunk:
    """A reply that was not streamed."""
    choices: list[Json] = []
    for choice in map(an_object, a_list(answer.get("choices"))):
        message = an_object(choice.get("message"))
        sifter = CallExtractor(tools, quoted)
        if message.get("tool_calls"):
            sifter.native()
        said = sifter.text(a_text(message.get("content")))
        _, calls = sifter.end()
        if calls:
            message = {**message, "content": said.strip() or None, "tool_calls": calls}
            choices.append({**choice, "message": message, "finish_reason": "tool_calls"})
        else:
            choices.append(choice)
    return {**answer, "choices": choices}
