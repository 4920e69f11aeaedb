"""Cells that ruin everything: what ends the interpreter is rolled back, the rest is undone. Every variable, every file."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import anyio
from bench.sandbox_suite import environment
from bench.sandbox_suite.figures import shown
from bench.undo_suite.live import digests, measured, ran, temporary
from bench.undo_suite.report import Asked, Report

from pinfold.sandbox import Limits, Session, open_session
from pinfold.sandbox.providers.namespaces import Namespaces

STATE = """
import numpy, pandas, re, collections
array = numpy.random.default_rng(1).random((1000, 1000))
frame = pandas.DataFrame({'key': numpy.arange(200_000) % 97, 'value': numpy.random.default_rng(2).random(200_000),
                          'name': ['row %d' % n for n in range(200_000)]})
view = frame.value
words = {number: str(number) for number in range(100_000)}
deep = {'list': [1, [2, {3}]], 'same': words}
counts = collections.Counter('abracadabra')
pattern = re.compile('a+')
def double(x): return 2 * x
"""
SPOIL = """
import os
array[:] = 0
frame.drop(columns='value', inplace=True)
words.clear(); deep['list'].append('wrong'); del counts
for folder, _, names in os.walk('.'):
    for name in names[::2]: os.unlink(os.path.join(folder, name))
import pathlib
written = pathlib.Path('data/new.txt').write_text('wrong')
"""
AUTOMATIC = {
    "a cell that cannot be interrupted": "sum(range(10**15))",
    "os._exit(1)": "import os\nos._exit(1)",
    "a segmentation fault through ctypes": "import ctypes\nctypes.string_at(0)",
    "an allocation of 20 GB, page by page": "import mmap\nheld = mmap.mmap(-1, 20 << 30)\nfor at in range(0, 20 << 30, 4096): held[at] = 1",
}
AT_ONCE = "held = numpy.ones(20 << 27)"
UNDONE = {
    "df.drop(..., inplace=True)": "frame.drop(columns=['value', 'key'], inplace=True); frame.drop(frame.index[::2], inplace=True)",
    "del of everything": "for name in [name for name in globals() if not name.startswith('_')]: del globals()[name]\ndel name",
    "rm -rf of the workspace": "import subprocess\nsubprocess.run('rm -rf -- * .[!.]*', shell=True, check=True)",
    "all of it, and new files": SPOIL,
}
TIMEOUT_S = 0.5
LIMITS = Limits(memory_bytes=4 << 30)


def make_files(workspace: Path) -> None:
    for folder in range(10):
        place = workspace / "data" / f"part {folder}"
        place.mkdir(parents=True)
        for number in range(20):
            (place / f"{number}.bin").write_bytes(os.urandom(1 + number * 3000))
    (workspace / ".gitignore").write_text("ignored/\n", encoding="utf-8")
    (workspace / "ignored").mkdir()
    (workspace / "ignored" / "cache").write_bytes(os.urandom(5000))
    (workspace / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (workspace / "run.sh").chmod(0o750)
    (workspace / "link").symlink_to("data/part 3/7.bin")
    (workspace / "empty").mkdir()


def files(workspace: Path) -> dict[str, str]:
    """Everything in it: kind, mode, and content or target."""
    return {str(path.relative_to(workspace)): _entry(path) for path in workspace.rglob("*")}


def _entry(path: Path) -> str:
    status = path.lstat()
    if path.is_symlink():
        return f"link to {path.readlink()}"
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return f"{stat.S_IMODE(status.st_mode):o} {content}"


def measure(report: Report, _asked: Asked) -> None:
    anyio.run(_measure, report)


async def _measure(report: Report) -> None:
    with temporary() as workspace:
        make_files(workspace)
        provider = Namespaces(environment.PYTHON, pool=0)
        async with open_session(workspace, provider, limits=LIMITS) as session:
            await ran(session, STATE)
            for what, code in AUTOMATIC.items():
                await _rolled_back(session, workspace, report, what, code)
            await _refused(session, workspace, report)
            for what, code in UNDONE.items():
                await _undone(session, workspace, report, what, code)


async def _rolled_back(session: Session, workspace: Path, report: Report, what: str, code: str) -> None:
    names, tree = await digests(session), files(workspace)
    outcome = await session.run(SPOIL + code, timeout_s=TIMEOUT_S if "while True" in code else None)
    took_s = outcome.duration_s
    if not outcome.rolled_back:
        report.goal(what, f"{outcome.status}, not rolled back", "as before, by itself", met=False)
        await session.undo()
        return
    same, got = await _compared(session, workspace, names, tree)
    report.goal(what, f"{outcome.status} after {shown(took_s)}; {got}", "as before, by itself", met=same)


async def _refused(session: Session, workspace: Path, report: Report) -> None:
    """More than there is, in one piece, is an exception like any other: what the cell did before it stays."""
    names, tree = await digests(session), files(workspace)
    outcome = await session.run(AT_ONCE)
    same, got = await _compared(session, workspace, names, tree)
    how = "MemoryError" if "MemoryError" in (outcome.error or "") else outcome.status
    report.goal(
        "an allocation of 20 GB, in one piece, alone in its cell", f"{how}; {got}", "as before, by itself", met=same
    )
    outcome = await session.run(SPOIL + AT_ONCE)
    what = "the same at the end of a cell that spoils everything"
    how = "rolled back" if outcome.rolled_back else "not rolled back"
    report.goal(what, f"{outcome.status}, {how}", "as before, by itself", met=outcome.rolled_back)
    if not outcome.rolled_back:
        await session.undo()


async def _undone(session: Session, workspace: Path, report: Report, what: str, code: str) -> None:
    names, tree = await digests(session), files(workspace)
    await ran(session, code)
    hurt = await digests(session) != names or files(workspace) != tree
    await session.undo()  # of that look at it
    took_s = await measured(session.undo)
    same, got = await _compared(session, workspace, names, tree)
    report.goal(what, f"undone in {shown(took_s)}; {got}", "as before, by undo()", met=same and hurt)


async def _compared(session: Session, workspace: Path, names: dict[str, str], tree: dict[str, str]) -> tuple[bool, str]:
    now, there = await digests(session), files(workspace)
    equal = sum(now.get(name) == digest for name, digest in names.items())
    kept = sum(there.get(path) == entry for path, entry in tree.items())
    more = len(now.keys() - names.keys()) + len(there.keys() - tree.keys())
    got = f"{equal} of {len(names)} variables, {kept} of {len(tree)} files" + (f", {more} too many" if more else "")
    return (now, there) == (names, tree), got
