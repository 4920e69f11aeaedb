"""Calls of a function that become its tests: found in its docstring and in the session's cells, stored with a skill."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

from pinfold.events import Json, decode_json
from pinfold.tools.results import BadTool

MOST = 50
"""Maximum number of calls per function."""
_LONGEST = 4000
"""Maximum characters of a result; longer ones are not compared."""
_PLAIN = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Assert)
_MAX_BYTES = 256 << 10


Cell: TypeAlias = tuple[int, str, str | None]
"""A cell's number, its code, and the text of its last expression."""


class RecordedCall(Struct, frozen=True, kw_only=True):
    args: dict[str, Json]
    origin: str
    """Where the call was found, such as `cell 3`."""
    shown: str | None = None
    """The repr of the result, if the origin shows it."""
    returns: Json = None
    """The result as JSON, once the call was run as a test."""


def read_calls(data: bytes, source: str) -> tuple[RecordedCall, ...]:
    """Parse the calls stored with a skill. Raises BadTool."""
    try:
        if len(data) > _MAX_BYTES:
            raise BadTool(f"{source}: it is larger than {_MAX_BYTES >> 10} kB")
        return decode_json(data, tuple[RecordedCall, ...])[:MOST]
    except msgspec.MsgspecError as error:
        raise BadTool(f"{source}: it is not a list of calls: {error}") from error


def write_calls(calls: Iterable[RecordedCall]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(list(calls)), indent=1) + b"\n"


def calls_in_docstring(docstring: str, name: str, parameters: tuple[str, ...]) -> list[RecordedCall]:
    """Find `>>> name(...)` lines with plain arguments, and the results below them."""
    import doctest  # slow to import

    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return []
    found: list[RecordedCall] = []
    for one in examples:
        tree = _parse(one.source)
        body = tree.body[0] if tree and len(tree.body) == 1 else None
        call = body.value if isinstance(body, ast.Expr) else None
        if not isinstance(call, ast.Call) or not _is_call_of(call, name, ""):
            continue
        if (args := _arguments(call, parameters, {})) is not None:
            found.append(RecordedCall(args=args, origin="its docstring", shown=one.want.strip() or None))
    return found


def calls_in_cells(cells: Iterable[Cell], name: str, parameters: tuple[str, ...], file: str) -> list[RecordedCall]:
    """Find calls in cells that succeeded.

    A cell that defines the function, or names its file, may have changed it: earlier calls no longer count.
    """
    found: list[RecordedCall] = []
    for number, code, value in cells:
        tree = _parse(code)
        if tree is None:
            continue
        if file in code or any(isinstance(one, ast.FunctionDef) and one.name == name for one in tree.body):
            found.clear()
        last = tree.body[-1] if tree.body else None
        calls = [one for one in _walk_certain(tree) if isinstance(one, ast.Call) and _is_call_of(one, name, file)]
        known = _constants(tree, calls)
        for call in calls:
            args = _arguments(call, parameters, known)
            if args is not None:
                is_last = isinstance(last, ast.Expr) and last.value is call
                shown = value if is_last and value is not None and len(value) <= _LONGEST else None
                found.append(RecordedCall(args=args, origin=f"cell {number}", shown=shown))
    unique = {json.dumps(one.args, sort_keys=True): one for one in sorted(found, key=lambda one: one.shown is not None)}
    return list(unique.values())[:MOST]


def _walk_certain(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that certainly ran, without an error, in a cell that succeeded."""
    for below in ast.iter_child_nodes(node):
        if not isinstance(below, ast.stmt | ast.Lambda | ast.IfExp | ast.BoolOp) or isinstance(below, _PLAIN):
            yield below
            yield from _walk_certain(below)


def _is_call_of(call: ast.Call, name: str, file: str) -> bool:
    match call.func:
        case ast.Name(id=called):
            return called == name
        case ast.Attribute(value=ast.Name(id=module), attr=called):
            return called == name and module == file.removesuffix(".py")
        case _:
            return False


def _constants(tree: ast.Module, calls: Iterable[ast.Call]) -> dict[str, Json]:
    """Return variables bound to a plain value and used only in these calls, so that the value cannot have changed."""
    uses = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    for call in calls:
        given = [*call.args, *(one.value for one in call.keywords)]
        uses.subtract(one.id for one in given if isinstance(one, ast.Name))
    return {
        one.targets[0].id: _literal(one.value, {})
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and uses[one.targets[0].id] == 1
    }


_UNKNOWN = object()


def _parse(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):  # magics, or not Python
        return None


def _arguments(call: ast.Call, parameters: tuple[str, ...], known: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return a call's arguments by name; None unless all are plain values."""
    if len(call.args) > len(parameters):
        return None
    pairs = [*zip(parameters, call.args, strict=False), *((one.arg or "", one.value) for one in call.keywords)]
    args = {key: _literal(value, known) for key, value in pairs}
    is_plain = all(key in parameters and value is not _UNKNOWN for key, value in args.items())
    return args if is_plain else None


def _literal(node: ast.expr, known: Mapping[str, Json]) -> Json:
    """Return an expression's value if JSON can hold it, else `_UNKNOWN`."""
    if isinstance(node, ast.Name):
        return known.get(node.id, _UNKNOWN)
    try:
        return json.loads(json.dumps(ast.literal_eval(node), allow_nan=False))
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        return _UNKNOWN
