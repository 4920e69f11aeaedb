"""A model whose replies are written in a file. Product code: demos, tests and checks all drive the product with it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import anyio
import msgspec

from pinfold.events import (
    AssistantMessage,
    BadEvent,
    Call,
    ContextTooLong,
    Entry,
    Json,
    ModelFailed,
    ModelReplied,
    Reply,
    Request,
    RequestFailed,
    Thought,
    Usage,
    convert,
    new_action_id,
    parse_json,
    plain_json,
)
from pinfold.model.errors import BadScript


class KeptCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    args: Json = msgspec.field(default_factory=dict[str, Json])


class KeptReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the file: the next reply, or the next failure."""

    text: str = ""
    reasoning: str = ""
    """Streamed before the wait of `delay_s`."""
    calls: tuple[KeptCall, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    error: str | None = None
    status: int | None = None
    delay_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    expect: str | None = None
    model: str | None = None
    """Name of the model that was recorded."""

    @property
    def mark(self) -> str:
        """Hash of this line's content, by which a resumed session finds its place in the file."""
        return hashlib.sha256(encode_line(self).encode()).hexdigest()[:12]

    def reply(self, request_id: str) -> Reply:
        calls = tuple(Call(id=new_action_id(), tool=call.tool, args=call.args) for call in self.calls)
        return Reply(
            text=self.text,
            reasoning=self.reasoning,
            calls=calls,
            usage=self.usage,
            cost=self.cost,
            request_id=request_id,
        )


def encode_line(kept: KeptReply) -> str:
    fields = msgspec.to_builtins(kept)
    # Zero counts are left out: a line's mark must not change when Usage gets a new field.
    usage = {name: count for name, count in fields.pop("usage", {}).items() if count}
    return plain_json({**fields, "usage": usage} if usage else fields)


def read_lines(path: Path) -> tuple[KeptReply, ...]:
    """Return every line of the file. Raises BadScript, which names the first bad line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadScript(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise BadScript(f"{path} cannot be read: {error.strerror}") from error
    kept: list[KeptReply] = []
    # Not splitlines: a form feed or U+2028 inside a JSON string does not end a line.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            kept.append(convert(parse_json(line), KeptReply))
        except (BadEvent, msgspec.MsgspecError) as error:
            raise BadScript(f"{path}, line {number}: {error}") from error
    return tuple(kept)


def render_request(request: Request) -> str:
    """Return everything the model is sent, as plain text."""
    parts = [request.system]
    for message in request.messages:
        parts.append(message.text)
        if isinstance(message, AssistantMessage):
            parts.extend(plain_json(call.args) for call in message.calls)
    return "\n".join(parts)


_END = KeptReply(text="(end of script)")
_CHUNK = 24


class ScriptedModel:
    """Replies with the lines in order, one for each request. `served` are the marks of lines already used."""

    def __init__(self, lines: Sequence[KeptReply], *, name: str = "scripted", served: Sequence[str] = ()) -> None:
        self.name = name
        self._lines = lines
        marks = [mark for mark in served if mark]
        # If the file has changed since, start again from its first line.
        self._next = len(marks) if [line.mark for line in lines[: len(marks)]] == marks else 0

    @classmethod
    def from_file(cls, path: Path, served: Sequence[str] = ()) -> ScriptedModel:
        return cls(read_lines(path), name=f"scripted:{path}", served=served)

    async def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        """Yield reasoning and text in pieces, then the complete reply."""
        kept = self._lines[self._next] if self._next < len(self._lines) else self._on_exhausted()
        if kept.reasoning:
            yield Thought(kept.reasoning)
        await anyio.sleep(kept.delay_s)
        # Only after the delay: a request that was interrupted meanwhile must not use up its line.
        self._next += 1
        if kept.expect is not None and kept.expect not in (context := render_request(request)):
            words = f"the context should contain {kept.expect!r} but does not; it ends with {context[-400:]!r}"
            raise BadScript(f"{self.name}, reply {self._next}: {words}")
        if kept.error is not None:
            if "context_length_exceeded" in kept.error:
                raise ContextTooLong(kept.error, status=kept.status, request_id=kept.mark)
            raise RequestFailed(kept.error, status=kept.status, request_id=kept.mark)
        for start in range(0, len(kept.text), _CHUNK):
            yield kept.text[start : start + _CHUNK]
        # `_END` is not a line of the file: it has no mark, and a resumed session does not count it.
        yield kept.reply("" if kept is _END else kept.mark)

    async def aclose(self) -> None:
        """Do nothing: no resources are held."""

    def _on_exhausted(self) -> KeptReply:
        return _END


class ReplayModel(ScriptedModel):
    """Like ScriptedModel, but running out of lines is an error: what the model would have said is unknown."""

    @classmethod
    def from_file(cls, path: Path, served: Sequence[str] = ()) -> ReplayModel:
        lines = read_lines(path)
        if not lines:
            raise BadScript(f"{path} has no recorded replies")
        return cls(lines, name=f"replay:{path}", served=served)

    def _on_exhausted(self) -> KeptReply:
        raise BadScript(f"{self.name} has no reply left: {len(self._lines)} were recorded")


def record(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the lines of a replay file for a session: its models' replies and failures."""
    for entry in entries:
        event = entry.event
        if isinstance(event, ModelReplied):
            calls = tuple(KeptCall(tool=call.tool, args=call.args) for call in event.actions)
            kept = KeptReply(text=event.text, calls=calls, usage=event.usage, cost=event.cost, model=event.model)
            yield encode_line(kept)
        elif isinstance(event, ModelFailed):
            yield encode_line(KeptReply(error=event.error, status=event.status, model=event.model))
