"""Finds lines by a regular expression: with ripgrep if installed, else in Python, with results of the same form."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from shutil import which
from types import FrameType
from typing import IO, Any, NoReturn

from .program_io import Refused, display_path
from .texts import SKIPPED, describe_missing, resolve_path

LINES = 1000
"""The most results that are returned."""
LINE = 300
"""The most characters of a line that are returned."""
SEARCH_S = 20.0
LOOK = 8192
LONG = 1 << 20
"""The most bytes of a line that are searched."""


class _OutOfTime(Exception):
    """The search has used up its time."""


def grep(pattern: str, path: str, output_mode: str, ripgrep: bool = True) -> dict[str, Any]:
    if not pattern:
        raise Refused("pattern is empty; give a regular expression")
    if not os.path.lexists(resolve_path(path)):
        raise Refused(describe_missing(path))
    results = _Results(output_mode)
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    program = which("rg", path=os.pathsep.join(folders)) if ripgrep else None
    previous = signal.signal(signal.SIGALRM, _on_alarm)
    signal.setitimer(signal.ITIMER_REAL, SEARCH_S)
    try:
        if not program or not _with_ripgrep(program, pattern, path, results):
            _search_files(pattern, path, results)
    except _OutOfTime:
        results.over = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    return {"text": results.format_results(pattern, path), "count": results.count}


def _on_alarm(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _OutOfTime


class _Results:
    """The matches, in the form they are returned in."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._lines: list[str] = []
        self._file = ""
        self._in_file = 0
        self.count = 0
        self.over = False

    @property
    def full(self) -> bool:
        return len(self._lines) >= LINES

    @property
    def first_only(self) -> bool:
        return self._mode == "files"

    def add(self, path: str, number: int, line: str) -> None:
        if path != self._file:
            self._close()
            self._file = path
        self.count += 1
        self._in_file += 1
        if self._mode == "lines":
            text = line.rstrip("\r\n")
            self._lines.append(f"{path}:{number}:{text if len(text) <= LINE else f'{text[:LINE]}...'}")

    def _close(self) -> None:
        if self._file and self._mode == "files":
            self._lines.append(self._file)
        elif self._file and self._mode == "count":
            self._lines.append(f"{self._file}:{self._in_file}")
        self._in_file = 0

    def format_results(self, pattern: str, path: str) -> str:
        self._close()
        lines = self._lines[:LINES]
        if self.over:
            lines.append(f"[stopped after {SEARCH_S:g} s: there may be more; try a narrower path or pattern]")
        elif len(self._lines) >= LINES:
            lines.append(f"[the first {LINES:,}; there may be more: try a narrower path or pattern]")
        if not lines:
            return f"[no line in {display_path(resolve_path(path))} matches {pattern}]"
        return "\n".join(lines)


def _with_ripgrep(program: str, pattern: str, path: str, results: _Results) -> bool:
    """Search with ripgrep. Returns False if it does not support the expression."""
    from subprocess import DEVNULL, PIPE, Popen

    top = resolve_path(path)
    here = os.getcwd()
    within = top == here or top.startswith(f"{here}/")
    # Relative names, or rg would not read the ignore files of the folders above the path.
    target = f"./{os.path.relpath(top, here)}" if within else top
    options = ["--no-config", "--line-number", "--no-heading", "--with-filename", "--null", "--color=never"]
    options += ["--sort=path", "--max-columns=0", "--no-messages"]
    options += ["--max-count=1"] if results.first_only else []
    options += [f"--glob=!{name}" for name in sorted(SKIPPED) if name not in top.split("/")]
    process = Popen([program, *options, f"--regexp={pattern}", "--", target], stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    assert process.stdout
    assert process.stderr
    try:
        for path_found, number, line in _parse_matches(process.stdout):
            results.add(display_path(os.path.normpath(os.path.join(here, path_found))), number, line)
            if results.full:
                break
        else:
            said = process.stderr.read(LOOK)
            return process.wait() != 2 or b"regex" not in said
    finally:
        process.kill()
        process.communicate()
    return True


def _parse_matches(stream: IO[bytes]) -> Iterator[tuple[str, int, str]]:
    while line := stream.readline(LONG):
        while not line.endswith(b"\n") and (rest := stream.readline(LONG)):
            line = line[: LONG // 2] + rest[-1:]
        name, _, rest = line.partition(b"\0")
        number, _, text = rest.partition(b":")
        if number.isdigit():
            yield os.fsdecode(name), int(number), text.decode("utf-8", "replace")


def _search_files(pattern: str, path: str, results: _Results) -> None:
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        at = f" at character {error.pos}" if isinstance(error, re.error) and error.pos is not None else ""
        words = getattr(error, "msg", str(error))
        raise Refused(
            f"{pattern!r} is not a regular expression: {words}{at}; put a backslash before characters meant literally"
        ) from error
    top = resolve_path(path)
    for full in [top] if not os.path.isdir(top) else _texts(top):
        _search(expression, full, results)
        if results.full:
            return


def _texts(top: str) -> Iterator[str]:
    """Yield files in the order of their paths; no hidden ones, and none in SKIPPED folders."""
    try:
        entries = sorted(os.scandir(top), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _texts(entry.path)
        elif entry.is_file(follow_symlinks=False):
            yield entry.path


def _search(expression: re.Pattern[str], full: str, results: _Results) -> None:
    name = display_path(full)
    with suppress(OSError), open(full, "rb") as file:
        if b"\0" in file.read(LOOK):
            return
        file.seek(0)
        number = 0
        while line := file.readline(LONG):
            number += 1
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if expression.search(text):
                results.add(name, number, text)
                if results.full or results.first_only:
                    return
            while not line.endswith(b"\n") and (line := file.readline(LONG)):
                pass


OPERATIONS = {"grep": grep}
