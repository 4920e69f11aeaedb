"""Finds files by name and by content, and measures what lies below a path. Changes nothing."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .program_io import Refused, display_path
from .texts import SKIPPED, describe_missing, resolve_path

NAMES = 1000
"""The most paths in a result."""
WALK_S = 15.0
MEASURE_S = 2.0
MEASURED = 200_000
BRACES = 64


def glob(pattern: str, path: str) -> dict[str, Any]:
    if not pattern.strip():
        raise Refused("pattern is empty; **/*.py finds every Python file")
    top = resolve_path("/" if pattern.startswith("/") else path)
    if not os.path.isdir(top):
        raise Refused(
            describe_missing(path) if not os.path.exists(top) else f"{display_path(path)} is a file, not a folder"
        )
    until = time.monotonic() + WALK_S
    names = sorted({name for one in _expand_braces(pattern) for name in _Walk(one, until).below(top)})
    whole = time.monotonic() < until
    lines = [
        f"{display_path(name)}/" if os.path.isdir(name) and not os.path.islink(name) else display_path(name)
        for name in names[:NAMES]
    ]
    if len(names) > NAMES:
        lines.append(f"[{NAMES:,} of {len(names):,}; narrow the pattern to see the others]")
    if not whole:
        lines.append(f"[stopped after {WALK_S:g} s: there may be more]")
    return {"text": "\n".join(lines) if lines else f"[nothing matches {pattern}]", "count": len(names)}


def _expand_braces(pattern: str) -> list[str]:
    """Return `a.b` and `a.c` for `a.{b,c}`."""
    made = [pattern]
    while len(made) < BRACES:
        found = next(filter(None, (re.search(r"\{([^{}]*,[^{}]*)\}", one) for one in made)), None)
        if found is None:
            break
        made.remove(found.string)
        made += (found.string[: found.start()] + part + found.string[found.end() :] for part in found[1].split(","))
    return made


class _Walk:
    """Matches a pattern part by part, each one folder further down."""

    def __init__(self, pattern: str, until: float) -> None:
        self._parts = [part for part in pattern.split("/") if part not in ("", ".")]
        self._until = until
        self._seen: set[tuple[str, int]] = set()

    def below(self, folder: str, at: int = 0) -> Iterator[str]:
        if (folder, at) in self._seen or time.monotonic() > self._until:
            return
        self._seen.add((folder, at))
        if at == len(self._parts):
            return
        part, last = self._parts[at], at == len(self._parts) - 1
        if part == "**":
            yield from self._deep(folder, at, last)
        elif part == ".." or not re.search(r"[*?\[]", part):
            full = os.path.normpath(os.path.join(folder, part))
            if last and os.path.lexists(full):
                yield full
            elif not last and os.path.isdir(full):
                yield from self.below(full, at + 1)
        else:
            matches = re.compile(fnmatch.translate(part)).match
            for entry in self._entries(folder, part):
                if matches(entry.name):
                    if last:
                        yield entry.path
                    elif entry.is_dir():
                        yield from self.below(entry.path, at + 1)

    def _deep(self, folder: str, at: int, last: bool) -> Iterator[str]:
        if not last:
            yield from self.below(folder, at + 1)
        for entry in self._entries(folder, "*"):
            if last:
                yield entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from self.below(entry.path, at)

    def _entries(self, folder: str, part: str) -> list[os.DirEntry[str]]:
        """List a folder: hidden entries only if the part begins with a dot, those in SKIPPED only if it names them."""
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:
            return []
        return [
            entry
            for entry in entries
            if (part.startswith(".") or not entry.name.startswith("."))
            and (part == entry.name or entry.name not in SKIPPED)
        ]


def measure(paths: list[str]) -> dict[str, Any]:
    """Count files and bytes at and below these paths, without following links; `more` if there was no time for all."""
    until = time.monotonic() + MEASURE_S
    files = size = 0
    seen: set[tuple[int, int]] = set()
    tops: list[str] = []
    for path in paths:
        full = os.path.abspath(os.path.expanduser(path))
        if os.path.lexists(full) or not re.search(r"[*?\[]", path):
            tops.append(full)
        else:
            tops += _Walk(full, until).below("/")
    todo = [full for full in tops if os.path.lexists(full)]
    while todo:
        if time.monotonic() > until or len(seen) > MEASURED:
            return {"files": files, "bytes": size, "more": True}
        full = todo.pop()
        with suppress(OSError):
            status = os.lstat(full)
            key = (status.st_dev, status.st_ino)
            if key in seen:
                continue
            seen.add(key)
            if stat.S_ISDIR(status.st_mode):
                todo += (entry.path for entry in os.scandir(full))
            else:
                files += 1
                size += status.st_size
    return {"files": files, "bytes": size, "more": False}


OPERATIONS = {"glob": glob, "measure": measure}
