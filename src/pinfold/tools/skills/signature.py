"""Reads a function's signature from its source, as the schema of a tool. Runs none of the code."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, cast

from msgspec import Struct

from pinfold.events import Json
from pinfold.tools.arguments import REQUIRED, Argument, Docstring, Hint, read_docstring, schema_of, schema_of_type
from pinfold.tools.results import BadTool

_NAMES: Mapping[str, Hint] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list[Any],
    "dict": dict[str, Any],
    "Any": Any,
    "None": None,
}
_TAKEN = "use str, int, float, bool, list[...], dict[str, ...], Literal[...] or a union of them"
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class Signature(Struct, frozen=True, kw_only=True):
    arguments: tuple[Argument, ...]
    described: Docstring
    """Description from its docstring."""
    docstring: str
    written: str
    """Source of the signature: `(prices: list[float], period: int = 14) -> list[float]`."""
    returns: Mapping[str, Json] | None = None

    @property
    def parameters(self) -> Mapping[str, Json]:
        return schema_of(self.arguments, _no_model)


def _no_model() -> Any:
    raise BadTool(f"its types need more than JSON; {_TAKEN}")


def read_signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Signature:
    """Read a signature. Raises BadTool with what to change."""
    name, given = function.name, function.args
    if isinstance(function, ast.AsyncFunctionDef) or _yields(function):
        raise BadTool(f"{name} is async or yields; return a list or a value instead")
    if not _TOOL.fullmatch(name):
        raise BadTool(f"{name!r} cannot be a tool's name: use letters, digits and underscores")
    if given.vararg or given.kwarg or given.posonlyargs:
        raise BadTool(f"{name} takes arguments that cannot be passed by name; name each one")
    docstring = ast.get_docstring(function) or ""
    described = read_docstring(docstring.partition(">>>")[0])
    if not described.text.strip():
        raise BadTool(f"{name} has no docstring; say in a sentence what it does: the model chooses by it")
    defaults = [None] * (len(given.args) - len(given.defaults)) + list(given.defaults) + list(given.kw_defaults)
    arguments = [
        Argument(
            name=one.arg,
            hint=_type_of(one.annotation, f"parameter {one.arg!r} of {name}"),
            default=REQUIRED if default is None else _default(default, f"parameter {one.arg!r} of {name}"),
            description=described.parameters.get(one.arg, ""),
        )
        for one, default in zip((*given.args, *given.kwonlyargs), defaults, strict=True)
    ]
    returns = schema_of_type(_type_of(function.returns, f"the result of {name}", is_result=True))
    arrow = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    written = f"({ast.unparse(given)}){arrow}"
    _ = schema_of(arguments, _no_model)
    return Signature(
        arguments=tuple(arguments), described=described, docstring=docstring, written=written, returns=returns or None
    )


def _yields(function: ast.AST) -> bool:
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    below = [node for node in ast.iter_child_nodes(function) if not isinstance(node, inner)]
    return any(isinstance(node, ast.Yield | ast.YieldFrom) or _yields(node) for node in below)


def _default(node: ast.expr, what: str) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise BadTool(f"the default of {what} is not a plain value; write it out or use None") from error


def _type_of(node: ast.expr | None, what: str, *, is_result: bool = False) -> Hint:
    """Return the type that an annotation names, without evaluating it. Raises BadTool."""
    match node:
        case None if is_result:
            return Any
        case None:
            raise BadTool(f"{what} has no type; {_TAKEN}")
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):
            try:
                return _type_of(ast.parse(text, mode="eval").body, what, is_result=is_result)
            except SyntaxError as error:
                raise BadTool(f"{what} has a type that cannot be read; {_TAKEN}") from error
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Name(id="tuple") | ast.Subscript(value=ast.Name(id="tuple" | "Tuple")) if is_result:
            return list[Any]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([_type_of(left, what, is_result=is_result), _type_of(right, what, is_result=is_result)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name, inner, what, is_result)
        case _:
            raise BadTool(f"{what} has the type {ast.unparse(node)}, which JSON cannot hold; {_TAKEN}")


def _generic(name: str, inner: ast.expr, what: str, is_result: bool) -> Hint:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        values = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if len(values) == len(parts):
            return cast("Any", Literal)[tuple(values)]
    elif name in ("list", "List") and len(parts) == 1:
        return types.GenericAlias(list, (_type_of(parts[0], what, is_result=is_result),))
    elif name in ("dict", "Dict") and len(parts) == 2 and _type_of(parts[0], what) is str:
        return types.GenericAlias(dict, (str, _type_of(parts[1], what, is_result=is_result)))
    elif name == "Optional" and len(parts) == 1:
        return _union([_type_of(parts[0], what, is_result=is_result), None])
    raise BadTool(f"{what} has the type {name}[{ast.unparse(inner)}], which JSON cannot hold; {_TAKEN}")


def _union(members: list[Hint]) -> Hint:
    """Return the union of the types, None last as in schemas."""
    if Any in members:
        return Any
    plain = [member for member in members if member is not None]
    whole: Hint = plain[0] if plain else None
    for member in plain[1:]:
        whole = whole | member
    return whole | None if plain and None in members else whole
