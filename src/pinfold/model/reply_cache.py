"""Replies to deterministic requests, remembered on disk: the same question is not paid for twice. Bounded."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pinfold.events import (
    AssistantMessage,
    BadEvent,
    Call,
    Json,
    NotPlain,
    Reply,
    Request,
    ToolMessage,
    Usage,
    new_action_id,
    parse_json,
    plain_json,
)
from pinfold.model.layers import Inner, Layer, Pieces

MOST = 2_000
"""Replies that are kept; the oldest go first."""
_LARGEST = 1 << 20


class ReplyCache(Layer):
    def __init__(self, model: Inner, folder: Path, *, at: str = "", most: int = MOST) -> None:
        super().__init__(model)
        self._who = f"{model.name} {at}"
        """Two servers may know different models by one name."""
        self._folder = folder
        self._most = most

    async def stream(self, request: Request) -> Pieces:
        key = key_of(self._who, request) if is_deterministic(request.settings) else None
        if key and (known := self._look_up(key)):
            yield known.text
            yield known
            return
        async with self.pieces(request) as pieces:
            async for piece in pieces:
                if key and isinstance(piece, Reply) and piece.finish == "stop":
                    self._remember(key, piece)
                yield piece

    def _look_up(self, key: str) -> Reply | None:
        path = self._folder / key
        try:
            reply = msgspec.convert(parse_json(path.read_bytes()), Reply)
            os.utime(path)
        except (OSError, BadEvent, msgspec.MsgspecError, UnicodeError):
            return None
        calls = tuple(Call(id=new_action_id(), tool=call.tool, args=call.args) for call in reply.calls)
        return replace(reply, calls=calls, usage=Usage(), cost=0.0, from_cache=True, notices=())

    def _remember(self, key: str, reply: Reply) -> None:
        # A reply that cannot be kept is no reason not to give it.
        with contextlib.suppress(OSError, NotPlain):
            data = plain_json(reply).encode()
            if len(data) > _LARGEST:
                return
            for folder in (*reversed(self._folder.parents), self._folder):  # `parents=True` would leave those open
                folder.mkdir(mode=0o700, exist_ok=True)
            descriptor, partial = tempfile.mkstemp(dir=self._folder, prefix=".")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(partial).replace(self._folder / key)
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        kept = [entry for entry in os.scandir(self._folder) if not entry.name.startswith(".")]
        if len(kept) > self._most:
            # A tenth at once, so that not every reply pays for looking at all of them.
            oldest = sorted(kept, key=lambda entry: entry.stat().st_mtime)
            for entry in oldest[: len(kept) - self._most + self._most // 10]:
                Path(entry.path).unlink(missing_ok=True)


def is_deterministic(settings: Mapping[str, Json]) -> bool:
    return settings.get("temperature") == 0 or settings.get("seed") is not None


def key_of(who: str, request: Request) -> str:
    """Of everything the model would be told; ids of calls count by their order only."""
    numbers: dict[str, str] = {}

    def number(id_: str) -> str:
        return numbers.setdefault(id_, str(len(numbers)))

    messages: list[Json] = []
    for message in request.messages:
        match message:
            case AssistantMessage(calls=calls):
                known = [{"id": number(call.id), "tool": call.tool, "args": call.args} for call in calls]
                messages.append({"role": "assistant", "text": message.text, "calls": known})
            case ToolMessage(id=id_, text=text):
                messages.append({"role": "tool", "id": number(id_), "text": text})
            case _:
                messages.append(message)
    whole = [who, request.system, messages, request.tools, dict(request.settings)]
    return hashlib.sha256(plain_json(whole).encode()).hexdigest()
