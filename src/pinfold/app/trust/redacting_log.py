"""A log that is exact, but for secrets of Pinfold's own: keys of models, and what `pinfold secret` keeps.

They never go into a session, so they have no business in its story. Should one turn up all the same, printed by a program
that found it or sent back by a server, neither an event nor a blob gets it, and so neither does a model.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from pinfold.events import (
    Arrow,
    BlobId,
    Delta,
    Event,
    Json,
    SessionId,
    decode_line,
    decode_object,
    encode,
    parse_json,
    plain_json,
)
from pinfold.log import Batch, Blobs, Log
from pinfold.text import keeps_own, without_own


class RedactingLog(Log):
    def __init__(self, folder: Path | None, session: SessionId) -> None:
        super().__init__(folder, session)
        self.blobs = _RedactingBlobs(folder / "blobs" if folder else None)

    def queue_events(self, events: tuple[Event, ...]) -> Batch:
        return super().queue_events(tuple(map(_redact_event, events)) if keeps_own() else events)

    def broadcast(self, delta: Delta) -> None:
        super().broadcast(_redact_delta(delta) if keeps_own() else delta)


class _RedactingBlobs(Blobs):
    def put(self, data: bytes) -> BlobId:
        if not keeps_own():
            return super().put(data)
        text = data.decode("utf-8", "surrogateescape")
        clean = without_own(text)
        return super().put(data if clean is text else clean.encode("utf-8", "surrogateescape"))


def _redact_event(event: Event) -> Event:
    text = encode(event)
    return event if without_own(text) is text else decode_object(remove_own_secrets(parse_json(text)))


def _redact_delta(delta: Delta) -> Delta:
    text = encode(delta)
    if without_own(text) is text:
        return delta
    return cast(Delta, decode_line(plain_json(remove_own_secrets(parse_json(text)))))


def remove_own_secrets(value: Json) -> Json:
    """As it is, but for them."""
    match value:
        case str():
            return without_own(value)
        case bytes() if keeps_own() and not isinstance(value, Arrow):
            return without_own(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        case dict():
            inside = cast(dict[str, Json], value)
            return {without_own(key): remove_own_secrets(item) for key, item in inside.items()}
        case list():
            return [remove_own_secrets(item) for item in cast(list[Json], value)]
        case _:
            return value
