"""Judges a store from outside: plain SQLite and its own arithmetic, none of the product's reading code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from bench.crash_suite.places import Place, copy_store

Event: TypeAlias = dict[str, Any]
_SHOWN = 600
_FRAME = 24 + 4096
_TOKEN = re.compile(r'b"(\w+)\\n"')

ACKNOWLEDGED = "an acknowledged event is in the log, unchanged"
NUMBERED = "a log is numbered 1..n without a gap"
ONCE = "an effect happened at most once"
TRUE = "an action that ended ok had its effect exactly once"
UNKNOWN = "an action cut while running has one end: outcome_unknown"
ONE_END = "an action has exactly one end"
SOUND = "SQLite's integrity_check says ok"
CHAINED = "every row's checksum holds"
WENT_ON = "a cut session goes on to its end"


@dataclass
class Tally:
    """How often each law was examined and broken. A law nobody examined does not hold."""

    examined: Counter[str] = field(default_factory=Counter[str])
    broken: Counter[str] = field(default_factory=Counter[str])
    seen: Counter[str] = field(default_factory=Counter[str])
    examples: list[str] = field(default_factory=list[str])

    def judge(self, law: str, kept: bool, detail: object = "") -> None:
        self.examined[law] += 1
        if not kept:
            self.broken[law] += 1
            self.examples.append(f"{law}: {detail}")

    def add(self, other: Tally) -> None:
        self.examined += other.examined
        self.broken += other.broken
        self.seen += other.seen
        self.examples += other.examples

    def holds(self, laws: Iterable[str]) -> bool:
        return not self.broken and all(self.examined[law] for law in laws)

    def report(self, laws: Iterable[str]) -> str:
        rows = [f"  {self.examined[law]:>8,} {self.broken[law]:>7,}  {law}" for law in laws]
        shown = [f"  broken: {example[:_SHOWN]}" for example in self.examples[:5]]
        return "\n".join(["  examined  broken  law", *rows, *shown])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A store as it was at one moment."""

    events: tuple[Event, ...] = ()
    """As `--json` would print them."""
    state: str = "no store"
    """How far the store itself had come: no store, no tables, tables, or readable."""
    integrity: str = "ok"
    chain_holds: bool = True
    head: int = 0
    torn: bool = False
    """Frames of a commit that never came are in the write-ahead log."""

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events]

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    def running(self) -> set[str]:
        """Actions with an effect that were started and have no end."""
        begun = {e["id"] for e in self.events if e["kind"] == "ActionStarted" and e["effect"] != "pure"}
        return begun - {e["id"] for e in self.events if e["kind"] == "ActionFinished"}

    def ends(self) -> list[Event]:
        return [event for event in self.events if event["kind"] == "ActionFinished"]

    def phase(self) -> str:
        """What the process was doing, by the last thing it wrote."""
        return _PHASES[self.events[-1]["kind"]] if self.events else f"before the first event: {self.state}"


_PHASES = {
    "SessionOpened": "opened, before the turn",
    "Noticed": "opened, before the turn",
    "UserSpoke": "turn begun",
    "ModelCalled": "model call",
    "ModelFailed": "model call",
    "ModelReplied": "reply recorded, nothing proposed yet",
    "ActionProposed": "action proposed",
    "ActionAllowed": "action proposed",
    "ActionStarted": "action started, effect running",
    "ActionFinished": "between actions or steps",
    "TurnEnded": "turn ended, closing down",
    "TurnFailed": "turn failed, closing down",
}


def read_store(folder: Path | None) -> Reading:
    """Read a copy, so that looking neither repairs nor checkpoints what it looks at."""
    if folder is None:
        return Reading(state="no folder")
    with tempfile.TemporaryDirectory(prefix="crash-oracle-") as temporary:
        return _read(copy_store(folder, Path(temporary) / "copy"), folder.name)


def _read(folder: Path, session: str) -> Reading:
    store = folder / "log.sqlite"
    if not store.exists():
        return Reading()
    frames = _frames(folder / "log.sqlite-wal")
    with contextlib.closing(sqlite3.connect(store)) as connection:
        integrity: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").fetchone():
            return Reading(state="no tables", integrity=integrity)
        rows = connection.execute("SELECT seq, at, kind, body, sum FROM events ORDER BY seq").fetchall()
    head = (folder / "head").read_text(encoding="ascii").split() if (folder / "head").exists() else []
    return Reading(
        events=tuple({"seq": seq, "session": session, "at": at, **json.loads(body)} for seq, at, _, body, _ in rows),
        state="readable" if rows else "tables",
        integrity=integrity,
        chain_holds=_chained(rows),
        head=int(head[0]) if head else 0,
        torn=frames,
    )


def _chained(rows: list[tuple[int, str, str, str, bytes]]) -> bool:
    previous = bytes(16)
    for seq, at, kind, body, stored in rows:
        previous = hashlib.sha256(previous + f"{seq} {at} {kind} {body}".encode()).digest()[:16]
        if previous != stored or json.loads(body)["kind"] != kind:
            return False
    return True


def _frames(wal: Path) -> bool:
    """Whether the last whole frame of the current generation is no commit, or a frame is cut short."""
    data = wal.read_bytes() if wal.exists() else b""
    if len(data) <= 32:
        return False
    salt = data[16:24]
    last_is_commit = True
    position = 32
    while position + _FRAME <= len(data) and data[position + 8 : position + 16] == salt:
        last_is_commit = data[position + 4 : position + 8] != bytes(4)
        position += _FRAME
    cut_short = 0 < len(data) - position < _FRAME
    return cut_short or not last_is_commit


def judge_cut(tally: Tally, reading: Reading, acknowledged: Iterable[Event]) -> None:
    """Laws that hold at the very moment after a death, before anyone repaired anything."""
    judge_acknowledged(tally, reading, acknowledged)
    tally.judge(SOUND, reading.integrity == "ok", reading.integrity)
    tally.judge(CHAINED, reading.chain_holds, reading.seqs)
    tally.judge(NUMBERED, reading.seqs == list(range(1, len(reading.events) + 1)), reading.seqs)


def judge_acknowledged(tally: Tally, reading: Reading, acknowledged: Iterable[Event]) -> None:
    stored = {event["seq"]: event for event in reading.events}
    for event in acknowledged:
        tally.judge(ACKNOWLEDGED, stored.get(event["seq"]) == event, event)


def judge_whole(tally: Tally, place: Place, reading: Reading, cut: Iterable[str]) -> None:
    """Laws of a session that has come to its end, `cut` being what ran when its processes were killed."""
    tally.judge(WENT_ON, "TurnEnded" in reading.kinds(), reading.kinds())
    for token, times in place.ledger().items():
        tally.judge(ONCE, times == 1, f"{token} happened {times} times")
    ends = Counter(event["id"] for event in reading.ends())
    for event in reading.events:
        if event["kind"] == "ActionProposed":
            tally.judge(ONE_END, ends[event["id"]] == 1, f"{event['id']} has {ends[event['id']]} ends")
    outcomes = {event["id"]: event["outcome"] for event in reading.ends()}
    for id_ in cut:
        tally.judge(UNKNOWN, outcomes.get(id_) == "outcome_unknown", f"{id_}: {outcomes.get(id_)}")
    for id_, token in tokens_of(reading).items():
        if outcomes.get(id_) == "ok":
            times = place.ledger()[token]
            tally.judge(TRUE, times == 1, f"{token} ended ok and happened {times} times")


def tokens_of(reading: Reading) -> dict[str, str]:
    """Which ledger line each cell writes."""
    proposed = [event for event in reading.events if event["kind"] == "ActionProposed"]
    found = {event["id"]: _TOKEN.search(event["action"].get("code", "")) for event in proposed}
    return {id_: token[1] for id_, token in found.items() if token}
