"""Full text over a session, read from its store without loading it: prompts, answers, code, outputs."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.events import (
    ActionFinished,
    ActionProposed,
    BadEvent,
    BlobId,
    CallTool,
    Event,
    ModelReplied,
    RunCell,
    SessionChanged,
    UserSpoke,
    decode,
    plain_json,
)
from pinfold.log.blobs import Blobs
from pinfold.log.errors import BlobMissing
from pinfold.log.summary import reading

Place: TypeAlias = Literal["title", "you", "agent", "code", "call", "output"]
_KINDS = ("SessionChanged", "UserSpoke", "ModelReplied", "ActionProposed", "ActionFinished")
_BLOB = 4 << 20
"""Bytes of a long output that are searched."""


class Match(Struct, frozen=True, kw_only=True):
    place: Place
    seq: int
    text: str
    """One line, around the first of the words that is in it."""


def matches(folder: Path, words: Sequence[str]) -> list[Match]:
    """Where any of the words stands, if each of them stands somewhere; upper and lower case are the same."""
    wanted = [word.casefold() for word in words if word.strip()]
    found: list[Match] = []
    missing = {*wanted}
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError), reading(folder) as connection:
        for seq, event in _events(connection, wanted):
            for place, text in _texts(event, Blobs(folder / "blobs")):
                plain = text.casefold()
                here = [word for word in wanted if word in plain]
                missing.difference_update(here)
                if here:
                    found.append(Match(place=place, seq=seq, text=_around(text, plain.find(here[0]))))
    return [] if missing else found


def _events(connection: sqlite3.Connection, wanted: Sequence[str]) -> Iterator[tuple[int, Event]]:
    """Those that may hold a word. JSON writes plain letters as they are, so most need not be decoded."""
    plain = all(word.isascii() and word.isprintable() and not {*word} & {'"', "\\"} for word in wanted)
    marks = ",".join("?" * len(_KINDS))
    query = f"SELECT seq, kind, body FROM events WHERE kind IN ({marks}) ORDER BY seq"  # noqa: S608
    for seq, kind, body in connection.execute(query, _KINDS):
        low = body.lower()
        if plain and '"blobs":["' not in low and not any(word in low for word in wanted):
            continue
        with contextlib.suppress(BadEvent):
            yield seq, decode(kind, body)


def _texts(event: Event, blobs: Blobs) -> Iterable[tuple[Place, str]]:
    match event:
        case SessionChanged(title=title):
            yield "title", title
        case UserSpoke(text=text):
            yield "you", text
        case ModelReplied(text=text):
            yield "agent", text
        case ActionProposed(action=RunCell(code=code)):
            yield "code", code
        case ActionProposed(action=CallTool(tool=tool, args=args)):
            yield "call", f"{tool} {plain_json(args)}"
        case ActionFinished(observation=text, blobs=kept):
            yield "output", _whole(blobs, kept) or text
        case _:
            pass


def _whole(blobs: Blobs, kept: Sequence[BlobId]) -> str:
    with contextlib.suppress(BlobMissing):
        return "".join(blobs.get(blob)[:_BLOB].decode("utf-8", "replace") for blob in kept[:1])
    return ""


def _around(text: str, place: int) -> str:
    """The line that holds this place."""
    start = text.rfind("\n", 0, max(place, 0)) + 1
    end = text.find("\n", max(place, 0))
    line = text[start : end if end >= 0 else len(text)]
    inside = place - start
    return line.strip() if len(line) <= 300 else line[max(0, inside - 100) : inside + 200].strip()
