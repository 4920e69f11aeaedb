"""Writes to the terminal without flicker, and only in the rows of the frame."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from typing import Any, cast

from prompt_toolkit.application import Application
from prompt_toolkit.output.vt100 import Vt100_Output


class TerminalWriter(Vt100_Output):
    """Holds output back, so that it is written at once and nothing flickers."""

    _is_held = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.region: Callable[[], int] = int
        """Rows of the frame; 0 if unknown."""
        self.lost: Callable[[], object] = int
        self.wrapped: Callable[[], int] = int
        """Rows that were added when the terminal became narrower."""

    def erase_down(self) -> None:
        # Not the whole screen below: tmux takes that for a clear and copies it to its history.
        if rows := self.region():
            self.write_raw("\x1b7" + "\x1b[B".join(["\r\x1b[2K"] * rows) + "\x1b8")
        else:
            if more := self.wrapped():
                self.cursor_up(more)
            super().erase_down()

    @contextlib.contextmanager
    def hold_output(self) -> Generator[None]:
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.flush()

    def flush(self) -> None:
        if self._is_held:
            return
        try:
            super().flush()
        except OSError:  # the terminal is gone
            self.lost()

    def enable_bracketed_paste(self) -> None:
        if not self._is_held:
            super().enable_bracketed_paste()

    def disable_bracketed_paste(self) -> None:
        if not self._is_held:
            super().disable_bracketed_paste()


class ThrottledApplication(Application[None]):
    """Redraws through the frame's timer."""

    beat: Callable[[], None] | None = None

    @property
    def is_away(self) -> bool:
        """Another program, such as an editor, uses the terminal."""
        return self._running_in_terminal

    def invalidate(self) -> None:
        if self.beat is None:
            super().invalidate()
        else:
            self.beat()


def stdout_writer() -> TerminalWriter:
    pen = cast("TerminalWriter", TerminalWriter.from_pty(sys.stdout, term=os.environ.get("TERM")))
    # Do not ask for the cursor's position: a late answer would end up in the shell.
    pen.enable_cpr = False
    return pen
