"""Opens and ends sessions, and kills the hosts that hold them, hundreds of times: is anything left behind?

    ./.venv/bin/python bench/cycles.py [--cycles 200] [--seed N]

Hosts are processes of their own. One cycle opens a session that starts daemons of their own session inside, then
ends it: it is closed, its interpreter is killed first, or `kill -9` takes the host at a moment chosen at random,
while it opens the session or after. Everything a host may leave is then looked for: processes, mounts, cgroups,
sockets, temporary folders. What only `pinfold cleanup` removes is counted before and after it.
"""

from __future__ import annotations

import argparse
import glob
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sandbox_suite.figures import table
from bench.sandbox_suite.processes import is_alive, marked

from pinfold.sandbox import open_session
from pinfold.sandbox.providers.namespaces import Namespaces

GUEST = str(Path(__file__).resolve().parents[1] / "src" / "pinfold" / "guest")
CGROUPS = "/sys/fs/cgroup"
SETTLE_S = 5.0
"""For the kernel to end what it must; anything there after that is left behind."""
HOST_S = 60.0
DAEMONS = """
import subprocess
for _ in range(2):
    subprocess.Popen(["sleep", "{mark}"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
"""
ENDS = ("closed", "interpreter killed", "host killed while opening", "host killed later")
PER_HOST = 10
"""Cycles of one host that is not killed."""


async def host(mark: str) -> None:
    """One cycle for each line of stdin, which says how it ends; a line of stdout says when there is something to kill."""
    provider = Namespaces()
    for line in sys.stdin:
        print("opening", flush=True)
        async with open_session(sandbox=provider) as session:
            outcome = await session.run(DAEMONS.format(mark=mark))
            assert outcome.status == "ok", outcome
            print("open", flush=True)
            if line.strip() == "interpreter killed":
                outcome = await session.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
                assert outcome.status == "killed", outcome
            elif line.strip() == "host killed later":
                await session.run("while True: pass")
        print("ended", flush=True)


@dataclass(slots=True)
class Host:
    process: subprocess.Popen[str]
    used: int = 0

    @classmethod
    def start(cls, mark: str, temporary: Path) -> Host:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        argv = [sys.executable, __file__, "--host", mark]
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=environment))

    def told(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hears(self, line: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        if said != line:
            raise RuntimeError(f"the host said {said!r}, not {line!r}")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def leave(self) -> None:
        self.process.communicate(timeout=HOST_S)


def cycle(one: Host, end: str, chance: random.Random) -> None:
    one.told(end)
    one.hears("opening")
    if end == "host killed while opening":
        time.sleep(chance.uniform(0, 0.3))
        one.kill()
        return
    one.hears("open")
    if end == "host killed later":
        time.sleep(chance.uniform(0, 0.02))
        one.kill()
        return
    one.hears("ended")
    one.used += 1


@dataclass(slots=True)
class Leftovers:
    """What is there of ours, by kind. `mark` is in the command line of every daemon, `temporary` is the hosts' TMPDIR."""

    mark: str
    temporary: Path
    cgroups_before: set[str]
    mounts_before: set[str]

    def now(self) -> dict[str, list[str]]:
        return {
            "processes": [str(pid) for pid in {*marked(GUEST), *marked(f"sleep\0{self.mark}")}],
            "mounts": [line for line in _mounts() - self.mounts_before if self._is_ours(line)],
            "cgroups": [path for path in _cgroups() - self.cgroups_before if _is_abandoned(path)],
            "sockets": [line for line in _lines("/proc/net/unix") if str(self.temporary) in line],
            "temporary folders": [path.name for path in self.temporary.iterdir()],
        }

    def _is_ours(self, line: str) -> bool:
        return "pinfold" in line or str(self.temporary) in line

    def settled(self) -> dict[str, list[str]]:
        """Once nothing but folders is left, or it took too long."""
        end = time.monotonic() + SETTLE_S
        while True:
            found = self.now()
            if time.monotonic() > end or not any(found[kind] for kind in found if kind != "temporary folders"):
                return found
            time.sleep(0.02)


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()


def _mounts() -> set[str]:
    return set(_lines("/proc/self/mountinfo"))


def _cgroups() -> set[str]:
    return {path for depth in ("*", "*/*", "*/*/*") for path in glob.glob(f"{CGROUPS}/{depth}/pinfold*")}  # noqa: PTH207 - it bears that folders vanish


def _is_abandoned(group: str) -> bool:
    """Nothing is in it, and no process it is named after lives; any other may be at work for somebody else."""
    named = [int(part) for part in Path(group).name.split("-") if part.isdigit()]
    with suppress(OSError):
        empty = not Path(group, "cgroup.procs").read_text(encoding="ascii").strip()
        return empty and not any(is_alive(pid) for pid in named)
    return False


def run_all(cycles: int, seed: int) -> bool:
    chance = random.Random(seed)
    mark = f"31{secrets.randbelow(10**6):06d}.5"
    if marked(GUEST):
        print("sessions of this checkout run already; end them first", file=sys.stderr)
        return False
    with tempfile.TemporaryDirectory(prefix="bench-cycles-") as name:
        left = Leftovers(mark, Path(name), _cgroups(), _mounts())
        done: Counter[str] = Counter()
        stray: Counter[str] = Counter()
        shown: list[str] = []
        one: Host | None = None
        ends = [ENDS[number % len(ENDS)] for number in range(cycles)]
        chance.shuffle(ends)
        for number, end in enumerate(ends):
            one = one or Host.start(mark, left.temporary)
            cycle(one, end, chance)
            if number % 20 == 0:
                print(f"... {number} of {cycles}", file=sys.stderr, flush=True)
            done[end] += 1
            if end.startswith("host killed") or one.used >= PER_HOST:
                if not end.startswith("host killed"):
                    one.leave()
                one = None
                found = left.settled()
                for kind, items in found.items():
                    if kind != "temporary folders" and items:
                        stray[kind] += len(items)
                        shown.append(f"cycle {number}, {end}: {kind}: {items[:3]}")
                        _end_processes(found["processes"])
        if one is not None:
            one.leave()
        return report(done, stray, shown, left)


def report(done: Counter[str], stray: Counter[str], shown: list[str], left: Leftovers) -> bool:
    found = left.settled()
    folders = len(found["temporary folders"])
    cleaned = cleanup(left)
    rows = [[kind, str(stray[kind] + len(items))] for kind, items in found.items() if kind != "temporary folders"]
    rows.append(["temporary folders of killed hosts", f"{folders} of {sum(done[end] for end in ENDS[2:])}"])
    rows.append(["the same after `pinfold cleanup`", cleaned])
    print(table(["cycles", "n"], [[end, str(count)] for end, count in done.items()]))
    print()
    print(table(["left behind", "n"], rows))
    print("\n".join(shown[:20]))
    clean = not stray and not any(found[kind] for kind in found if kind != "temporary folders")
    return clean and cleaned == "0"


def cleanup(left: Leftovers) -> str:
    command = [sys.executable, "-m", "pinfold", "cleanup"]
    environment = {**os.environ, "TMPDIR": str(left.temporary)}
    if subprocess.run([*command, "--help"], capture_output=True, check=False).returncode != 0:
        return "not tried: there is no such command yet"
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return str(len(left.now()["temporary folders"]))


def _end_processes(found: list[str]) -> None:
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def main() -> int:
    arguments = argparse.ArgumentParser(description="Create and kill, and look for what is left")
    arguments.add_argument("--cycles", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=20261115)
    arguments.add_argument("--host", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.host is not None:
        anyio.run(host, given.host)
        return 0
    begun = time.monotonic()
    clean = run_all(given.cycles, given.seed)
    print(f"{'nothing is left' if clean else 'SOMETHING IS LEFT'}, {time.monotonic() - begun:.0f} s")
    return not clean


if __name__ == "__main__":
    sys.exit(main())
