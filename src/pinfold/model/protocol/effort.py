"""How much work one reply is worth. A reply of any size and shape is read within a bounded time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Effort:
    """What is left to spend. Whoever finds that it is not enough gives up on what it looks at, not on the reply."""

    steps: int = 10_000
    """Marks looked at, and pieces of broken JSON."""
    json_chars: int = 12_000_000
    python_chars: int = 200_000
    """Given to Python's own parser."""
    lexed_chars: int = 1_000_000
    """Of code, looked through for strings."""
    _missing: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def step(self) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def json(self, chars: int) -> bool:
        self.json_chars -= chars
        return self.json_chars >= 0

    def python(self, chars: int) -> bool:
        if chars > self.python_chars:
            return False
        self.python_chars -= chars
        return True

    def find(self, text: str, words: str, start: int, stop: int) -> int:
        """As `str.find`, from left to right: what was not there once is not looked for again."""
        if (words, stop) in self._missing:
            return -1
        at = text.find(words, start, stop)
        if at < 0:
            self._missing.add((words, stop))
        return at

    def limit_lexing(self, chars: int) -> int:
        """How many of them may be looked through."""
        allowed = min(chars, self.lexed_chars)
        self.lexed_chars -= allowed
        return allowed
