"""JSON values that are tool calls, in the spellings models use. Everything else is data, and left alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from pinfold.events import Json
from pinfold.model.protocol.effort import Effort
from pinfold.model.protocol.known_tools import BARE, Fault, KnownTools, ParsedCall
from pinfold.model.protocol.lenient_json import Unreadable, value_at
from pinfold.model.protocol.python_calls import with_sound_code

Meant: TypeAlias = Literal["surely", "perhaps"]
"""Whether where it stands says that it is a call, as `<tool_call>` does."""

_NAMES = ("name", "tool", "function", "tool_name", "function_name", "action")
_ARGS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")
_MANY = ("tool_calls", "tool_call", "function_call", "calls")
_QUOTE = "[\"'“”‘’]"  # noqa: RUF001
_CLEARLY = re.compile(
    rf"{_QUOTE}?+(?:{'|'.join(_NAMES)}){_QUOTE}?+\s*+[:=]\s*+{_QUOTE}(?P<name>[\w.-]{{1,64}}+){_QUOTE}"
)
_HAS_ARGS = re.compile(rf"{_QUOTE}(?:{'|'.join(_ARGS)}){_QUOTE}?+\s*+:|{_QUOTE}?+arguments{_QUOTE}?+\s*+:")
_LOOKED_AT = 2_000


def calls_in(value: Json, known: KnownTools, meant: Meant, effort: Effort) -> list[ParsedCall | Fault]:
    """The calls a value stands for; none if it is data."""
    if isinstance(value, list):
        return _calls_in_list(cast("list[Json]", value), known, meant, effort)
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


def _calls_in_list(values: list[Json], known: KnownTools, meant: Meant, effort: Effort) -> list[ParsedCall | Fault]:
    found: list[ParsedCall | Fault] = []
    for value in values:
        if not isinstance(value, dict) or not effort.step():
            return []
        calls = calls_in(value, known, meant, effort)
        if not calls:
            return []
        found += calls
    return found


def find_meant_tool(text: str, start: int, stop: int, known: KnownTools) -> str | None:
    """The tool of a call that could not be read as JSON, if it surely was meant as one."""
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
    """A tool that the model was not told of in full: there may be one of that name, or there is somebody to say no."""
    if isinstance(args, dict):
        return ParsedCall(tool, cast("dict[str, Json]", args))
    return ParsedCall(tool, {} if args in (None, "") else {BARE: args})


def _flat(tool: str, rest: Mapping[str, Json], known: KnownTools, meant: Meant) -> ParsedCall | Fault | None:
    """The arguments beside the name, or none at all."""
    fits = rest.keys() <= set(known.properties(tool)) and rest.keys() >= set(known.list_required(tool))
    if fits and (rest or known.list_required(tool) == ()):
        return ParsedCall(tool, dict(rest))
    if meant == "surely":
        return known.fault(tool, "it has no `arguments`")
    return None


def with_args(tool: str, args: Json, known: KnownTools, effort: Effort) -> ParsedCall | Fault | None:
    """The call with its arguments as they were given: an object, the JSON text of one, or the one text it takes."""
    if args is None or args == "":
        args = {}
    if isinstance(args, str):
        args = _from_text(tool, args, known, effort)
    if not isinstance(args, dict):
        return known.fault(tool, "its arguments are not a JSON object")
    given = cast("dict[str, Json]", args)
    if given.get("type") == "object" and isinstance(given.get("properties"), dict):
        return None  # the tool's own schema, told again
    return ParsedCall(tool, given)


def _from_text(tool: str, text: str, known: KnownTools, effort: Effort) -> Json:
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
