"""Corrects slightly wrong calls: names that other agents use, JSON inside text, `null`.

Runs before policy judges the call, so that policy judges exactly what runs. Only unambiguous calls are corrected; the
name of an existing tool is never changed.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

from pinfold.events import Json
from pinfold.tools.arguments import Argument

_NAMES: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_name("aliases.toml").read_text("utf-8"))
BUILT_IN = frozenset(_NAMES["tools"])
"""Names of all built-in tools, whether a session has them or not."""

_VALUES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("grep", "output_mode"): {"files_with_matches": "files", "content": "lines"}
}
_BARE = "input"
"""Argument name for plain text given instead of named arguments."""
_VERBS = ("operation", "action", "command", "op")
"""Arguments that choose an operation in other agents' tools: `memory` with `store` or `search`."""
_REMARKS = frozenset({"description", "explanation", "language", "purpose", "reason", "reasoning", "thought", "title"})
"""Arguments that models add although no built-in tool has them."""
_WRAPPERS = frozenset({"arguments", "args", "parameters", "params", "input", "kwargs", "properties"})
_PREFIXES = ("functions.", "tools.", "default_api.", "function.", "tool.")


def fold_name(name: str) -> str:
    """Return the same key for `ReadFile`, `read-file` and `read_file`."""
    return name.replace("-", "").replace("_", "").casefold()


def _by_alias(table: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for name, aliases in table.items():
        for alias in aliases.split():
            found.setdefault(fold_name(alias), {})[name] = None
    return {alias: tuple(names) for alias, names in found.items()}


_TOOLS_BY_ALIAS = _by_alias(_NAMES["tools"])
_ARGUMENTS_BY_ALIAS = _by_alias(_NAMES["arguments"])


def other_names(name: str) -> tuple[str, ...]:
    """Return the built-in tools that other agents call `name`."""
    return _TOOLS_BY_ALIAS.get(fold_name(name), ())


def meant_tools(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the existing tools that `name` may mean, most literal first. An existing name means only itself."""
    if name in known:
        return (name,)
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return meant_tools(name.removeprefix(prefix), known)
    same = tuple(one for one in known if fold_name(one) == fold_name(name))
    if same:
        return same if len(same) == 1 else ()
    return tuple(one for one in other_names(name) if one in known)


def split_verb(name: str, given: Json) -> tuple[str, Json]:
    """Turn a call of `memory` with the operation `store` into a call of `memory.store` without that argument."""
    args = _parse_json(given) if isinstance(given, str) else given
    if isinstance(args, Mapping):
        args = cast("Mapping[str, Json]", args)
        verb = next((key for key in _VERBS if isinstance(args.get(key), str)), None)
        if verb and other_names(together := f"{name}.{args[verb]}".lower()):
            return together, {key: value for key, value in args.items() if key != verb}
    return name, given


def meant_args(tool: str, arguments: Sequence[Argument], aliases: Mapping[str, str], given: Json) -> Json:
    """Return the arguments under the tool's own names. Unknown ones stay as they are, for the error message."""
    args = _as_object(given, arguments)
    if not isinstance(args, dict):
        return given
    known = {argument.name: argument for argument in arguments}
    meant: dict[str, Json] = {}
    for name, value in args.items():
        if name in known:
            meant[name] = value
            continue
        targets = _targets(name, known, aliases)
        free = [target for target in targets if target not in args]
        if not targets and (tool == "python" or (tool in BUILT_IN and fold_name(name) in _REMARKS)):
            continue  # an extra remark, or anything besides the code
        if len(free) == 1 and free[0] not in meant:
            meant[free[0]] = value
        else:
            meant[name] = value
    for name, argument in known.items():
        if name in meant:
            _mend(tool, argument, meant)
    return meant


def _as_object(given: Json, arguments: Sequence[Argument]) -> dict[str, Json] | None:
    """Return the arguments as an object, also from JSON text or with a superfluous wrapper removed."""
    if given is None:
        return {}
    if isinstance(given, str):
        parsed = _parse_json(given)
        given = {_BARE: given} if parsed is None else parsed
    if not isinstance(given, Mapping):
        return None
    args = dict(cast("Mapping[str, Json]", given))
    names = {argument.name for argument in arguments}
    while len(args) == 1 and args.keys() & _WRAPPERS - names:
        [inner] = args.values()
        parsed = _parse_json(inner) if isinstance(inner, str) else inner
        if not isinstance(parsed, Mapping):
            needed = [one for one in arguments if one.is_required] or arguments
            is_meant = isinstance(inner, str) and len(needed) == 1 and needed[0].takes_text
            return {needed[0].name: inner} if is_meant else args
        args = dict(cast("Mapping[str, Json]", parsed))
    return args


def _targets(name: str, known: Mapping[str, Argument], aliases: Mapping[str, str]) -> tuple[str, ...]:
    if (target := aliases.get(name)) and target in known:
        return (target,)
    same = tuple(one for one in known if fold_name(one) == fold_name(name))
    return same or tuple(one for one in _ARGUMENTS_BY_ALIAS.get(fold_name(name), ()) if one in known)


def _mend(tool: str, argument: Argument, meant: dict[str, Json]) -> None:
    name, value = argument.name, meant[argument.name]
    if value is None and not argument.is_required and not argument.takes_none:
        del meant[name]
    elif isinstance(value, str) and argument.takes_structure:
        parsed = _parse_json(value)
        if isinstance(parsed, list | dict):
            meant[name] = parsed
    elif isinstance(value, str):
        meant[name] = _VALUES.get((tool, name), {}).get(value, value)


def _parse_json(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
