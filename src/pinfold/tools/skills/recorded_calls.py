"""Calls of a function that become its tests: from its docstring, from the session's cells, and as a skill keeps them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

from pinfold.events import Json
from pinfold.tools.results import BadTool

MOST = 50
"""Calls of one function."""
_LONGEST = 4000
"""Characters of a result that are compared."""
_MAX_BYTES = 256 << 10


Cell: TypeAlias = tuple[int, str, str | None]
"""Its number, its code, and the text of its last expression."""


class RecordedCall(Struct, frozen=True, kw_only=True):
    args: dict[str, Json]
    origin: str
    """Where it was made, such as `cell 3`."""
    shown: str | None = None
    """The result as Python writes it, if it is known from there."""
    returns: Json = None
    """The result as JSON, once it was tried."""


def read_calls(data: bytes, source: str) -> tuple[RecordedCall, ...]:
    """As a skill keeps them. Raises BadTool."""
    try:
        if len(data) > _MAX_BYTES:
            raise BadTool(f"{source}: it is larger than {_MAX_BYTES >> 10} kB")
        return msgspec.json.decode(data, type=tuple[RecordedCall, ...])[:MOST]
    except msgspec.MsgspecError as error:
        raise BadTool(f"{source}: it is not a list of calls: {error}") from error


def write_calls(calls: Iterable[RecordedCall]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(list(calls)), indent=1) + b"\n"


def calls_in_docstring(docstring: str, name: str, parameters: tuple[str, ...]) -> list[RecordedCall]:
    """Of `>>> name(...)` lines with plain arguments, and what stands below them."""
    import doctest  # takes a while

    try:
        examples = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        return []
    found: list[RecordedCall] = []
    for one in examples:
        tree = _parse(one.source)
        body = tree.body[0] if tree and len(tree.body) == 1 else None
        if isinstance(body, ast.Expr) and (args := _arguments(body.value, name, parameters, {})) is not None:
            found.append(RecordedCall(args=args, origin="its docstring", shown=one.want.strip() or None))
    return found


def calls_in_cells(cells: Iterable[Cell], name: str, parameters: tuple[str, ...], file: str) -> list[RecordedCall]:
    """From cells that went well.

    A cell that defines the function, or names its file, may have changed it: calls before that no longer count.
    """
    found: list[RecordedCall] = []
    known: dict[str, Json] = {}
    for number, code, value in cells:
        tree = _parse(code)
        if tree is None:
            continue
        if file in code or any(isinstance(one, ast.FunctionDef) and one.name == name for one in tree.body):
            found.clear()
        last = tree.body[-1] if tree.body else None
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                literal = _literal(node.value, {})
                known.pop(node.targets[0].id, None)
                if literal is not _UNKNOWN:
                    known[node.targets[0].id] = literal
        for node in ast.walk(tree):
            args = _arguments(node, name, parameters, known)
            if args is not None:
                is_last = isinstance(last, ast.Expr) and last.value is node
                shown = value if is_last and value is not None and len(value) <= _LONGEST else None
                found.append(RecordedCall(args=args, origin=f"cell {number}", shown=shown))
    unique = {json.dumps(one.args, sort_keys=True): one for one in sorted(found, key=lambda one: one.shown is not None)}
    return list(unique.values())[:MOST]


_UNKNOWN = object()


def _parse(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):  # magics, or not Python
        return None


def _arguments(
    node: ast.AST, name: str, parameters: tuple[str, ...], known: Mapping[str, Json]
) -> dict[str, Json] | None:
    """By name, of a call with plain values; None for anything else."""
    if not isinstance(node, ast.Call) or len(node.args) > len(parameters):
        return None
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called != name:
        return None
    pairs = [*zip(parameters, node.args, strict=False), *((one.arg or "", one.value) for one in node.keywords)]
    args = {key: _literal(value, known) for key, value in pairs}
    is_plain = all(key in parameters and value is not _UNKNOWN for key, value in args.items())
    return args if is_plain else None


def _literal(node: ast.expr, known: Mapping[str, Json]) -> Json:
    """The value of an expression that JSON can hold, or `_UNKNOWN`."""
    if isinstance(node, ast.Name):
        return known.get(node.id, _UNKNOWN)
    try:
        return json.loads(json.dumps(ast.literal_eval(node), allow_nan=False))
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        return _UNKNOWN
