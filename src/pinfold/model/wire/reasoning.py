"""What a model says, as it comes: its answer, and the reasoning it may write into its answer, told apart."""

from __future__ import annotations

from typing import Literal

from pinfold.events import Thought

_OPEN = "<think>"
_CLOSE = "</think>"


class ThinkTag:
    """Takes an answer in pieces. What stands in `<think>` at its very beginning becomes Thoughts."""

    def __init__(self) -> None:
        self._place: Literal["before", "inside", "after", "text"] = "before"
        self._space: list[str] = []
        self._held = ""

    def feed(self, text: str) -> list[str | Thought]:
        match self._place:
            case "before":
                return self._begin(text)
            case "inside":
                return self._think(text)
            case "after":
                text = text.lstrip()
                if text:
                    self._place = "text"
                return [text] if text else []
            case "text":
                return [text] if text else []

    def end(self) -> list[str | Thought]:
        """What was held back because more might have followed."""
        held, self._held = self._held, ""
        if self._place == "inside":
            return [Thought(held)] if held else []
        text = "".join([*self._space, held])
        self._space.clear()
        return [text] if text else []

    def _begin(self, text: str) -> list[str | Thought]:
        if not self._held:
            bare = text.lstrip()
            self._space.append(text[: len(text) - len(bare)])
            text = bare
        held = self._held + text
        if held.startswith(_OPEN):
            self._place, self._held = "inside", ""
            self._space.clear()
            return self._think(held[len(_OPEN) :])
        if _OPEN.startswith(held):
            self._held = held
            return []
        self._place, self._held = "text", ""
        whole = "".join([*self._space, held])
        self._space.clear()
        return [whole]

    def _think(self, text: str) -> list[str | Thought]:
        text, self._held = self._held + text, ""
        thought, close, rest = text.partition(_CLOSE)
        if close:
            self._place = "after"
            return [*([Thought(thought)] if thought else []), *self.feed(rest)]
        kept = next((size for size in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:size])), 0)
        self._held = text[len(text) - kept :]
        thought = text[: len(text) - kept]
        return [Thought(thought)] if thought else []


class Speech:
    """Everything said so far. Each method returns the pieces to show now."""

    def __init__(self) -> None:
        self._tag = ThinkTag()
        self._text: list[str] = []
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def thoughts(self) -> str:
        return "".join(self._thoughts)

    def say(self, text: str) -> list[str | Thought]:
        return self._record(self._tag.feed(text))

    def think(self, text: str) -> list[str | Thought]:
        return self._record([Thought(text)] if text else [])

    def end(self) -> list[str | Thought]:
        """What was held back because more might have followed."""
        return self._record(self._tag.end())

    def _record(self, pieces: list[str | Thought]) -> list[str | Thought]:
        for piece in pieces:
            if isinstance(piece, str):
                self._text.append(piece)
            else:
                self._thoughts.append(piece.text)
        return pieces
