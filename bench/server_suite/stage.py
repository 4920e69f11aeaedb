"""The server under test and what the kernel knows of it; goals, and the table they are shown in."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.sandbox_suite.figures import percentile, shown, table
from bench.sandbox_suite.processes import Memory, descendants, threads
from bench.server_suite.http import Connection
from tests.front.server.served import Served, begin, end

TEXT = "The answer is 42, and it was computed in the session, not guessed. " * 8
CELL = {"calls": [{"tool": "python", "args": {"code": "x = 6 * 7\nprint(x)"}}]}
TURNS = 10
"""In the script of most sessions."""


@dataclass
class Goal:
    what: str
    figure: str
    goal: str = ""
    is_met: bool | None = None
    """None: it is only told."""


@dataclass
class Report:
    goals: list[Goal] = field(default_factory=list[Goal])

    def tell(self, what: str, figure: str) -> None:
        self.goals.append(Goal(what, figure))

    def judge(self, what: str, figure: float, most: float, unit: str = "") -> None:
        shown_as = f"{figure:,.3g}{unit}" if figure < 1000 else f"{figure:,.0f}{unit}"
        self.goals.append(Goal(what, shown_as, f"at most {most:,.6g}{unit}", figure <= most))

    def times(self, what: str, taken: Sequence[float], most_p99: float) -> None:
        p50, p99 = percentile(taken, 50), percentile(taken, 99)
        figure = f"p50 {shown(p50)}, p99 {shown(p99)}"
        self.goals.append(Goal(what, figure, f"p99 at most {shown(most_p99)}", p99 <= most_p99))

    @property
    def missed(self) -> int:
        return sum(one.is_met is False for one in self.goals)

    def to_table(self) -> str:
        words = {True: "met", False: "MISSED", None: ""}
        rows = ((one.what, one.figure, one.goal, words[one.is_met]) for one in self.goals)
        return table(("what", "figure", "goal", ""), rows)


@dataclass(frozen=True)
class Usage:
    """What the server and everything below it use."""

    pss: int
    """Bytes, a shared page counted once."""
    server_pss: int
    descriptors: int
    threads: int
    processes: int
    cpu_s: float
    server_cpu_s: float


class Stage:
    """A real server with a scripted model; every session has a folder of its own."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.folder = folder
        self.served = served
        self.pid = served.process.pid
        self._folders = 0

    def connect(self) -> Connection:
        return Connection(self.served.url, self.served.token)

    def workspace(self) -> Path:
        self._folders += 1
        made = self.folder / "workspaces" / str(self._folders)
        made.mkdir(parents=True)
        return made

    async def create(self, connection: Connection, **given: Any) -> str:
        given.setdefault("workspace", str(self.workspace()))
        return (await connection.call("POST", "/api/sessions", given))["id"]

    async def create_many(self, count: int, at_once: int = 8) -> list[str]:
        waiting = iter(range(count))
        made: list[str] = []

        async def some() -> None:
            connection = self.connect()
            made.extend([await self.create(connection) for _ in waiting])
            connection.close()

        await asyncio.gather(*(some() for _ in range(at_once)))
        return made

    async def remove(self, sessions: Iterable[str]) -> None:
        connection = self.connect()
        for one in sessions:
            await connection.call("DELETE", f"/api/sessions/{one}")
        connection.close()

    def usage(self) -> Usage:
        everyone = {self.pid, *descendants(self.pid)}
        return Usage(
            pss=Memory.of(everyone).pss,
            server_pss=Memory.of([self.pid]).pss,
            descriptors=len(os.listdir(f"/proc/{self.pid}/fd")),  # noqa: PTH208 - names only
            threads=threads(self.pid),
            processes=len(everyone),
            cpu_s=sum(map(cpu_s, everyone)),
            server_cpu_s=cpu_s(self.pid),
        )

    async def settle(self, processes: int, descriptors: int = 0, within_s: float = 20.0) -> Usage:
        """Once no more than so many are left, or after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while (now := self.usage()).processes > processes or now.descriptors > descriptors:
                    await asyncio.sleep(0.2)
        return self.usage()


def cpu_s(pid: int) -> float:
    """Of all its threads that are still there, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            total += int(task.read_text().split()[0])
    return total / 1e9


def write_script(path: Path, turns: int = TURNS) -> str:
    """Every turn: a cell, then some text in pieces. Its name as a model."""
    turn = json.dumps(CELL) + "\n" + json.dumps({"text": TEXT}) + "\n"
    path.write_text(turn * turns, encoding="utf-8")
    return f"scripted:{path}"


@contextmanager
def staged() -> Generator[Stage]:
    with TemporaryDirectory(prefix="pinfold-bench-") as place:
        folder = Path(place)
        for name in ("config", "data", "state", "cache"):
            os.environ[f"XDG_{name.upper()}_HOME"] = str(folder / name)
        os.environ |= {"HOME": place, "PINFOLD_SANDBOX_BUILD": "off", "PINFOLD_SANDBOX_WARM": "off"}
        (folder / "workspace").mkdir()
        model = write_script(folder / "turns.jsonl")
        served = begin(folder / "workspace", "--model", model)
        below: set[int] = set()
        try:
            yield Stage(folder, served)
            below = descendants(served.process.pid)
        finally:
            code = end(served)
        left = [pid for pid in below if Path(f"/proc/{pid}").exists()]
        if code or left:
            raise SystemExit(f"the server ended with {code} and left the processes {left}: {''.join(served.said)}")
