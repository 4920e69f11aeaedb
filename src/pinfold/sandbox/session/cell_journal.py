"""Which cells led to where a session is, line by line on disk, so that another process can go on from there.

Written as it happens and not synced: after a power cut the last lines may be missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = "pass  # a program was run beside the cells"
"""The source of a step that was no cell: run again, it does nothing, as the program did nothing to variables."""


@dataclass(slots=True)
class CellPath:
    number: int = 0
    """Of the last cell."""
    path: list[int] = field(default_factory=list[int])
    """The cells whose effects are there, in order."""
    undone: list[list[int]] = field(default_factory=list[list[int]])
    """What each undo took back that can be taken back in turn, the last one last."""
    sources: dict[int, str] = field(default_factory=dict[int, str])
    """What a cell must be run again with; nothing, where its variables are lost."""
    cut: int | None = None
    """The cell that ran when the process ended."""


class CellJournal:
    """With no file nothing is written."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._fd = -1

    def load(self) -> CellPath:
        """And open it, for what comes."""
        way = CellPath()
        if self._file is None:
            return way
        lines = self._file.read_bytes().splitlines(keepends=True) if self._file.exists() else []
        for line in lines:
            try:
                _apply_line(way, json.loads(line))
            except (ValueError, TypeError, KeyError, IndexError):  # cut off, or damaged: the rest still says something
                continue
        _repair_path(way)
        self._fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if lines and not lines[-1].endswith(b"\n"):
            os.write(self._fd, b"\n")
        return way

    def record_run(self, number: int, code: str) -> None:
        self._write("runs", number, code)

    def record_end(self, number: int) -> None:
        self._write("ended", number)

    def record_path(self, path: Sequence[int], undone: Sequence[Sequence[int]]) -> None:
        self._write("at", path, undone)

    def record_lost(self, numbers: Sequence[int]) -> None:
        """What these cells did to variables."""
        self._write("lost", numbers)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, *line: object) -> None:
        if self._fd < 0:
            return
        try:
            told = json.dumps(line).encode() + b"\n"
            is_whole = os.write(self._fd, told) == len(told)
        except OSError:
            is_whole = False
        if not is_whole:
            # The disk is full. With a gap in it the story would be a wrong one.
            self.close()
            if self._file is not None:
                self._file.unlink(missing_ok=True)


def _apply_line(way: CellPath, line: list[Any]) -> None:
    match line[0]:
        case "runs":
            _, number, code = line
            way.number = way.cut = int(number)
            way.sources[way.number] = str(code)
            way.path.append(way.number)
            way.undone.clear()
        case "ended":
            way.cut = None
        case "at":
            _, path, undone = line
            way.path, way.undone = [*map(int, path)], [[*map(int, cells)] for cells in undone]
            way.cut = None
        case "lost":
            way.sources.update((int(number), "") for number in line[1])
        case _:
            raise ValueError(f"{line} is nothing that happens")


def _repair_path(way: CellPath) -> None:
    """Where lines are missing: what a cell was is lost, and no number is given twice."""
    cells = [*way.path, *(cell for cells in way.undone for cell in cells)]
    for cell in cells:
        way.sources.setdefault(cell, "")
    way.number = max([way.number, *cells])
