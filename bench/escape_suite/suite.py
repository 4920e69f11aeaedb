"""Starts cages, two at a time, and gathers what they report. Itself outside, and runs nothing hostile."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from bench.escape_suite import cage
from bench.escape_suite.program import Benign, Hostile, Level
from bench.escape_suite.runs import CANARY

INSIDE = Path(__file__).with_name("inside.py")
LIMIT_S = 900
AT_ONCE = 2


class Report(msgspec.Struct, frozen=True):
    """What came of one program."""

    name: str
    text: str
    took_s: float
    breaches: list[str] = []
    status: list[str] = []
    fine: bool = False

    def proves(self, program: Hostile) -> bool:
        return any(breach.startswith(program.shows) for breach in self.breaches)


_report = msgspec.json.Decoder(Report)


class CageBroke(Exception):
    """A cage did not report on every program; the text says what it said instead."""


@dataclass(frozen=True, slots=True)
class Job:
    kind: cage.Kind
    layers: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    python: Path
    uid: int = 1234
    level: Level = "namespaces"

    def product(self, kind: cage.Kind, programs: Iterable[Hostile | Benign]) -> dict[str, Report]:
        """How they fare in the real thing."""
        names = [program.name for program in programs]
        jobs = [Job(kind, (), tuple(names[start::AT_ONCE])) for start in range(AT_ONCE)]
        return dict(self._all(jobs))

    def proofs(self, programs: Iterable[Hostile]) -> dict[str, Report]:
        """How they fare each in the weakened build it names."""
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for program in programs:
            groups[program.without].append(program.name)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [Job("mapped", layers, tuple(names)) for layers, names in groups.items()]
            answers = pool.map(self._reports_if_it_starts, jobs)
            return {name: report for reports in answers for name, report in reports.items()}

    def with_one_more_layer(self, programs: Iterable[Hostile]) -> dict[tuple[str, str], Report]:
        """How they fare when one of the layers is put back: each should hold. By program and that layer."""
        groups: dict[tuple[tuple[str, ...], str], list[str]] = defaultdict(list)
        for program in programs:
            for layer in program.without if len(program.without) > 1 else ():
                rest = tuple(other for other in program.without if other != layer)
                groups[rest, layer].append(program.name)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = [Job("mapped", rest, tuple(names)) for (rest, _), names in groups.items()]
            answers = pool.map(self._reports_if_it_starts, jobs)
            return {
                (name, layer): report
                for (_, layer), reports in zip(groups, answers, strict=True)
                for name, report in reports.items()
            }

    def can_run(self, program: Benign) -> bool:
        """Whether what it needs is installed."""
        if not all(shutil.which(name, path="/usr/bin:/bin") for name in program.programs):
            return False
        look = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
        if not program.modules:
            return True
        return subprocess.run([self.python, "-c", look, *program.modules], check=False).returncode == 0

    def _all(self, jobs: Sequence[Job]) -> Iterable[tuple[str, Report]]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for reports in pool.map(self._reports, [job for job in jobs if job.names]):
                yield from reports.items()

    def _reports_if_it_starts(self, job: Job) -> dict[str, Report]:
        """A build that cannot start a session holds everything."""
        try:
            return self._reports(job)
        except CageBroke as broke:
            return {name: Report(name=name, text=str(broke), took_s=0) for name in job.names}

    def _reports(self, job: Job) -> dict[str, Report]:
        orders = {
            "kind": job.kind,
            "level": self.level,
            "layers": job.layers,
            "names": job.names,
            "python": str(self.python),
            "uid": self.uid,
        }
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            CANARY: secrets.token_hex(12),
            cage.HOSTNAME: f"h{secrets.token_hex(8)}",
        }
        with tempfile.TemporaryFile("w+") as paper:
            json.dump(orders, paper)
            paper.flush()
            command = [sys.executable, str(INSIDE), "enter"]
            try:
                done = subprocess.run(
                    command, stdin=paper, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired as late:
                raise CageBroke(f"a cage {job.layers} took more than {LIMIT_S} s") from late
        reports = [_report.decode(line) for line in done.stdout.splitlines()]
        if done.returncode != 0 or {report.name for report in reports} != set(job.names):
            said = done.stderr if len(done.stderr) < 3000 else f"{done.stderr[:1500]}\n...\n{done.stderr[-1500:]}"
            raise CageBroke(f"a cage without {job.layers or 'nothing'} ended early:\n{said}")
        return {report.name: report for report in reports}


def kind_here(*, as_user: bool) -> cage.Kind:
    return "user" if as_user or os.geteuid() != 0 else "root"
