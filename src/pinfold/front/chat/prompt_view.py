"""What is drawn around the input line: the live region, the question or the spinner, queued lines, the status line.

`TerminalWriter` redraws only the rows of the frame, without flicker.
"""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
import time
from collections.abc import Callable, Generator
from itertools import groupby
from typing import cast

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.output.vt100 import Vt100_Output

from pinfold.front.chat.input_queue import ChoiceQuestion, InputQueue, KeyQuestion
from pinfold.front.chat.keys import Pastes


class TerminalWriter(Vt100_Output):
    """Can hold output back and write it in one piece, so that nothing flickers."""

    region: Callable[[], int] = int
    """Rows of the frame; 0 if unknown."""
    lost: Callable[[], object] = int
    wrapped: Callable[[], int] = int
    """Rows added by rewrapping when the terminal became narrower."""
    _is_held = False

    def erase_down(self) -> None:
        # Erase row by row: tmux takes erasing all below for a clear, and copies the screen to its history.
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
        """True while another program, such as an editor, uses the terminal."""
        return self._running_in_terminal

    def invalidate(self) -> None:
        if self.beat is None:
            super().invalidate()
        else:
            self.beat()


def stdout_writer() -> TerminalWriter:
    writer = cast("TerminalWriter", TerminalWriter.from_pty(sys.stdout, term=os.environ.get("TERM")))
    # Do not ask for the cursor's position: a late answer would end up in the shell.
    writer.enable_cpr = False
    return writer


SPIN_S = 0.1
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_QUEUED_ROWS = 3


class PromptView:
    def __init__(self, input_queue: InputQueue, pastes: Pastes, size: Callable[[], Size]) -> None:
        self._input_queue = input_queue
        self._pastes = pastes
        self._size = size
        self.live: list[StyleAndTextTuples] = []
        """The lines of the live region."""

    def prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        question = self._input_queue.question
        if line or wrapped:
            return [("class:prompt", "  ")]
        if self._input_queue.armed and question is not None:
            return [("class:question", f"{question.label} ")]
        return [("class:prompt.busy" if self._input_queue.is_busy else "class:prompt", "> ")]

    def above(self) -> StyleAndTextTuples:
        lines: list[StyleAndTextTuples] = [*self.live]
        if self._input_queue.question is not None:
            lines += self._format_question()
        elif self._input_queue.busy_since is not None:
            seconds = time.monotonic() - self._input_queue.busy_since
            glyph = _SPINNER[int(seconds / SPIN_S) % len(_SPINNER)]
            words = self._input_queue.doing() or "working"
            minutes, rest = divmod(int(seconds), 60)
            elapsed = f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.0f} s"
            lines.append(self._line("class:dim", f"{glyph} {words} · {elapsed} · esc stops"))
        waiting = list(self._input_queue.queued)
        for text in waiting[:_QUEUED_ROWS]:
            shown = self._pastes.collapse(text).replace("\n", " ")
            shown = "".join(letter if letter.isprintable() else "?" for letter in shown)
            lines.append(self._line("class:dim", f"  queued: {shown}"))
        if len(waiting) > _QUEUED_ROWS:
            lines.append(self._line("class:dim", f"  and {len(waiting) - _QUEUED_ROWS} more"))
        ended: list[StyleAndTextTuples] = [[*line, ("", "\n")] for line in lines]
        return [fragment for line in ended for fragment in line][:-1]

    def _line(self, style: str, text: str) -> StyleAndTextTuples:
        """Cut the line before the last column, where some terminals would wrap."""
        room = max(1, self._size().columns - 1)
        return [(style, text if len(text) <= room else text[: room - 1] + "…")]

    def _format_question(self) -> list[StyleAndTextTuples]:
        question = self._input_queue.question
        assert question is not None
        room = max(20, self._size().columns - 1)
        lines: list[StyleAndTextTuples] = [
            [("class:question", line)]
            for given in question.title.splitlines()
            for line in textwrap.wrap(given, room) or [""]
        ]
        if not self._input_queue.armed:
            return [*lines, [("class:dim", "  ...")]]
        if isinstance(question, KeyQuestion):
            keys: StyleAndTextTuples = [("", "  ")]
            for key, words in question.keys.items():
                keys += [("class:key", key), ("", f" {words}   ")]
            lines.append(keys)
        elif isinstance(question, ChoiceQuestion):
            lines += self._options(question)
        return lines

    def _options(self, question: ChoiceQuestion) -> list[StyleAndTextTuples]:
        room = max(3, self._size().rows - 12)
        first = max(0, min(question.at - room // 2, len(question.options) - room))
        lines: list[StyleAndTextTuples] = []
        for number in range(first, min(first + room, len(question.options))):
            style = "reverse" if number == question.at else ""
            lines.append(self._line(style, f"  {number + 1}. {question.options[number]}"))
        lines.append([("class:dim", "  arrows or a number, then Enter; Esc cancels")])
        return lines

    def bottom(self) -> StyleAndTextTuples:
        return self._line("class:status", self._input_queue.hint or self._input_queue.status(self._size().columns))


def merge_fragments(line: StyleAndTextTuples) -> StyleAndTextTuples:
    """Join letters of the same style: `ANSI` returns them singly, and each would be laid out by itself."""
    together: StyleAndTextTuples = []
    for style, letters in groupby(line, key=lambda fragment: fragment[0]):
        together.append((style, "".join(fragment[1] for fragment in letters)))
    while together and not together[-1][1].rstrip(" "):
        together.pop()
    if together:  # trailing blanks would wrap onto a line of their own when the terminal gets narrower
        together[-1] = (together[-1][0], together[-1][1].rstrip(" "))
    return together
