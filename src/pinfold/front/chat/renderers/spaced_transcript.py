"""Blank lines between what is written, and several things written at once."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pinfold.front.chat.renderers.transcript import Transcript

if TYPE_CHECKING:
    from rich.console import RenderableType


class SpacedTranscript:
    """Writes on paper; never two blank lines after each other, none at the very top."""

    def __init__(self, paper: Transcript) -> None:
        self.paper = paper
        self._at_gap = True
        self._held: list[RenderableType] | None = None

    @property
    def width(self) -> int:
        return max(20, self.paper.width)

    def write(self, *things: RenderableType) -> None:
        if things:
            self._put(*things)
            self._at_gap = False

    def raw(self, data: str, rows: int) -> None:
        assert self._held is None
        self.paper.raw(data, rows)
        self._at_gap = False

    def gap(self) -> None:
        if not self._at_gap:
            self._put("")
            self._at_gap = True

    @contextmanager
    def together(self) -> Generator[None]:
        """What is written meanwhile goes to the paper at once: each time the live region is drawn anew."""
        if self._held is not None:
            yield
            return
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            if held:
                self.paper.write(*held)

    def _put(self, *things: RenderableType) -> None:
        if self._held is None:
            self.paper.write(*things)
        else:
            self._held += things
