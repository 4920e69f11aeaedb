"""What a hostile and what a benign program is. Data only; running them is `runs.py`'s."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

from bench.escape_suite.calls import called

from pinfold.sandbox import Limits

ROOMY = Limits(cell_s=20, memory_bytes=2 << 30, stream_bytes=8 << 20)

PRELUDE = """
import ctypes, errno, json, os, socket, subprocess, sys, time
bait = json.loads({bait!r})
numbers = {numbers!r}
libc = ctypes.CDLL(None, use_errno=True)
def escaped():
    print(bait["word"][::-1], flush=True)
def syscall(name, *arguments):
    ctypes.set_errno(0)
    wide = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return libc.syscall(ctypes.c_long(numbers[name]), *wide), errno.errorcode.get(ctypes.get_errno(), "")
def reaches(name, *arguments):
    answer = syscall(name, *arguments)
    print(answer)
    if answer[1] not in ("EPERM", "ENOSYS", "EAFNOSUPPORT"):
        escaped()
def tried(attempt):
    try:
        return attempt()
    except Exception as error:
        print(type(error).__name__, error)
"""
"""`escaped` says a word backwards: no source and no error text that quotes it can hold it that way round."""

Level: TypeAlias = Literal["namespaces", "landlock"]
Ground: TypeAlias = Literal["repository", "folder", "subfolder", "mounted"]
"""What the workspace is: a repository, no part of one, a folder in one, or a folder beside one that is mounted."""
Step: TypeAlias = Literal["undo", "redo", "second session"]
RAN = "/srv/ran"
"""Made by whatever was planted, when it is obeyed. No session reaches it."""
TOOLS = f"""
import os, shutil, subprocess, sys, time
from pathlib import Path
RUN = "touch {RAN}"
SCRIPT = f"#!/bin/sh\\n{{RUN}}\\n"
PYTHON = "import pathlib; pathlib.Path('{RAN}').touch()\\n"
WATCH = f"[core]\\n\\tfsmonitor = {{RUN}}\\n"
SITE = f".venv/lib/python3.{{sys.version_info[1]}}/site-packages"
os.environ.update(GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b")
def put(path, text, mode=0o644):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
def swap(path, text, mode=0o644):
    put(f"{{path}}.{{os.getpid()}}", text, mode)
    os.replace(f"{{path}}.{{os.getpid()}}", path)
def add(path, text):
    with open(path, "a") as file: file.write(text)
def sh(command):
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
def repo(folder, config="", file="f"):
    sh(f"git init -q '{{folder}}'; cd '{{folder}}'; echo x > {{file}}; git add -A; git commit -qm one")
    add(f"{{folder}}/.git/config", config)
def later(code):
    # A process that outlives the cell; it has begun when this returns.
    read, write = os.pipe()
    begin = f"TOOLS = {{TOOLS!r}}\\nexec(TOOLS)\\nos.close({{write}})\\n"
    subprocess.Popen([sys.executable, "-c", begin + code], start_new_session=True, pass_fds=[write])
    os.close(write)
    os.read(read, 1)
"""
"""What every planting program begins with."""


def with_tools(source: str) -> str:
    return f"TOOLS = {TOOLS!r}\nexec(TOOLS)\n{source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A cell that tries to get out."""

    name: str
    category: str
    source: str
    without: tuple[str, ...]
    """The layers that must be gone for it to succeed; the smallest such set we know."""
    shows: str
    """Which breach the scene sees when it succeeds; see `scene.Scene.breaches`."""
    then: str = ""
    """A second, innocent cell, for what is to be led astray by the first."""
    limits: Limits = ROOMY
    timeout_s: float = 15.0
    writable: bool = True
    levels: tuple[Level, ...] = ("namespaces",)
    """Where it means something."""

    @property
    def out_of_place(self) -> str:
        """Why it means nothing on this machine, where it then counts for nothing; empty if it does."""
        lacking = [name for name, number in called(self.source).items() if number is None]
        return f"{platform.machine()} has no system call {' or '.join(lacking)}" if lacking else ""

    def cell(self, bait: Mapping[str, object]) -> str:
        return PRELUDE.format(bait=json.dumps(bait), numbers=called(self.source)) + self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Planting(Hostile):
    """A program that leaves something for the user's own tools to obey after the session; see `project.py`."""

    plants: tuple[str, ...]
    """Where, in the workspace. One of them, or a folder above it, must be named to the user if it stays."""
    user: str = ""
    """What the user runs later, by a shell in the workspace. Empty if that tool is not on this machine."""
    ground: Ground = "repository"
    before: str = ""
    """What the user did first, by a shell in the workspace."""
    by: Literal["cell", "shell"] = "cell"
    """How `source` and `then` are run."""
    told_is_enough: bool = False
    """The tool asks its user first, or nobody runs it unasked: it may stay where the user is told."""
    idle_s: float = 0.0
    """How long the session stays open after the last cell."""
    host: tuple[Step, ...] = ()
    """What the user does after the last cell. A second session is open in the folder until the first has ended."""


class Special(TypedDict, total=False):
    """What is not usual about a planting program: fields of `Planting`, and `tool`, the program that the user runs."""

    tool: str
    without: str
    then: str
    ground: Ground
    before: str
    by: Literal["cell", "shell"]
    told_is_enough: bool
    host: tuple[Step, ...]
    idle_s: float
    timeout_s: float
    levels: tuple[Level, ...]


Row: TypeAlias = tuple[str, str, str] | tuple[str, str, str, Special]
"""A planting program: its source, what the user runs, the paths, and what is special."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benign:
    """A cell that must work: it ends without an error and prints exactly `prints` last."""

    name: str
    source: str
    prints: str = "fine"
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    ground: Ground | None = None
    """The user's project it works in; an empty folder if None."""
    after: str = ""
    """What must succeed after the session, by a shell in the project."""
    tells: str = ""
    """A path that must be named to the user."""

    @property
    def levels(self) -> tuple[Level, ...]:
        return ("namespaces", "landlock") if self.ground else ("namespaces",)


def hostile(
    category: str,
    without: str,
    shows: str,
    sources: Mapping[str, str],
    *,
    limits: Limits = ROOMY,
    timeout_s: float = 15.0,
    then: str = "",
    writable: bool = True,
) -> Iterable[Hostile]:
    """Programs that differ in nothing but name and source."""
    for name, source in sources.items():
        yield Hostile(
            name=f"{category}: {name}",
            category=category,
            source=source,
            without=tuple(without.split()),
            shows=shows,
            then=then,
            limits=limits,
            timeout_s=timeout_s,
            writable=writable,
        )
