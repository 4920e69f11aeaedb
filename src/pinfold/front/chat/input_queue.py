"""Queued input lines and open questions. Independent of the terminal that fills it and the session that reads it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

LEAVE_HINT = "press Ctrl-C again, or Ctrl-D, to leave"
QUIET_S = 0.6
"""A key counts as an answer once the question was on the screen this long without a key press."""
WORD_S = 0.25
"""If a different letter follows a letter within this time, both belong to a word, which is not an answer."""
_LOOK_S = 0.01
WORDS_HINT = "answer with one key; what you typed is in the input line"


class Question:
    """A question that must be answered before anything else. The answer is None for Esc."""

    label = "?"
    """Prompt in front of the answer."""
    follows = False
    """True if the user's last key led to this question, so it accepts keys at once."""
    hidden = False
    """True if the typed text must not be shown."""

    def __init__(self, title: str) -> None:
        self.title = title
        """Safe for a terminal; may have several lines."""
        self.future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def settle(self, answer: str | None) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def press(self, key: str) -> None:
        """Handle a single key, for questions that are answered by keys."""

    def enter(self, text: str) -> None:
        """Handle Enter; `text` is the input line."""


class KeyQuestion(Question):
    """Answered by a single key."""

    def __init__(self, title: str, keys: Mapping[str, str]) -> None:
        super().__init__(title)
        self.keys = keys
        """The accepted keys, each with its meaning."""

    def press(self, key: str) -> None:
        if key.lower() in self.keys:
            self.settle(key.lower())


class ChoiceQuestion(Question):
    """A choice of one option by arrow keys or number. The answer is the option's index, from 0."""

    def __init__(self, title: str, options: Sequence[str]) -> None:
        super().__init__(title)
        self.options = options
        self.at = 0
        self._digits = ""

    def move(self, by: int) -> None:
        self.at = (self.at + by) % len(self.options)
        self._digits = ""

    def press(self, key: str) -> None:
        """Select the option whose number the typed digits form."""
        for digits in (self._digits + key, key):
            if 1 <= int(digits) <= len(self.options):
                self._digits, self.at = digits, int(digits) - 1
                return

    def enter(self, text: str) -> None:
        """Choose option number `text`, counted from 1, or the selected one if `text` is empty."""
        if text.isdecimal() and 1 <= int(text) <= len(self.options):
            self.at = int(text) - 1
        elif text:
            return
        self.settle(str(self.at))


class WordsQuestion(Question):
    """Answered in words. Without `may_be_empty`, Enter alone does nothing."""

    def __init__(
        self, title: str, label: str, *, may_be_empty: bool, follows: bool = False, hidden: bool = False
    ) -> None:
        super().__init__(title)
        self.label = label
        self.may_be_empty = may_be_empty
        self.follows = follows or hidden  # a secret pasted early must not end up in the visible input line
        self.hidden = hidden

    def enter(self, text: str) -> None:
        if text.strip() or self.may_be_empty:
            self.settle(text.strip())


class InputQueue:
    """Lines and questions in order. All methods must be called from the event loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.queued: deque[str] = deque()
        """Lines entered but not handled yet."""
        self.busy_since: float | None = None
        """When the current work began; None if idle."""
        self.leaving = False
        self.armed = False
        """True while a key answers the question."""
        self.doing: Callable[[], str] = str
        self.status: Callable[[int], str] = lambda _: ""
        """Returns the status line for a number of columns."""
        self.hint = ""
        self.changed: Callable[[], None] = _do_nothing
        """Called when the display is out of date."""
        self.at_once: Callable[[str], bool] = lambda _: False
        """Handles a line that need not be queued; returns False if it must be."""
        self.interrupted: Callable[[], None] = _do_nothing
        """Called when the user interrupts the current work."""
        self.forced: Callable[[], object] = _do_nothing
        """Called when the user presses Ctrl-C again while the chat is leaving."""
        self.arms: Callable[[], None] = _do_nothing
        """Called when a question takes the keyboard."""
        self.disarms: Callable[[], None] = _do_nothing
        self.unread: Callable[[], bool] = bool
        """Returns True if the terminal holds keys that were not read yet."""
        self._clock = clock
        self._typed_at = -QUIET_S
        self._drawn_at: float | None = None
        """When the question first appeared on the screen."""
        self._letters = ""
        """Letters typed at a question in quick succession."""
        self._word_ends: asyncio.TimerHandle | None = None
        self._questions: deque[Question] = deque()
        self._shown: Question | None = None
        self._woken = asyncio.Event()
        self.left = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        return self.busy_since is not None

    # Lines

    def enter(self, text: str) -> None:
        if text.strip() and not self.at_once(text):
            self.queued.append(text)
            self._woken.set()
            self.changed()

    async def line(self) -> str | None:
        """Wait for the next line and return it; None if the user leaves."""
        while not self.leaving:
            if self.queued:
                text = self.queued.popleft()
                self.changed()
                return text
            self._woken.clear()
            await self._woken.wait()
        return None

    def recall(self) -> str | None:
        """Take back the last queued line, for editing."""
        if not self.queued:
            return None
        self.changed()
        return self.queued.pop()

    def take_back(self) -> list[str]:
        """Take back all queued lines, in order."""
        lines = list(self.queued)
        self.queued.clear()
        self.changed()
        return lines

    def leave(self) -> None:
        self.leaving = True
        self._woken.set()
        self.left.set()
        for question in tuple(self._questions):
            question.settle(None)
        self.changed()

    def wake(self) -> None:
        """Wake `line`, so that its caller can check for changes."""
        self._woken.set()

    # Questions

    @property
    def question(self) -> Question | None:
        return self._shown

    def note_key(self) -> None:
        self._typed_at = self._clock()

    def on_drawn(self) -> None:
        """Note that the terminal now shows the current question, if there is one."""
        if self._shown is not None and self._drawn_at is None:
            self._drawn_at = self._clock()
            asyncio.get_running_loop().call_soon(self._arm, self._shown)

    def press(self, key: str) -> str:
        """Handle a key at a question. If it is no answer, return what was typed so far, for the input line."""
        question = self._shown
        if not key.isprintable() or not isinstance(question, KeyQuestion | ChoiceQuestion):
            return ""
        if isinstance(question, ChoiceQuestion):
            if not key.isdecimal():
                return self._disarm(key)
            question.press(key)
            return ""
        self._letters += key
        if len({*self._letters.lower()}) > 1:
            return self._disarm(self._letters)
        if self._word_ends is None:
            self._word_ends = asyncio.get_running_loop().call_later(WORD_S, self._answer, question, key)
        return ""

    def paste(self, text: str) -> str:
        """Handle a paste at a question: it is never an answer, so return it for the input line."""
        return self._disarm(self._letters + text)

    def is_early(self, text: str) -> bool:
        """True if `text` is a key meant for the question but typed before the question accepted keys."""
        question, drawn_at = self._shown, self._drawn_at
        return (
            isinstance(question, KeyQuestion)
            and len(text) == 1
            and text.lower() in question.keys
            and drawn_at is not None
            and self._typed_at >= drawn_at
        )

    def _answer(self, question: KeyQuestion, key: str) -> None:
        self._forget_letters()
        if key.lower() != "n":  # a repeated key must not answer the next question
            self.note_key()
        question.press(key)
        self.changed()

    def _forget_letters(self) -> None:
        self._letters = ""
        if self._word_ends is not None:
            self._word_ends.cancel()
            self._word_ends = None

    def _disarm(self, typed: str) -> str:
        """Return typed words for the input line; the question accepts keys again after a pause."""
        self._forget_letters()
        question, self.armed = self._shown, False
        self.disarms()
        self.note_key()
        self.hint = WORDS_HINT
        if question is not None:
            self._arm(question)
        return typed

    async def ask(self, question: Question) -> str | None:
        """Show the question when its turn comes and return the answer. Cancelling removes the question."""
        self._questions.append(question)
        self._next()
        try:
            return await question.future
        finally:
            self._questions.remove(question)
            if self._shown is question:
                self._shown, self.armed = None, False
                self._forget_letters()
                if self.hint == WORDS_HINT:
                    self.hint = ""
                self.disarms()
            self._next()

    def _next(self) -> None:
        if self._shown is None and self._questions:
            self._shown, self.armed, self._drawn_at = self._questions[0], False, None
        self.changed()

    def _arm(self, question: Question) -> None:
        """Accept keys only after a pause: earlier keys are not meant for the question."""
        if self._shown is not question or self.armed or self._drawn_at is None:
            return
        left_s = max(self._drawn_at, self._typed_at) + QUIET_S - self._clock()
        if left_s > 0 and not question.follows:
            asyncio.get_running_loop().call_later(left_s, self._arm, question)
        elif self.unread():
            asyncio.get_running_loop().call_later(_LOOK_S, self._arm, question)
        else:
            self.armed = True
            self.arms()
            self.changed()


def _do_nothing() -> None:
    pass
