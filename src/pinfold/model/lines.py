"""Replies kept as JSON lines: what `scripted:` and `replay:` files share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from pinfold.events import (
    AssistantMessage,
    BadEvent,
    Call,
    Json,
    Reply,
    Request,
    Usage,
    new_action_id,
    parse_json,
    plain_json,
)
from pinfold.model.errors import BadScript


class KeptCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    args: Json = msgspec.field(default_factory=dict[str, Json])


class KeptReply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line: the next reply, or the next failure."""

    text: str = ""
    calls: tuple[KeptCall, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    error: str | None = None
    status: int | None = None
    delay_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    expect: str | None = None
    model: str | None = None
    """Who said it, in a recording."""

    @property
    def mark(self) -> str:
        """Names this line's content, so that a resumed session knows its place in the file again."""
        return hashlib.sha256(encode_line(self).encode()).hexdigest()[:12]

    def reply(self, request_id: str) -> Reply:
        calls = tuple(Call(id=new_action_id(), tool=call.tool, args=call.args) for call in self.calls)
        return Reply(text=self.text, calls=calls, usage=self.usage, cost=self.cost, request_id=request_id)


def encode_line(kept: KeptReply) -> str:
    fields = msgspec.to_builtins(kept)
    # Without what was not counted: the mark of a line must outlive the next thing there is to count.
    usage = {name: count for name, count in fields.pop("usage", {}).items() if count}
    return plain_json({**fields, "usage": usage} if usage else fields)


def read_lines(path: Path) -> tuple[KeptReply, ...]:
    """Every line of the file, or BadScript naming the first bad one."""
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
            kept.append(msgspec.convert(parse_json(line), KeptReply))
        except (BadEvent, msgspec.MsgspecError) as error:
            raise BadScript(f"{path}, line {number}: {error}") from error
    return tuple(kept)


def resume_at(kept: Sequence[KeptReply], served: Sequence[str]) -> int:
    """Where to go on when the marks `served` were given out before: after them, or at the start of a changed file."""
    marks = [mark for mark in served if mark]
    known = [line.mark for line in kept[: len(marks)]]
    return len(marks) if known == marks else 0


def render_request(request: Request) -> str:
    """Everything the model is told, as plain text."""
    parts = [request.system]
    for message in request.messages:
        parts.append(message.text)
        if isinstance(message, AssistantMessage):
            parts.extend(plain_json(call.args) for call in message.calls)
    return "\n".join(parts)
