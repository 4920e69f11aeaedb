"""Strikes at every single durable write: the process dies before, within or after it, or the disk refuses it."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias

from bench.crash_suite.kills import side_by_side
from bench.crash_suite.launch import Ended, Forkserver
from bench.crash_suite.oracle import (
    ACKNOWLEDGED,
    CHAINED,
    NUMBERED,
    ONCE,
    ONE_END,
    SOUND,
    WENT_ON,
    Event,
    Tally,
    judge_acknowledged,
    judge_cut,
    judge_whole,
    read_store,
)
from bench.crash_suite.places import PROMPT, SHORT, Place, new_place
from bench.crash_suite.shim import Strike

Scene: TypeAlias = Literal["a first run", "a session that was cut off", "a session that is being repaired"]
SCENES: tuple[Scene, ...] = ("a first run", "a session that was cut off", "a session that is being repaired")
DEADLY: tuple[Strike, ...] = ("before", "torn", "after")
CLEAR = "a refused write ends in one clear line and exit code 75"
_LAWS = (ACKNOWLEDGED, ONCE, ONE_END, SOUND, WENT_ON)
_DAMAGED = 4
"""The row that the third scene loses: a ModelCalled, on which nothing else hangs."""


def laws_of(scene: Scene, how: Strike) -> tuple[str, ...]:
    """Of a store that lost a row, neither its numbers nor its chain can be whole."""
    whole = () if scene == "a session that is being repaired" else (NUMBERED, CHAINED)
    return (*_LAWS, *whole, *(() if how in DEADLY else (CLEAR,)))


def strike_everywhere(
    servers: list[Forkserver],
    scene: Scene,
    how: Strike,
    *,
    first: int = 1,
    every: int = 1,
    weakened: str | None = None,
) -> Tally:
    """One experiment for each write of the scene from the first one on, or for every so many."""
    orders = {"weakened": weakened} if weakened else {}
    count = _writes(servers[0], scene, how)

    def at(number: int) -> Callable[[Forkserver], Tally]:
        return lambda server: _strike(server, scene, how, number, orders)

    total = side_by_side(servers, [at(number) for number in range(first, count + 1, every)], lambda _: False)
    total.seen[f"writes in {scene}"] = count
    return total


def _writes(server: Forkserver, scene: Scene, how: Strike) -> int:
    with tempfile.TemporaryDirectory(prefix="crash-writes-") as temporary:
        place, _ = _set_up(server, scene, Path(temporary) / "place")
        count = place.root / "count"
        trap = {"at": 0, "how": how, "count": str(count)}
        ended = server.start(place, _command(place), trap=trap).until()
        if ended.code != 0:
            raise RuntimeError(f"{scene}, undisturbed, failed: {place.complaints.read_text()}")
        return int(count.read_text(encoding="ascii"))


def _set_up(server: Forkserver, scene: Scene, root: Path) -> tuple[Place, list[Event]]:
    place = new_place(root, SHORT)
    if scene == "a first run":
        return place, []
    # Always at the same point: the reply is on disk, its cell is not.
    cut = server.start(place, place.run(), trap={"at": 35, "how": "after", "count": ""}).until()
    folder = place.session_folder()
    assert cut.killed
    assert folder is not None
    if scene == "a session that is being repaired":
        with closing(sqlite3.connect(folder / "log.sqlite")) as connection, connection:
            connection.execute("UPDATE events SET body = replace(body, 't_', 'x_') WHERE seq = ?", (_DAMAGED,))
    return place, list(cut.acknowledged)


def _command(place: Place) -> list[str]:
    folder = place.session_folder()
    if folder is None:
        return place.run()
    begun = "UserSpoke" in read_store(folder).kinds()
    return place.resume(folder.name, None if begun else PROMPT)


def _strike(server: Forkserver, scene: Scene, how: Strike, number: int, orders: dict[str, Any]) -> Tally:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="crash-writes-") as temporary:
        place, acknowledged = _set_up(server, scene, Path(temporary) / "place")
        if scene == "a session that is being repaired":
            acknowledged = [event for event in acknowledged if event["seq"] != _DAMAGED]
        cut = read_store(place.session_folder()).running()
        trap = {"at": number, "how": how, "count": ""}
        struck = server.start(place, _command(place), trap=trap, **orders).until()
        acknowledged += struck.acknowledged
        reading = read_store(place.session_folder())
        tally.seen[f"struck: {how}"] += 1
        tally.seen[f"{how}: {_outcome(struck)}"] += 1
        if how not in DEADLY:
            judge_refusal(tally, struck, place, f"{scene}, {how} at write {number}")
        cut |= reading.running()
        _judge_as_it_lies(tally, scene, place, acknowledged)
        for _ in range(2):
            if "TurnEnded" in read_store(place.session_folder()).kinds():
                break
            again = server.start(place, _command(place), **orders).until()
            acknowledged += again.acknowledged
        _judge_as_it_lies(tally, scene, place, acknowledged)
        before = len(tally.examples)
        judge_whole(tally, place, read_store(place.session_folder()), cut)
        if len(tally.examples) > before:
            tally.examples.append(f"  in {scene}, {how} at write {number}: {place.complaints.read_text()}")
    return tally


def _outcome(ended: Ended) -> str:
    return "killed" if ended.killed else f"exit {ended.code}"


def _judge_as_it_lies(tally: Tally, scene: Scene, place: Place, acknowledged: list[Event]) -> None:
    reading = read_store(place.session_folder())
    if scene != "a session that is being repaired":
        return judge_cut(tally, reading, acknowledged)
    # The damaged row may still be there or be gone by now; everything else must be as it was.
    judge_acknowledged(tally, reading, acknowledged)
    return tally.judge(SOUND, reading.integrity == "ok", reading.integrity)


def judge_refusal(tally: Tally, struck: Ended, place: Place, where: str) -> None:
    """Said once: by the turn's last event if that could still be written, else on stderr.

    A write that is refused after the work was done may cost nothing at all.
    """
    said = [line for line in place.complaints.read_text().splitlines() if "continue with:" not in line]
    said += [event["error"] for event in struck.acknowledged if event["kind"] == "TurnFailed"]
    unclear = not all("cannot write" in line or "cannot repair" in line for line in said)
    refused = struck.code == 75 and len(said) == 1 and not unclear
    unharmed = struck.code == 0 and not said
    tally.judge(CLEAR, refused or unharmed, f"{where}: exit {struck.code}, {said}")
