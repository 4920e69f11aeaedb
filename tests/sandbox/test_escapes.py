"""Hostile programs in real sessions, a share of them proven on weakened builds. bench/escape.py runs them all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench.escape_suite.cage import Kind, Outside, refuse_outside
from bench.escape_suite.calls import NUMBERS, called
from bench.escape_suite.catalogue import BENIGN, HOSTILE
from bench.escape_suite.program import Level, Planting
from bench.escape_suite.suite import INSIDE, Suite

from pinfold.sandbox.environment import default_python

pytestmark = [
    pytest.mark.safety,
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
SUITE = Suite(Path(os.environ.get("PINFOLD_TEST_DATA_PYTHON") or default_python() or sys.executable))
PLANTING = [program for program in HOSTILE if isinstance(program, Planting)]
ALL = [program for program in HOSTILE if not program.out_of_place and program not in PLANTING]
PROVEN = (
    "filter",
    "capabilities",
    "own-root",
    "read-only landlock",
    "pid-namespace",
    "net-namespace",
    "descriptors",
    "masks",
    "protection keeper",
    "keeper",
    "memory-bound",
    "watch-bound",
    "checked-replies",
    "secret-numbers",
)
"""Builds tried here; a build costs more time than a program."""
PLANTED = (
    "planting: a gitlink, added",
    "planting: a git folder's shape by hand",
    "planting: renames onto commondir",
    "planting: a line that imports",
    "planting: the file .vscode/tasks.json",
)
"""A share of the planting family, one of each way."""
KEPT = ("project: a repository with a commit", "project: a makefile beside an editor's settings")
KINDS: list[Kind] = ["root", "user"] if os.geteuid() == 0 else ["user"]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_gets_out_and_ordinary_work_goes_on(kind: Kind) -> None:
    share = 5 if kind == "root" else 11
    benign = [program for program in BENIGN if not program.modules and not program.ground][:: share * 2]
    hostile = ALL[::share]
    reports = SUITE.product(kind, [*hostile, *benign])
    out = {program.name: reports[program.name].breaches for program in hostile}
    assert {name: breaches for name, breaches in out.items() if breaches} == {}
    assert [program.name for program in hostile if "unavailable" in reports[program.name].status] == []
    assert [reports[program.name] for program in benign if not reports[program.name].fine] == []


def test_the_same_programs_get_out_where_a_layer_is_missing() -> None:
    by_build = [[program for program in ALL if " ".join(program.without) == build] for build in PROVEN]
    programs = [program for build in by_build for program in build[::12]]
    assert {" ".join(program.without) for program in programs} == set(PROVEN)
    reports = SUITE.proofs(programs)
    unproven = [reports[program.name] for program in programs if not reports[program.name].proves(program)]
    assert unproven == []


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_planted_that_runs_later_or_stays_without_a_word(kind: Kind, level: Level) -> None:
    hostile = [program for program in PLANTING if program.name in PLANTED]
    benign = [program for program in BENIGN if program.name in KEPT]
    suite = replace(SUITE, python=Path(sys.executable), level=level)
    reports = suite.product(kind, [*hostile, *benign])
    assert [reports[name] for name in PLANTED if reports[name].breaches] == []
    assert [reports[name] for name in PLANTED if "unavailable" in reports[name].status] == []
    assert [reports[name] for name in KEPT if not reports[name].fine] == []


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_the_same_is_planted_and_runs_where_nobody_looks_after_it(level: Level) -> None:
    suite = replace(SUITE, python=Path(sys.executable), level=level)
    programs = [program for program in PLANTING if program.name in PLANTED]
    reports = suite.proofs(programs)
    unproven = [reports[program.name] for program in programs if not reports[program.name].proves(program)]
    assert (len(programs), unproven) == (len(PLANTED), [])


def test_every_category_is_there_and_every_program_has_a_name_of_its_own() -> None:
    assert len({program.name for program in [*HOSTILE, *BENIGN]}) == len(HOSTILE) + len(BENIGN)
    assert len(ALL) >= 150
    assert len(PLANTING) >= 40
    assert {program.category for program in [*ALL, *PLANTING]} == {program.category for program in HOSTILE}
    assert len(BENIGN) >= 60


def test_a_program_is_counted_out_only_for_a_call_that_is_older_than_the_machine() -> None:
    names = {name for program in HOSTILE for name in called(program.source)}
    assert names - NUMBERS["x86_64"].keys() == set()
    assert names - NUMBERS["aarch64"].keys() == {"open", "creat", "mknod", "modify_ldt", "sysfs", "ustat"}
    # By number a program would mean another call on another machine.
    assert [p.name for p in HOSTILE if re.search(r"\b(syscall|reaches)\((?!')", p.source)] == []


def test_hostile_programs_refuse_to_run_outside_namespaces_of_their_own() -> None:
    with pytest.raises(Outside, match="shared: mnt, pid, net, ipc, uts, cgroup"):
        refuse_outside()
    done = subprocess.run([sys.executable, str(INSIDE), "work"], capture_output=True, text=True, check=False)
    assert "hostile programs run only in namespaces of their own" in done.stderr
    assert (done.returncode, done.stdout) == (1, "")
