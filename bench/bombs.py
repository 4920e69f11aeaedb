"""Resource bombs, each inside a session of its own beside a quiet neighbour: what bounds them, and how soon.

    ./.venv/bin/python bench/bombs.py [--only WORD ...]

A bomb is bounded if its cell ends within a second of its limit, what it takes is over its limit (and a quarter) for no
more than a second in all, the session answers afterwards, and nothing of it is left when it is closed. The neighbour
shares the host process and the zygote; the p99 of its round trips may double, no more.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sandbox_suite import environment
from bench.sandbox_suite.bombs import BOMBS, CELL_S, DISK, MEMORY, OUTPUT, WORKSPACE, Bomb
from bench.sandbox_suite.bounds import bounded
from bench.sandbox_suite.figures import percentile, shown, table
from bench.sandbox_suite.processes import Memory, descendants, is_alive, pids, threads

from pinfold.sandbox import Limits, Outcome, Session, Stream, open_session
from pinfold.sandbox.providers.namespaces import Namespaces

NEIGHBOUR_S = 4.0
"""How long the neighbour is listened to: just before the bomb, and from its start on."""
SLACK = 1.25
LATE_S = 1.0
GRACE_S = 0.4
ANSWER_S = 5.0
WATCH_S = 0.02
NEIGHBOUR = 2.0
"""By how much its p99 may grow."""
OUTER_MEMORY = 4 << 30
OUTER_PROCESSES = 3000
POOL = 1


@dataclass(slots=True)
class Watch:
    """What another process saw of a session, every few milliseconds."""

    peak: int = 0
    over_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Verdict:
    bomb: Bomb
    status: str
    took_s: float
    watch: Watch
    quiet_p99: float
    p99: float
    answered: bool
    left: int
    faults: list[str] = field(default_factory=list[str])

    def judge(self) -> None:
        if self.took_s > CELL_S + GRACE_S + LATE_S:
            self.faults.append(f"the cell took {self.took_s:.1f} s")
        if self.watch.over_s > LATE_S:
            self.faults.append(f"over its limit for {self.watch.over_s:.1f} s")
        if self.bomb.watched == "told" and self.watch.peak > self.bomb.limit * SLACK:
            self.faults.append("over its limit")
        if not self.answered:
            self.faults.append("the session does not answer afterwards")
        if self.left:
            self.faults.append(f"{self.left} processes are left")
        if self.p99 > self.quiet_p99 * NEIGHBOUR:
            self.faults.append(f"the neighbour's p99 grew {self.p99 / self.quiet_p99:.1f} times")

    def row(self) -> list[str]:
        scale = 1 << 20 if self.bomb.unit else 1
        amounts = [f"{self.watch.peak // scale:,}", f"{self.bomb.limit // scale:,} {self.bomb.unit}".strip()]
        latency = f"{shown(self.quiet_p99)} -> {shown(self.p99)}"
        verdict = "bounded" if not self.faults else f"NOT: {'; '.join(self.faults)}"
        return [self.bomb.name, f"{self.status}, {self.took_s:.1f} s", self.bomb.watched, *amounts, latency, verdict]


async def explode(bomb: Bomb, provider: Namespaces, neighbour: Session, workspace: Path) -> Verdict:
    limits = Limits(cell_s=CELL_S, interrupt_grace_s=GRACE_S, memory_bytes=MEMORY, output_bytes=OUTPUT, disk_bytes=DISK)
    await provider.warm()
    before = descendants(os.getpid())
    told = 0

    def listen(_stream: Stream, text: str) -> None:
        nonlocal told
        words = text[-40:].split()
        if bomb.watched == "told" and words and words[-1].isdigit():
            told = max(told, int(words[-1]))

    outcome: Outcome | None = None
    took = 0.0
    during: list[float] = []
    async with open_session(workspace, provider, limits=limits) as session:
        inside = (await session.run("import os; print(os.readlink('/proc/self/ns/pid'))")).stdout.strip()
        await provider.warm()
        with watching(bomb, before, workspace) as watch:
            quiet = await latencies(neighbour, NEIGHBOUR_S)
            async with anyio.create_task_group() as tasks:

                async def listen_to_neighbour() -> None:
                    during.extend(await latencies(neighbour, NEIGHBOUR_S))

                tasks.start_soon(listen_to_neighbour)
                begun = time.perf_counter()
                outcome = await session.run(bomb.code, on_output=listen)
                took = time.perf_counter() - begun
                if bomb.watched == "disk" and not outcome.rolled_back:
                    await session.undo()
        answered = await answers(session)
    assert outcome is not None
    if bomb.watched == "told":
        watch.peak = told
    verdict = Verdict(
        bomb=bomb,
        status=outcome.status,
        took_s=took,
        watch=watch,
        quiet_p99=percentile(quiet, 99),
        p99=percentile(during, 99),
        answered=answered,
        left=await left_over(inside),
    )
    verdict.judge()
    return verdict


async def latencies(session: Session, seconds: float) -> list[float]:
    found: list[float] = []
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        await session.run("x = 1")
        found.append(time.perf_counter() - begun)
        await anyio.sleep(0.001)
    return found


async def answers(session: Session) -> bool:
    """A session that lost its state says so once, then goes on."""
    with anyio.move_on_after(ANSWER_S):
        return "2" in [(await session.run("1 + 1")).value for _ in range(2)]
    return False


async def left_over(inside: str) -> int:
    """Processes of this namespace that are there long after the end."""

    def count() -> int:
        return sum(namespace(pid) == inside and is_alive(pid) for pid in pids())

    with anyio.move_on_after(LATE_S):
        while count():
            await anyio.sleep(0.02)
    return count()


def namespace(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


@contextmanager
def watching(bomb: Bomb, before: set[int], workspace: Path) -> Generator[Watch]:
    """In a process of its own, so that looking does not slow the host."""
    argv = [sys.executable, __file__, "--watch", bomb.watched, str(bomb.limit), str(os.getpid()), str(workspace)]
    watcher = subprocess.Popen([*argv, *map(str, before)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert watcher.stdout is not None
    watcher.stdout.readline()
    watch = Watch()
    try:
        yield watch
    finally:
        said, _ = watcher.communicate("stop\n", timeout=30)
        peak, over = said.split()
        watch.peak, watch.over_s = int(peak), float(over)


def watch_until_told(watched: str, limit: int, host: int, workspace: str, known: set[int]) -> None:
    known = known | {os.getpid()}
    empty = os.statvfs(workspace).f_bfree
    base = Memory.of([host]).pss
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stopped.set()), daemon=True).start()
    print("ready", flush=True)
    peak, over, last = 0, 0.0, time.perf_counter()
    while not stopped.wait(WATCH_S):
        theirs = descendants(host) - known
        match watched:
            case "memory":
                seen = Memory.of(theirs).pss
            case "threads":
                seen = sum(map(threads, theirs))
            case "host memory":
                seen = Memory.of([host]).pss - base
            case "processes":
                seen = len(theirs)
            case "disk":
                disk = os.statvfs(workspace)
                seen = (empty - disk.f_bfree) * disk.f_frsize
            case _:
                seen = 0
        now = time.perf_counter()
        over += now - last if seen > limit * SLACK else 0.0
        peak, last = max(peak, seen), now
    print(peak, over, flush=True)


@contextmanager
def small_disk() -> Generator[Path]:
    """A file system for workspaces, where we may mount one. Not tmpfs: its files would count as a session's memory."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        image, folder = Path(name) / "image", Path(name) / "disk"
        folder.mkdir(mode=0o777)
        with image.open("wb") as file:
            file.truncate(WORKSPACE)
        commands = (["mkfs.ext2", "-q", image], ["mount", "-o", "loop", image, folder])
        mounted = os.geteuid() == 0 and all(subprocess.run(one, check=False).returncode == 0 for one in commands)
        folder.chmod(0o777)
        try:
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", "-l", folder], check=True)


async def all_bombs(words: list[str]) -> bool:
    rows: list[list[str]] = []
    bad = 0
    provider = Namespaces(python=environment.PYTHON, pool=POOL)
    # The launcher may see only what is mounted when it starts.
    with small_disk() as disk:
        async with open_session(sandbox=provider) as neighbour:
            await latencies(neighbour, NEIGHBOUR_S)
            for bomb in BOMBS:
                if words and not any(word in bomb.name for word in words):
                    continue
                with tempfile.TemporaryDirectory(dir=disk) as workspace:
                    verdict = await explode(bomb, provider, neighbour, Path(workspace))
                bad += bool(verdict.faults)
                rows.append(verdict.row())
                print(f"... {bomb.name}: {rows[-1][-1]}", file=sys.stderr, flush=True)
    head = ["bomb", "the cell", "watched", "peak", "limit", "neighbour's p99", "verdict"]
    print(table(head, rows))
    print(f"{len(rows) - bad} of {len(rows)} bounded")
    return not bad


def main() -> int:
    arguments = argparse.ArgumentParser(description="Resource bombs inside sessions")
    arguments.add_argument("--only", nargs="+", default=[], metavar="WORD", help="bombs whose name has one")
    arguments.add_argument("--watch", nargs="+", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.watch:
        watched, limit, host, workspace, *known = given.watch
        watch_until_told(watched, int(limit), int(host), workspace, set(map(int, known)))
        return 0
    environment.make()
    with bounded(OUTER_MEMORY, OUTER_PROCESSES) as words:
        print(f"around all of it: {words}", flush=True)
        return not anyio.run(all_bombs, given.only)


if __name__ == "__main__":
    sys.exit(main())
