"""What a keeper has to say: a line for each thing put back or told, and what the user must know in the end."""

from __future__ import annotations

from collections.abc import Callable

from pinfold.sandbox.autorun_files import Row
from pinfold.text import listed

ADVICE = "look at it before you use it"
_NAMED = 8
"""Paths in one line."""


class KeeperReport:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self.told: dict[str, Row] = {}
        """Left as it is, though a program obeys it."""
        self.taken: set[str] = set()
        """New and obeyed, made while nothing of the session ran: the user's."""
        self.lost: dict[str, str] = {}
        """What is not as promised, with the line that says so."""

    def say(self, line: str) -> None:
        if line not in self._lines:
            self._lines.append(line)

    def lose(self, path: str, words: str) -> None:
        if path not in self.lost:
            self.lost[path] = f"{path} {words}; {ADVICE}"
            self.say(self.lost[path])

    def take_lines(self) -> tuple[str, ...]:
        lines, self._lines = self._lines, []
        return tuple(lines)

    def parting(self, is_there: Callable[[str], bool]) -> tuple[str, ...]:
        lines = list(self.lost.values())
        told = [f"{path} ({row.program})" for path, row in self.told.items() if is_there(path)]
        if told:
            lines.append(
                f"Changed in this session, and obeyed by other programs of yours: {listed(told, _NAMED)}."
            )
        if self.taken:
            lines.append(
                f"Made while no cell ran, and taken as your own: {listed(sorted(self.taken), _NAMED)}."
            )
        return tuple(lines)
