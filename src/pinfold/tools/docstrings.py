"""What a docstring says of a function and of each of its parameters: Google, NumPy and reST style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

from msgspec import Struct, field

_PARAMETERS = {"args", "arguments", "parameters", "params", "other parameters", "keyword args"}
_OTHERS = {
    *("returns", "return", "yields", "raises", "examples", "example", "notes", "note", "see also", "warns"),
    *("attributes", "references", "warnings", "todo"),
}
_FIELD = re.compile(r":(?P<kind>\w+)(?:[ \t]+(?P<rest>[^:\n]*))?:[ \t]*(?P<text>.*)")
_ITEM = re.compile(r"\*{0,2}(?P<name>\w+)[ \t]*(?:\((?P<type>[^)]*)\))?[ \t]*:[ \t]*(?P<text>.*)")
_NUMPY_ITEM = re.compile(r"(?P<names>\*{0,2}\w+(?:[ \t]*,[ \t]*\*{0,2}\w+)*)[ \t]*(?::.*)?")


class Described(Struct, frozen=True):
    text: str
    """Without what it says of parameters, results and errors."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def describe_function(function: Callable[..., object]) -> Described:
    return read_docstring(inspect.getdoc(function) or "")


def read_docstring(text: str) -> Described:
    lines = text.splitlines()
    told: list[str] = []
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        title = lines[at].strip().rstrip(":").lower()
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        if (title in _PARAMETERS or title in _OTHERS) and len(below) > 2 and set(below) == {"-"}:
            end = _end_of_numpy(lines, at + 2)
            if title in _PARAMETERS:
                found |= _numpy_items(lines[at + 2 : end])
        elif (title in _PARAMETERS or title in _OTHERS) and lines[at].strip().endswith(":"):
            end = _end_of_indented(lines, at + 1)
            if end == at + 1:  # a heading with nothing below it is prose
                told.append(lines[at])
            elif title in _PARAMETERS:
                found |= _google_items(lines[at + 1 : end])
        elif field_ := _FIELD.fullmatch(lines[at].strip()):
            end = _end_of_indented(lines, at + 1)
            name = (field_["rest"] or "").split()[-1:]
            if field_["kind"] in ("param", "parameter", "arg", "argument") and name:
                found[name[0].lstrip("*")] = _one_line([field_["text"], *lines[at + 1 : end]])
        else:
            told.append(lines[at])
            end = at + 1
        at = end
    return Described("\n".join(told).strip(), found)


def _end_of_indented(lines: list[str], start: int) -> int:
    end = start
    for at in range(start, len(lines)):
        if lines[at].strip():
            if not lines[at][0].isspace():
                break
            end = at + 1
    return end


def _end_of_numpy(lines: list[str], start: int) -> int:
    for at in range(start, len(lines) - 1):
        below = lines[at + 1].strip()
        if lines[at].strip() and len(below) > 2 and set(below) == {"-"}:
            return at
    return len(lines)


def _google_items(lines: list[str]) -> dict[str, str]:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    items: dict[str, list[str]] = {}
    texts: list[str] = []
    for line in lines:
        item = _ITEM.fullmatch(line.strip())
        if item and len(line) - len(line.lstrip()) == indent:
            texts = items.setdefault(item["name"], [item["text"]])
        else:
            texts.append(line)
    return {name: _one_line(texts) for name, texts in items.items()}


def _numpy_items(lines: list[str]) -> dict[str, str]:
    items: dict[str, list[str]] = {}
    texts: list[str] = []
    for line in lines:
        item = _NUMPY_ITEM.fullmatch(line.rstrip())
        if item:
            texts = []
            for name in item["names"].split(","):
                items[name.strip().lstrip("*")] = texts
        else:
            texts.append(line)
    return {name: _one_line(texts) for name, texts in items.items()}


def _one_line(texts: list[str]) -> str:
    return " ".join(" ".join(texts).split())
