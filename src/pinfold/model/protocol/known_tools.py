"""The tools a reply may call, the work that reading it is worth, and the words for a call that cannot be understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct, field

from pinfold.events import Json, ToolSchema
from pinfold.model.wire.payload import an_object
from pinfold.text import cap_text

QUOTES = "\"'\u201c\u201d\u2018\u2019"
"""Straight and curly ones."""


class Effort(Struct):
    """What is left to spend. A reader that runs out gives up on the piece it looks at, not on the reply."""

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


PYTHON = "python"
BARE = "input"
"""The argument name of a bare text for a tool whose schema is not known here; the engine replaces it by the tool's own."""
_SAMPLES = {"integer": "1", "number": "1.5", "boolean": "true", "array": "[...]", "object": "{...}"}


class ParsedCall(Struct, frozen=True):
    """A call that was understood."""

    tool: str
    args: Mapping[str, Json]


class Fault(Struct, frozen=True):
    """Something that was clearly meant as a call and cannot be one; `words` are for the model."""

    words: str


class KnownTools:
    """The tools by name, with what their schemas say of their arguments."""

    def __init__(self, tools: Sequence[ToolSchema]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._folded: dict[str, list[str]] = {}
        for name in self._tools:
            self._folded.setdefault(_fold_name(name), []).append(name)
        self.python = PYTHON if PYTHON in self._tools else None

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def find_tool(self, name: Json) -> str | None:
        """The tool that is meant: by its name, or by one that differs in case, dashes or a prefix only."""
        if not isinstance(name, str):
            return None
        if name in self._tools:
            return name
        meant = self._folded.get(_fold_name(name.strip().rpartition(".")[2]), [])
        return meant[0] if len(meant) == 1 else None

    def properties(self, tool: str) -> Mapping[str, Json]:
        """The schemas of its arguments by name, in their order."""
        return an_object(self._tools[tool].parameters.get("properties"))

    def list_required(self, tool: str) -> tuple[str, ...]:
        required = self._tools[tool].parameters.get("required")
        listed = cast("list[Json]", required) if isinstance(required, list | tuple) else []
        return tuple(name for name in listed if isinstance(name, str))

    def only_text(self, tool: str) -> str | None:
        """The argument that a bare text must be: the only one that is needed, if it takes text."""
        needed = self.list_required(tool) or tuple(self.properties(tool))
        if len(needed) != 1:
            return None
        return needed[0] if self._type(tool, needed[0]) == "string" else None

    def _type(self, tool: str, name: str) -> Json:
        return an_object(self.properties(tool).get(name)).get("type")

    def _sample(self, tool: str, name: str) -> str:
        kind = self._type(tool, name)
        return _SAMPLES.get(kind, '"..."') if isinstance(kind, str) else '"..."'

    def form(self, tool: str) -> str:
        """How to write a call of it."""
        if tool == self.python:
            return "```python, the code, ``` on lines of their own"
        needed = ", ".join(f'"{name}": {self._sample(tool, name)}' for name in self.list_required(tool))
        return f'<tool name="{tool}">{{{needed}}}</tool>'

    def fault(self, tool: str, why: str) -> Fault:
        return Fault(f"The call of {tool} was not run: {cap_text(why, 200)}. Write it as {self.form(tool)}.")


def _fold_name(name: str) -> str:
    return name.replace("-", "_").casefold()
