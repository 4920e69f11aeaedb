"""What stands between the user's keys and the conversation: lines that wait, and questions. No terminal, no session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

LEAVE_HINT = "Ctrl-C once more, or Ctrl-D, leaves"
QUIET_S = 0.6
"""How long no letter may have been typed before a key counts as an answer."""
_DRAWN_S = 0.12
"""What was typed before a question was seen has arrived by then."""


class Question:
    """What must be answered before anything else. `answer` is None where it was left with Esc."""

    def __init__(self, title: str) -> None:
        self.title = title
        """Fit to be shown; may have several lines."""
        self.future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def settle(self, answer: str | None) -> None:
        if not self.future.done():
            self.future.set_result(answer)


class KeyQuestion(Question):
    """Answered by a single key."""

    def __init__(self, title: str, keys: Mapping[str, str]) -> None:
        super().__init__(title)
        self.keys = keys
        """Each with what it means."""

    def press(self, key: str) -> None:
        if key.lower() in self.keys:
            self.settle(key.lower())


class ChoiceQuestion(Question):
    """One of several, by arrow keys or number; the answer is its number, from 0."""

    def __init__(self, title: str, options: Sequence[str]) -> None:
        super().__init__(title)
        self.options = options
        self.at = 0
        self._digits = ""

    def move(self, by: int) -> None:
        self.at = (self.at + by) % len(self.options)
        self._digits = ""

    def press(self, key: str) -> None:
        """Digits lead to the number they spell."""
        if key.isdecimal():
            for digits in (self._digits + key, key):
                if 1 <= int(digits) <= len(self.options):
                    self._digits, self.at = digits, int(digits) - 1
                    return

    def choose(self) -> None:
        self.settle(str(self.at))


class WordsQuestion(Question):
    """Answered in words. Without `may_be_empty`, Enter alone says nothing."""

    def __init__(self, title: str, label: str, *, may_be_empty: bool) -> None:
        super().__init__(title)
        self.label = label
        self.may_be_empty = may_be_empty

    def enter(self, text: str) -> None:
        if text.strip() or self.may_be_empty:
            self.settle(text.strip())


class Desk:
    """Everything is called from the event loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.queued: deque[str] = deque()
        """Lines that were entered and not taken yet."""
        self.busy_since: float | None = None
        """When what runs now began."""
        self.leaving = False
        self.armed = False
        """Whether a key answers the question."""
        self.doing: Callable[[], str] = str
        self.status: Callable[[int], str] = lambda _: ""
        """The bottom line, by the columns there are."""
        self.hint = ""
        self.changed: Callable[[], None] = _nothing
        """The frame draws again."""
        self.at_once: Callable[[str], bool] = _never
        """Takes a line that need not wait for its turn."""
        self.interrupted: Callable[[], None] = _nothing
        """The conversation stops what runs."""
        self.forced: Callable[[], object] = _nothing
        """The user does not wait for what leaving takes."""
        self.arms: Callable[[], None] = _nothing
        """A question takes the keyboard."""
        self.disarms: Callable[[], None] = _nothing
        self._clock = clock
        self._typed_at = -QUIET_S
        self._shown_at = 0.0
        self._composes = False
        """Something was typed that is not entered."""
        self._questions: deque[Question] = deque()
        self._shown: Question | None = None
        self._woken = asyncio.Event()
        self.left = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        return self.busy_since is not None

    # Lines

    def enter(self, text: str) -> None:
        self._composes = False
        if text.strip() and not self.at_once(text):
            self.queued.append(text)
            self._woken.set()
            self.changed()

    async def line(self) -> str | None:
        """The next in order; None once it is time to leave."""
        while not self.leaving:
            if self.queued:
                text = self.queued.popleft()
                self.changed()
                return text
            self._woken.clear()
            await self._woken.wait()
        return None

    def recall(self) -> str | None:
        """The last line that still waits, back for editing."""
        if not self.queued:
            return None
        self.changed()
        return self.queued.pop()

    def take_back(self) -> list[str]:
        """All lines that still wait, in order."""
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
        """Let whoever waits for a line look around."""
        self._woken.set()

    # Questions

    @property
    def question(self) -> Question | None:
        return self._shown

    @property
    def waiting(self) -> int:
        """Questions behind the one that is shown."""
        return max(0, len(self._questions) - 1)

    def typed(self) -> None:
        self._typed_at = self._clock()
        self._composes = not self.armed

    async def asked(self, question: Question) -> str | None:
        """Its answer, once it is its turn. Cancelled or withdrawn, it disappears."""
        self._questions.append(question)
        self._next()
        try:
            return await question.future
        finally:
            self._questions.remove(question)
            if self._shown is question:
                self._shown, self.armed = None, False
                self.disarms()
            self._next()

    def _next(self) -> None:
        if self._shown is None and self._questions:
            self._shown, self.armed = self._questions[0], False
            self._shown_at = self._clock()
            asyncio.get_running_loop().call_later(_DRAWN_S, self._arm, self._shown)
        self.changed()

    def _arm(self, question: Question) -> None:
        """Only after a pause: whoever is typing does not mean the question."""
        if self._shown is not question:
            return
        # Whoever only thinks about the next word of a line has not seen the question either.
        since = max(self._typed_at, self._shown_at) if self._composes else self._typed_at
        quiet_s = self._clock() - since
        if quiet_s < QUIET_S:
            asyncio.get_running_loop().call_later(QUIET_S - quiet_s, self._arm, question)
            return
        self.armed, self._composes = True, False
        self.arms()
        self.changed()


def _never(_: str) -> bool:
    return False


def _nothing() -> None:
    pass
