"""Reads tool calls from JSON values and tags such as `<tool name="x">`, in the variants models use."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from pinfold.events import Finish, Json
from pinfold.model.protocol import code_blocks
from pinfold.model.protocol.code_blocks import OPENING, fence_at, with_sound_code
from pinfold.model.protocol.known_tools import BARE, QUOTES, Effort, Fault, KnownTools, ParsedCall
from pinfold.model.protocol.lenient_json import Place, Unreadable, value_at

Meant: TypeAlias = Literal["surely", "perhaps"]
"""`surely`: the place of the value marks it as a call, as `<tool_call>` does."""

_NAMES = ("name", "tool", "function", "tool_name", "function_name", "action")
_ARGS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")
_MANY = ("tool_calls", "tool_call", "function_call", "calls")
_QUOTE = f"[{QUOTES}]"
_CLEARLY = re.compile(
    rf"{_QUOTE}?+(?:{'|'.join(_NAMES)}){_QUOTE}?+\s*+[:=]\s*+{_QUOTE}(?P<name>[\w.-]{{1,64}}+){_QUOTE}"
)
_HAS_ARGS = re.compile(rf"{_QUOTE}(?:{'|'.join(_ARGS)}){_QUOTE}?+\s*+:|{_QUOTE}?+arguments{_QUOTE}?+\s*+:")
_LOOKED_AT = 2_000


def calls_in(value: Json, known: KnownTools, meant: Meant, effort: Effort) -> list[ParsedCall | Fault]:
    """Return the calls that a JSON value represents; none if it is data."""
    if isinstance(value, list):
        several: list[ParsedCall | Fault] = []
        for one in cast("list[Json]", value):
            calls = calls_in(one, known, meant, effort) if isinstance(one, dict) and effort.step() else []
            if not calls:
                return []
            several += calls
        return several
    if not isinstance(value, dict):
        return []
    found = cast("dict[str, Json]", value)
    for key in _MANY:
        inner = found.get(key)
        if isinstance(inner, list | dict):
            return calls_in(inner, known, meant, effort)
    if isinstance(function := found.get("function"), dict):
        return calls_in(function, known, meant, effort)
    call = _call(found, known, meant, effort)
    return [with_sound_code(call, known, effort)] if call else []


def find_meant_tool(text: str, start: int, stop: int, known: KnownTools) -> str | None:
    """Return the tool of a call whose JSON could not be read, if it clearly was meant as a call."""
    stop = min(stop, start + _LOOKED_AT)
    name = _CLEARLY.search(text, start, stop)
    tool = known.find_tool(name["name"]) if name else None
    return tool if tool and _HAS_ARGS.search(text, start, stop) else None


def _call(found: Mapping[str, Json], known: KnownTools, meant: Meant, effort: Effort) -> ParsedCall | Fault | None:
    key = next((key for key in _NAMES if isinstance(found.get(key), str)), None)
    if key is None:
        return None
    tool = known.find_tool(found[key])
    args_key = next((name for name in _ARGS if name in found), None)
    if tool is None:
        is_one = meant == "surely" or set(found) == {key, "arguments"}
        return _call_unknown_tool(str(found[key]), found[args_key] if args_key else {}) if is_one else None
    if args_key is None:
        return _flat(tool, {name: item for name, item in found.items() if name != key}, known, meant)
    return with_args(tool, found[args_key], known, effort)


def _call_unknown_tool(tool: str, args: Json) -> ParsedCall:
    """Build a call of a tool whose schema the model was not shown. The engine knows whether the tool exists."""
    if isinstance(args, dict):
        return ParsedCall(tool, cast("dict[str, Json]", args))
    return ParsedCall(tool, {} if args in (None, "") else {BARE: args})


def _flat(tool: str, rest: Mapping[str, Json], known: KnownTools, meant: Meant) -> ParsedCall | Fault | None:
    """Build a call whose arguments are fields next to the name, or that has none."""
    fits = rest.keys() <= set(known.properties(tool)) and rest.keys() >= set(known.list_required(tool))
    if fits and (rest or known.list_required(tool) == ()):
        return ParsedCall(tool, dict(rest))
    if meant == "surely":
        return known.fault(tool, "it has no `arguments`")
    return None


def with_args(tool: str, args: Json, known: KnownTools, effort: Effort) -> ParsedCall | Fault | None:
    """Build a call from its arguments: an object, an object as JSON text, or the tool's only text argument."""
    if args is None or args == "":
        args = {}
    if isinstance(args, str):
        args = _parse_arguments(tool, args, known, effort)
    if not isinstance(args, dict):
        return known.fault(tool, "its arguments are not a JSON object")
    given = cast("dict[str, Json]", args)
    if given.get("type") == "object" and isinstance(given.get("properties"), dict):
        return None  # the model repeated the tool's schema
    return ParsedCall(tool, given)


def _parse_arguments(tool: str, text: str, known: KnownTools, effort: Effort) -> Json:
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            found = value_at(stripped, 0, len(stripped), place="block", effort=effort)
        except Unreadable:
            pass
        else:
            if not stripped[found.end :].strip():
                return found.value
    name = known.only_text(tool)
    return {name: text} if name else None


_NAMED = re.compile(rf"\b(?:name|tool|function)[ \t]*+[=:][ \t]*+{_QUOTE}?+(?P<name>[\w.-]{{1,64}}+)")
_NAMED_FIRST = re.compile(rf"[=:]?+[ \t]*+{_QUOTE}?+(?P<name>[\w.-]{{1,64}}+){_QUOTE}?+/?+\Z")
_VALUE = re.compile(r"[\s,;]*+[{\[]")
_KEYWORDS = re.compile(r"\s*+[A-Za-z_]\w*+\s*+=(?!=)")
_CLOSERS_TRIED = 8
_MOST = 64
_LONGEST_TEXT = 2_000


@dataclass(frozen=True, slots=True)
class Tag:
    calls: tuple[ParsedCall | Fault, ...]
    end: int
    explicit: bool = False
    """True if the tag names its tool, as in the form the prompt asks for."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The body of a tag: positions in the text."""

    text: str
    start: int
    stop: int
    """End of the text that may be read."""
    end: int
    """End of the body, judged by the closing tag."""
    after: int
    closed: bool


def tag_at(text: str, opening: re.Match[str], stop: int, known: KnownTools, *, finish: Finish, effort: Effort) -> Tag:
    attributes = opening["attributes"].strip()
    if text[opening.start() - 1 : opening.start()] == "`" and text[opening.end() : opening.end() + 1] == "`":
        return Tag((), opening.end())
    name = _NAMED.search(attributes) or _NAMED_FIRST.match(attributes)
    body = _body(text, opening, stop, effort)
    if name is None:
        return _read_unnamed_tag(body, known, finish, effort)
    tool = known.find_tool(name["name"])
    if attributes.endswith("/"):
        call = _without_args(tool, known) if tool else ParsedCall(name["name"], {})
        return Tag((call,), opening.end(), explicit=True)
    if tool is None:
        return _read_unknown_tool(name["name"], body, finish, effort)
    return _read_named_tag(tool, body, known, finish, effort)


def _body(text: str, opening: re.Match[str], stop: int, effort: Effort) -> _Place:
    closing = f"</{opening['tag'].lower()}>"
    start = opening.end()
    end = at = start
    for _ in range(_CLOSERS_TRIED):
        at = effort.find(text, closing, at, stop)
        if at < 0:
            break
        end, at = at, at + len(closing)
        # A closing tag inside a string of the code does not count.
        if text[at : at + 1] not in ("'", '"', ")"):
            break
    else:
        at = -1
    again = effort.find(text, f"\n<{opening['tag']} ", start, stop)
    if at < 0 and again < 0:
        return _Place(text, start, stop, stop, stop, closed=False)
    if at < 0 or 0 <= again < end:
        return _Place(text, start, stop, again, again, closed=True)
    return _Place(text, start, stop, end, at, closed=True)


def _read_unnamed_tag(body: _Place, known: KnownTools, finish: Finish, effort: Effort) -> Tag:
    """Read a tag without a tool name, such as `<tool_call>`: the name is in its JSON, or in a Python call."""
    at = body.start
    calls: list[ParsedCall | Fault] = []
    while len(calls) < _MOST and (begins := _VALUE.match(body.text, at, body.end)):
        value, at = _json(body, begins.end() - 1, finish, effort)
        if isinstance(value, Unreadable):
            return Tag((*calls, Fault(_unreadable(value, finish))), body.after)
        calls += calls_in(value, known, "surely", effort) or [Fault(_NOT_A_CALL)]
    if calls:
        return Tag(tuple(calls), _behind(body, at))
    content = body.text[body.start : body.end].strip()
    if not content:
        return Tag((), body.after)
    return Tag(tuple(code_blocks.calls_of(content, known, effort) or [Fault(_NOT_A_CALL)]), body.after)


_NOT_A_CALL = 'The content of <tool_call> is not a call. Write {"name": ..., "arguments": {...}} there, as valid JSON.'


def _unreadable(error: Unreadable, finish: Finish) -> str:
    if error.cut and finish == "length":
        return "The reply was cut off within a call, which was not run. Write it again, shorter."
    return f'A call was not run: {error}. Write {{"name": ..., "arguments": {{...}}}} as valid JSON.'


def _read_named_tag(tool: str, body: _Place, known: KnownTools, finish: Finish, effort: Effort) -> Tag:
    value, at = _object(body, finish, effort)
    if isinstance(value, Unreadable):
        if tool != known.python:
            return Tag((unreadable_call(tool, value, known, finish),), body.after)
    elif value is not None:
        # Some models repeat the whole call where only its arguments belong.
        nested = "arguments" in value and "arguments" not in known.properties(tool)
        inner = calls_in(value, known, "perhaps", effort) if nested else []
        if inner or tool != known.python or isinstance(value.get("code"), str):
            return Tag(tuple(inner or [ParsedCall(tool, value)]), _behind(body, at), explicit=True)
    content = body.text[body.start : body.end]
    if tool == known.python:
        return Tag((_code(content, known, effort),), body.after, explicit=True)
    return Tag((_from_text(tool, content, known, effort),), body.after, explicit=True)


def unreadable_call(tool: str, error: Unreadable, known: KnownTools, finish: Finish) -> Fault:
    cut = error.cut and finish == "length"
    return known.fault(tool, "the reply was cut off within it; make it shorter" if cut else str(error))


def _read_unknown_tool(tool: str, body: _Place, finish: Finish, effort: Effort) -> Tag:
    value, at = _object(body, finish, effort)
    if isinstance(value, Unreadable):
        return Tag((Fault(_unreadable(value, finish)),), body.after)
    if value is not None:
        return Tag((ParsedCall(tool, value),), _behind(body, at), explicit=True)
    text = body.text[body.start : body.end].strip()
    return Tag((_call_unknown_tool(tool, text),), body.after, explicit=True)


def _object(body: _Place, finish: Finish, effort: Effort) -> tuple[dict[str, Json] | Unreadable | None, int]:
    """Return the JSON object that the body begins with, and where it ends; None if it begins with something else."""
    begins = _VALUE.match(body.text, body.start, body.end)
    if not begins or begins.group().endswith("["):
        return None, body.start
    return _json(body, begins.end() - 1, finish, effort)


def _json(body: _Place, start: int, finish: Finish, effort: Effort) -> tuple[Json | Unreadable, int]:
    place: Place = "prose" if not body.closed and finish == "length" else "block"
    try:
        found = value_at(body.text, start, body.stop, place=place, effort=effort, mend_to=body.end)
    except Unreadable as error:
        return error, start
    return found.value, found.end


def _behind(body: _Place, at: int) -> int:
    """Return where to continue after JSON that ends at `at`. Its strings may contain closing tags."""
    closing = re.compile(r"[\s\]};,]*+(?:</\w{1,20}+>)?+").match(body.text, at, body.stop)
    return closing.end() if closing else at


def _code(content: str, known: KnownTools, effort: Effort) -> ParsedCall | Fault:
    text = content.strip()
    opening = OPENING.match(text)
    fence = fence_at(text, opening, len(text), effort) if opening else None
    code = fence.body if fence else content.strip("\r\n").rstrip()
    if not code.strip():
        return known.fault("python", "it has no code")
    return ParsedCall("python", {"code": textwrap.dedent(code) if code[0] in " \t" else code})


def _without_args(tool: str, known: KnownTools) -> ParsedCall | Fault:
    if needed := known.list_required(tool):
        return known.fault(tool, f"it needs {', '.join(needed)}")
    return ParsedCall(tool, {})


def _from_text(tool: str, content: str, known: KnownTools, effort: Effort) -> ParsedCall | Fault:
    text = content.strip()
    if not text:
        return _without_args(tool, known)
    source = f"{tool}({text})" if _KEYWORDS.match(text) else text
    calls = code_blocks.calls_of(source, known, effort) if len(text) <= _LONGEST_TEXT else []
    if len(calls) == 1:
        return calls[0]
    name = known.only_text(tool)
    if name and "\n" not in text and "<" not in text and len(text) <= _LONGEST_TEXT:
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        return ParsedCall(tool, {name: text[1:-1] if quoted else text})
    return known.fault(tool, "its arguments are not a JSON object")
