"""`kill -9` at random moments: while a session works, and while a first one is being made."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from bench.crash_suite.launch import Ended, Executable, Forkserver, Launcher, forkserver
from bench.crash_suite.oracle import (
    ACKNOWLEDGED,
    CHAINED,
    NUMBERED,
    ONCE,
    ONE_END,
    SOUND,
    TRUE,
    UNKNOWN,
    WENT_ON,
    Event,
    Reading,
    Tally,
    judge_acknowledged,
    judge_cut,
    judge_whole,
    read_store,
    tokens_of,
)
from bench.crash_suite.places import PROMPT, TALK, WORK, Place, new_place

LAWS = (ACKNOWLEDGED, NUMBERED, ONCE, TRUE, UNKNOWN, ONE_END, SOUND, CHAINED, WENT_ON)
OPENS = "a store killed in its first launch opens and goes on"
LISTED = "`pinfold sessions` works after it"
LAUNCH_LAWS = (OPENS, LISTED, ACKNOWLEDGED, SOUND)
_WORKERS = 2
_KILLS_PER_SESSION = 4
_WHOLE_RUN_SHARE = 0.3
"""Of the kills fall anywhere in the run; the rest after the session's folder is made, the first moment that
anything can be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Measured on runs that nobody killed."""

    made_s: float
    """The session's folder is there and nothing is in it yet."""
    first_s: float
    """The first event was acknowledged."""
    end_s: float

    def draw(self, chance: random.Random) -> float:
        return self._between(chance, self.end_s)

    def draw_launch(self, chance: random.Random) -> float:
        return self._between(chance, 1.3 * self.first_s)

    def _between(self, chance: random.Random, end_s: float) -> float:
        whole_run = chance.random() < _WHOLE_RUN_SHARE
        return chance.uniform(0.0 if whole_run else self.made_s, end_s)


@contextmanager
def crew() -> Generator[list[Forkserver]]:
    """One forkserver for each core we use."""
    with ExitStack() as stack:
        yield [stack.enter_context(forkserver()) for _ in range(_WORKERS)]


def side_by_side(
    servers: list[Forkserver], trials: list[Callable[[Forkserver], Tally]], enough: Callable[[Tally], bool]
) -> Tally:
    """Run trials on every server until there are no more or it is enough."""
    free: SimpleQueue[Forkserver] = SimpleQueue()
    for server in servers:
        free.put(server)
    total = Tally()
    adding = Lock()

    def carry_out(trial: Callable[[Forkserver], Tally]) -> None:
        if enough(total):
            return
        server = free.get()
        try:
            found = trial(server)
        finally:
            free.put(server)
        with adding:
            total.add(found)

    with ThreadPoolExecutor(len(servers)) as pool:
        for finished in [pool.submit(carry_out, trial) for trial in trials]:
            finished.result()
    return total


def calibrate(launcher: Launcher, script: list[dict[str, Any]] = WORK, times: int = 3) -> Span:
    with tempfile.TemporaryDirectory(prefix="crash-crash-") as temporary:
        ends: list[Ended] = []
        made: list[float] = []
        for number in range(times):
            place = new_place(Path(temporary) / str(number), script)
            began = time.time()
            ended = launcher.start(place, place.run()).until()
            if ended.code != 0:
                raise RuntimeError(f"a run nobody killed failed: {place.complaints.read_text()}")
            ends.append(ended)
            folder = place.session_folder()
            assert folder is not None
            made.append((folder / "owner.lock").stat().st_mtime - began)
    return Span(
        made_s=max(0.0, min(made)),
        first_s=statistics.median(ended.first_s or 0.0 for ended in ends),
        end_s=statistics.median(ended.took_s for ended in ends) * 1.05,
    )


def storm(
    servers: list[Forkserver], kills: int, seed: int, *, by_executable: int = 0, weakened: str | None = None
) -> Tally:
    """Kill until `kills` have hit, `by_executable` of them the installed command."""
    span = calibrate(servers[0])
    orders = {"weakened": weakened} if weakened else {}

    def forked(number: int) -> Callable[[Forkserver], Tally]:
        return lambda server: kill_session(server, span, random.Random(f"{seed}/{number}"), **orders)

    total = side_by_side(
        servers,
        [forked(number) for number in range(kills * 4)],
        lambda so_far: so_far.seen["kills"] >= kills - by_executable,
    )
    if by_executable:
        executable = Executable()
        slow_span = calibrate(executable)

        def started(number: int) -> Callable[[Forkserver], Tally]:
            return lambda _: kill_session(executable, slow_span, random.Random(f"{seed}/x{number}"))

        slow = side_by_side(
            servers,
            [started(number) for number in range(by_executable * 4)],
            lambda so_far: so_far.seen["kills"] >= by_executable,
        )
        slow.seen["kills of the installed command"] = slow.seen["kills"]
        total.add(slow)
    return total


def kill_session(launcher: Launcher, span: Span, chance: random.Random, **orders: Any) -> Tally:
    """One session, killed and resumed until it is through."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="crash-crash-") as temporary:
        place = new_place(Path(temporary) / "place", WORK)
        acknowledged: list[Event] = []
        cut: set[str] = set()
        reading = Reading(state="no folder")
        for attempt in range(_KILLS_PER_SESSION + 1):
            spared = attempt == _KILLS_PER_SESSION or (attempt > 0 and chance.random() < 0.5)
            kill_after_s = None if spared else span.draw(chance)
            ended = launcher.start(place, _next_command(place, reading), **orders).until(kill_after_s)
            before, reading = reading, read_store(place.session_folder())
            acknowledged += ended.acknowledged
            judge_cut(tally, reading, acknowledged)
            if not ended.killed:
                break
            _note_kill(tally, place, before, reading, ended)
            cut |= reading.running()
            if "TurnEnded" in reading.kinds():
                break
        judge_whole(tally, place, reading, cut)
        tally.seen["sessions"] += 1
        tally.seen["events read back"] += len(reading.events)
    return tally


def _next_command(place: Place, reading: Reading) -> list[str]:
    folder = place.session_folder()
    if folder is None:
        return place.run()
    return place.resume(folder.name, None if "UserSpoke" in reading.kinds() else PROMPT)


def _note_kill(tally: Tally, place: Place, before: Reading, reading: Reading, ended: Ended) -> None:
    tally.seen["kills"] += 1
    if before.events and len(before.events) == len(reading.events):
        # What the log ends with is what an earlier process was doing.
        tally.seen["phase: resumed, before its first event"] += 1
        return
    tally.seen[f"phase: {reading.phase()}"] += 1
    tally.seen["in a commit: frames written, not committed"] += reading.torn
    tally.seen["in a commit: committed, head not yet written"] += reading.head < len(reading.events)
    if ended.acknowledged:
        unseen = ended.acknowledged[-1]["seq"] < len(reading.events)
        tally.seen["committed, not yet acknowledged"] += unseen
    for id_ in reading.running():
        happened = place.ledger()[tokens_of(reading)[id_]]
        tally.seen[f"in an effect: it had {'' if happened else 'not yet '}happened"] += 1


def first_launches(servers: list[Forkserver], kills: int, seed: int, *, by_executable: int = 0, **orders: Any) -> Tally:
    """Kill between the start of the process and its first event; then open what is there."""
    span = calibrate(servers[0], TALK)

    def forked(number: int) -> Callable[[Forkserver], Tally]:
        chance = random.Random(f"{seed}/first/{number}")
        return lambda server: _first_launch(server, server, span.draw_launch(chance), **orders)

    total = side_by_side(
        servers,
        [forked(number) for number in range(kills * 4)],
        lambda so_far: so_far.seen["kills"] >= kills - by_executable,
    )
    if by_executable:
        executable = Executable()
        slow_span = calibrate(executable, TALK)

        def started(number: int) -> Callable[[Forkserver], Tally]:
            chance = random.Random(f"{seed}/first/x{number}")
            return lambda server: _first_launch(executable, server, slow_span.draw_launch(chance))

        slow = side_by_side(
            servers,
            [started(number) for number in range(by_executable * 4)],
            lambda so_far: so_far.seen["kills"] >= by_executable,
        )
        slow.seen["kills of the installed command"] = slow.seen["kills"]
        total.add(slow)
    return total


def _first_launch(first: Launcher, then: Launcher, kill_after_s: float, **orders: Any) -> Tally:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="crash-crash-") as temporary:
        place = new_place(Path(temporary) / "place", TALK)
        ended = first.start(place, place.run(), **orders).until(kill_after_s)
        if not ended.killed:
            return tally
        reading = read_store(place.session_folder())
        tally.seen["kills"] += 1
        tally.seen[f"phase: {reading.phase()}"] += 1
        judge_acknowledged(tally, reading, ended.acknowledged)
        tally.judge(SOUND, reading.integrity == "ok", reading.integrity)
        listed = then.start(place, ["sessions", "--json"]).until()
        tally.judge(LISTED, listed.code == 0, place.complaints.read_text())
        if "TurnEnded" not in reading.kinds():
            again = then.start(place, _next_command(place, reading), **orders).until()
            after = read_store(place.session_folder())
            opened = again.code == 0 and "TurnEnded" in after.kinds()
            tally.judge(OPENS, opened, f"{reading.phase()}: {place.complaints.read_text()}")
            judge_acknowledged(tally, after, (*ended.acknowledged, *again.acknowledged))
    return tally
