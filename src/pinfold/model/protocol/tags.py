"""`<tool name="x">` and its kin: what stands between the tags, as a call."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import cast

from pinfold.events import Finish, Json
from pinfold.model.protocol import python_calls
from pinfold.model.protocol.effort import Effort
from pinfold.model.protocol.fences import OPENING, fence_at
from pinfold.model.protocol.known_tools import BARE, Fault, KnownTools, ParsedCall
from pinfold.model.protocol.lenient_json import Place, Unreadable, value_at
from pinfold.model.protocol.objects import calls_in

_NAMED = re.compile(r"\b(?:name|tool|function)[ \t]*+[=:][ \t]*+[\"'“”‘’]?+(?P<name>[\w.-]{1,64}+)")  # noqa: RUF001
_NAMED_FIRST = re.compile(r"[=:]?+[ \t]*+[\"'“”‘’]?+(?P<name>[\w.-]{1,64}+)[\"'“”‘’]?+/?+\Z")  # noqa: RUF001
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
    """It names its tool, as the form that is asked for does."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The text between two tags."""

    text: str
    start: int
    stop: int
    """Of what may be looked at."""
    end: int
    """Of the body, as far as the closing tag tells."""
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
        # Within a string of the code it closes nothing.
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
    """`<tool_call>` and the like: the name is in the JSON, or it is a call as Python writes it."""
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
    return Tag(tuple(python_calls.calls_of(content, known, effort) or [Fault(_NOT_A_CALL)]), body.after)


_NOT_A_CALL = 'What stands in <tool_call> is no call. Write {"name": ..., "arguments": {...}} there, as valid JSON.'


def _unreadable(error: Unreadable, finish: Finish) -> str:
    if error.cut and finish == "length":
        return "The reply was cut off within a call, which was not run. Write it again, shorter."
    return f'A call was not run: {error}. Write {{"name": ..., "arguments": {{...}}}} as valid JSON.'


def _read_named_tag(tool: str, body: _Place, known: KnownTools, finish: Finish, effort: Effort) -> Tag:
    begins = _VALUE.match(body.text, body.start, body.end)
    if begins and begins.group().endswith("{"):
        value, at = _json(body, begins.end() - 1, finish, effort)
        if isinstance(value, dict):
            args = cast("dict[str, Json]", value)
            # The whole call once more, where only its arguments belong.
            nested = "arguments" in args and "arguments" not in known.properties(tool)
            inner = calls_in(args, known, "perhaps", effort) if nested else []
            if inner or tool != known.python or isinstance(args.get("code"), str):
                return Tag(tuple(inner or [ParsedCall(tool, args)]), _behind(body, at), explicit=True)
        elif tool != known.python:
            why = "the reply was cut off within it; make it shorter"
            cut = isinstance(value, Unreadable) and value.cut and finish == "length"
            return Tag((known.fault(tool, why if cut else str(value)),), body.after)
    content = body.text[body.start : body.end]
    if tool == known.python:
        return Tag((_code(content, known, effort),), body.after, explicit=True)
    return Tag((_from_text(tool, content, known, effort),), body.after, explicit=True)


def _read_unknown_tool(tool: str, body: _Place, finish: Finish, effort: Effort) -> Tag:
    """A tool that the model was not told of in full: there may be one of that name, or there is somebody to say no."""
    begins = _VALUE.match(body.text, body.start, body.end)
    if begins and begins.group().endswith("{"):
        value, at = _json(body, begins.end() - 1, finish, effort)
        if isinstance(value, dict):
            return Tag((ParsedCall(tool, cast("dict[str, Json]", value)),), _behind(body, at), explicit=True)
        if isinstance(value, Unreadable):
            return Tag((Fault(_unreadable(value, finish)),), body.after)
    text = body.text[body.start : body.end].strip()
    return Tag((ParsedCall(tool, {BARE: text} if text else {}),), body.after, explicit=True)


def _json(body: _Place, start: int, finish: Finish, effort: Effort) -> tuple[Json | Unreadable, int]:
    place: Place = "prose" if not body.closed and finish == "length" else "block"
    try:
        found = value_at(body.text, start, body.stop, place=place, effort=effort, mend_to=body.end)
    except Unreadable as error:
        return error, start
    return found.value, found.end


def _behind(body: _Place, at: int) -> int:
    """Where to go on: JSON says by itself where it ends, whatever closing tags its strings hold."""
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
    calls = python_calls.calls_of(source, known, effort) if len(text) <= _LONGEST_TEXT else []
    if len(calls) == 1:
        return calls[0]
    name = known.only_text(tool)
    if name and "\n" not in text and "<" not in text and len(text) <= _LONGEST_TEXT:
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        return ParsedCall(tool, {name: text[1:-1] if quoted else text})
    return known.fault(tool, "its arguments are not a JSON object")
