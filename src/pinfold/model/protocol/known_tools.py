"""The tools a reply may call, a budget for parsing it, and error messages for calls that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct, field

from pinfold.events import Json, ToolSchema
from pinfold.model.wire.payload import as_object
from pinfold.text import cap_text

QUOTES = "\"'\u201c\u201d\u2018\u2019"
"""Straight and curly quotes."""


class Effort(Struct):
    """Remaining parsing budget. When it runs out, the parser skips the current piece, not the whole reply."""

    steps: int = 10_000
    """Marks to visit, and tokens of broken JSON."""
    json_chars: int = 12_000_000
    python_chars: int = 200_000
    """Characters for Python's own parser."""
    lexed_chars: int = 1_000_000
    """Characters of code to scan for strings."""
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
        """`str.find` for searches from left to right: words not found once are not searched for again."""
        if (words, stop) in self._missing:
            return -1
        at = text.find(words, start, stop)
        if at < 0:
            self._missing.add((words, stop))
        return at

    def limit_lexing(self, chars: int) -> int:
        """Spend up to `chars` of the budget; return how many may be scanned."""
        allowed = min(chars, self.lexed_chars)
        self.lexed_chars -= allowed
        return allowed


PYTHON = "python"
BARE = "input"
"""Argument name for plain text given to a tool of unknown schema; the engine replaces it by the real name."""
_SAMPLES = {"integer": "1", "number": "1.5", "boolean": "true", "array": "[...]", "object": "{...}"}


class ParsedCall(Struct, frozen=True):
    """A call that could be read."""

    tool: str
    args: Mapping[str, Json]


class Fault(Struct, frozen=True):
    """Text that was clearly meant as a call but cannot be read as one; `words` tell the model why."""

    words: str


class KnownTools:
    """The tools by name, with the arguments in their schemas."""

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
        """Return the tool by its name, also if that differs only in case, dashes or a prefix."""
        if not isinstance(name, str):
            return None
        if name in self._tools:
            return name
        meant = self._folded.get(_fold_name(name.strip().rpartition(".")[2]), [])
        return meant[0] if len(meant) == 1 else None

    def properties(self, tool: str) -> Mapping[str, Json]:
        """Return the schemas of the tool's arguments by name, in order."""
        return as_object(self._tools[tool].parameters.get("properties"))

    def list_required(self, tool: str) -> tuple[str, ...]:
        required = self._tools[tool].parameters.get("required")
        listed = cast("list[Json]", required) if isinstance(required, list | tuple) else []
        return tuple(name for name in listed if isinstance(name, str))

    def only_text(self, tool: str) -> str | None:
        """Return the argument for plain text: the only required one, if it is a string."""
        needed = self.list_required(tool) or tuple(self.properties(tool))
        if len(needed) != 1:
            return None
        return needed[0] if self._type(tool, needed[0]) == "string" else None

    def _type(self, tool: str, name: str) -> Json:
        return as_object(self.properties(tool).get(name)).get("type")

    def _sample(self, tool: str, name: str) -> str:
        kind = self._type(tool, name)
        return _SAMPLES.get(kind, '"..."') if isinstance(kind, str) else '"..."'

    def form(self, tool: str) -> str:
        """Return an example of how to call the tool."""
        if tool == self.python:
            return "```python, the code, ``` on lines of their own"
        needed = ", ".join(f'"{name}": {self._sample(tool, name)}' for name in self.list_required(tool))
        return f'<tool name="{tool}">{{{needed}}}</tool>'

    def fault(self, tool: str, why: str) -> Fault:
        return Fault(f"The call of {tool} was not run: {cap_text(why, 200)}. Write it as {self.form(tool)}.")


def _fold_name(name: str) -> str:
    return name.replace("-", "_").casefold()
