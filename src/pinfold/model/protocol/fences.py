"""Fenced blocks: where one opens, what language it claims, where its content ends. Linear in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pinfold.model.protocol.known_tools import Effort

Language: TypeAlias = Literal["python", "calls", "bare", "other"]
"""`calls` are notations for tool calls; `bare` is a block that names no language."""

_PYTHON = re.compile(r"\{?+\.?+(?:i?python|py)3?+(?:\.\d++)?+\}?+", re.IGNORECASE)
_CODE_OF_TOOLS = frozenset({"tool_code", "tool-code"})
_CALLS = frozenset(
    {
        *("json", "jsonc", "json5", "jsonl", "xml", "tool", "tools", "tool_call", "tool_calls", "tool_use"),
        *("function", "functions", "function_call", "function_calls", "call"),
    }
)
_ITEM = r"(?:(?:[-*+]|\d{1,9}[.)])[ \t]++)?+"
OPENING = re.compile(rf"^(?P<indent>[ \t]*+{_ITEM})(?P<run>`{{3,}}+|~{{3,}}+)(?P<info>[^\n]*+)", re.MULTILINE)
WITHIN_A_LINE = re.compile(
    r"(?P<run>```)(?P<info>(?:python3?|py|tool_code)[ \t]*+\r?+)(?=\n)(?P<indent>)", re.IGNORECASE
)
"""Behind prose on the same line: only where nothing else can be meant."""
_RUNS_LOOKED_AT = 20_000
_HALF_A_FENCE = re.compile(r"\n[ \t]*+`{1,2}+[ \t\r\n]*+\Z")

# Strings and comments of Python, passed over as a whole: a fence in them closes nothing. What looks like a string
# and has no end is taken character by character, and an escape outside of strings as one, so that nothing is tried twice.
# No possessive group: before 3.11.5 Python goes wrong in one that has to try a second way.
_PASSED = (
    r"[^`\"'#\\]+|\\.|#[^\n]*|\"\"\".*?\"\"\"|'''.*?'''"
    r"|\"(?!\"\")[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'(?!'')[^'\\\n]*(?:\\.[^'\\\n]*)*'|[\"'\\]|(?<!`)`{1,%d}(?!`)"
)


@dataclass(frozen=True, slots=True)
class Fence:
    language: Language
    body: str
    start: int
    """Of the body in the text."""
    stop: int
    end: int
    """Behind the closing fence, or where the next one opens."""


def fence_at(text: str, opening: re.Match[str], stop: int, effort: Effort) -> Fence | None:
    """The block that opens here; None if this is a run of backticks within a line."""
    run, info = opening["run"], opening["info"]
    if run[0] == "`" and "`" in info:
        return _one_line(opening)
    word = (info.split(maxsplit=1) or [""])[0]
    language = _language(word)
    start = _line_end(text, opening.end(), stop)
    if run[0] == "`" and language == "python":
        close = _close_of_python(text, start, stop, len(run), effort)
    else:
        close = _closing_line(text, start, stop, run, opens_another=run[0] == "`" and language == "bare")
    end_of_body, end = close or (stop, stop)
    body = text[start:end_of_body]
    # Without the line end before the fence; without a fence, without the half of one that came last.
    body = body.removesuffix("\n") if close else _HALF_A_FENCE.sub("", body)
    if width := len(opening["indent"]):  # of the fence itself
        body = re.sub(rf"^[ \t]{{1,{width}}}+", "", body, flags=re.MULTILINE)
    return Fence(language, body, start, end_of_body, end)


def holds(code: str) -> bool:
    """Whether a fence of three backticks holds this code, whatever follows: all of it, and nothing else."""
    # A string without an end would go on behind the fence, up to the next quotes there are.
    for behind in ('"""', "'''"):
        text = f"```python\n{code}\n```\n{behind}"
        opening = OPENING.match(text)
        fence = fence_at(text, opening, len(text), Effort()) if opening else None
        if fence is None or fence.body != code or fence.end != len(text) - 4:
            return False
    return bool(code.strip())


def _language(word: str) -> Language:
    name = word.lower()
    if not name:
        return "bare"
    if _PYTHON.fullmatch(name) or name in _CODE_OF_TOOLS:
        return "python"
    return "calls" if name in _CALLS else "other"


def _one_line(opening: re.Match[str]) -> Fence | None:
    """```` ```python print(1)``` ````"""
    run = opening["run"]
    info = opening["info"].rstrip()
    inner = info.rstrip("`")
    if len(info) - len(inner) != len(run) or "`" in inner:
        return None
    word, _, body = inner.strip().partition(" ")
    language = _language(word)
    if language not in ("python", "calls") or not body.strip():
        return None
    start = opening.start("info") + opening["info"].index(body)
    stop = start + len(body)
    return Fence(language, body.strip(), start, stop, opening.end())


def _line_end(text: str, at: int, stop: int) -> int:
    return text.find("\n", at, stop) + 1 or stop


def _close_of_python(text: str, start: int, stop: int, length: int, effort: Effort) -> tuple[int, int] | None:
    """The first backticks outside of strings and comments: Python has no other use for them."""
    if text.find("`" * length, start, stop) < 0:
        return None
    looked_at = min(stop, start + effort.limit_lexing(stop - start))
    at = start
    for passed in re.compile(_PASSED % (length - 1), re.DOTALL).finditer(text, start, looked_at):
        if passed.start() != at:
            break
        at = passed.end()
    effort.lexed_chars += looked_at - at
    if at >= looked_at:
        return _closing_line(text, at, stop, "`" * length)
    end = at
    while end < stop and text[end] == "`":
        end += 1
    line = text.rfind("\n", start, at) + 1 or start
    if text[line:at].strip():
        return at, end
    rest = text[end : _line_end(text, end, stop)].strip()
    # Another block opens where this one should have been closed.
    return line, line if rest and rest[0].isalnum() else end


def _closing_line(text: str, start: int, stop: int, run: str, *, opens_another: bool = False) -> tuple[int, int] | None:
    """Where the body ends and where reading goes on; None if nothing closes it."""
    at = start
    for _ in range(_RUNS_LOOKED_AT):
        at = text.find(run, at, stop)
        if at < 0:
            return None
        line = text.rfind("\n", start, at) + 1 or start
        end = _line_end(text, at, stop)
        rest = text[at:end].lstrip(run[0]).strip()
        if not text[line:at].strip():
            if not rest:
                return line, end
            # A block of no language that meets the opening of another was only a fence too many.
            if opens_another and _language(rest.split(maxsplit=1)[0]) in ("python", "calls"):
                return line, line
        at = end
    return None
