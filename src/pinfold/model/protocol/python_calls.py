"""What Python's own parser can say of a piece of text: the literal calls it holds, and whether it is code at all."""

from __future__ import annotations

import ast
import builtins
import math
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import cast

from pinfold.events import Json
from pinfold.model.protocol.known_tools import Effort, Fault, KnownTools, ParsedCall

_DEEPEST = 50
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\u2018\u2019", '"""\'\'')
_JSON_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}
_TOKEN = re.compile(
    # What is escaped outside of a string is passed over too: a quote in it would be tried again and again.
    r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|\\.|[()\[\]{}]",
    re.DOTALL,
)
_LONGEST = 100_000
_STRING = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|#[^\n]*+|\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\\.", re.DOTALL)
_CLOSED_BY = {")": "(", "]": "[", "}": "{"}
_FUNCTIONS = frozenset(
    name for name, value in vars(builtins).items() if callable(value) and not isinstance(value, type)
)
"""`print` and `sum`, but not `range`: the text of a value looks like a call of its type."""


class _NotLiteral(ValueError):
    pass


def bracket_end(text: str, start: int, stop: int, effort: Effort) -> int | None:
    """Behind the bracket that closes the one at `start`."""
    opened: list[str] = []
    stop = start + effort.limit_lexing(min(stop - start, _LONGEST))
    for token in _TOKEN.finditer(text, start, stop):
        if not effort.step():
            return None
        char = token.group()
        if char in _CLOSED_BY:
            if not opened or opened.pop() != _CLOSED_BY[char]:
                return None
            if not opened:
                effort.lexed_chars += stop - token.end()
                return token.end()
        elif len(char) == 1:
            opened.append(char)
            if len(opened) > _DEEPEST:
                return None
    return None


def parse_python(source: str, effort: Effort) -> ast.Module | None:
    """The program, or None if it is none or too long to be looked at."""
    if not effort.python(len(source)):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the model's escapes: not ours to report
            return ast.parse(source)
    # NUL is a ValueError, a lone surrogate a UnicodeError, and too much nesting comes in two kinds.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def calls_of(source: str, known: KnownTools, effort: Effort) -> list[ParsedCall | Fault]:
    """The calls if the text is nothing but calls of known tools, each with literal arguments."""
    if len(source) > _LONGEST:
        return []
    tree = parse_python(source, effort)
    if tree is None and source != (straight := source.translate(_STRAIGHT)):
        tree = parse_python(straight, effort)
    if tree is None or not tree.body:
        return []
    found: list[ParsedCall | Fault] = []
    for node in _expressions(tree):
        call = _tool_call(node, known)
        if call is None:
            return []
        found.append(with_sound_code(_parse_call(*call, known), known, effort))
    return found


def is_code(source: str, effort: Effort) -> bool:
    """Whether a block that names no language is meant to run: it parses, and does something.

    Values, tables, settings and the like must not pass, although many of them are valid Python.
    """
    tree = parse_python(textwrap.dedent(source), effort) if len(source) <= _LONGEST else None
    return tree is not None and any(map(_does_something, tree.body))


def with_sound_code(call: ParsedCall | Fault, known: KnownTools, effort: Effort) -> ParsedCall | Fault:
    r"""Code that was written inside another string, with what that did to it taken back.

    A `\n` in a string of the code has become a line end there, which Python does not allow.
    """
    if isinstance(call, Fault) or call.tool != known.python or not isinstance(code := call.args.get("code"), str):
        return call
    if "\n" in code and len(code) <= _LONGEST and parse_python(code, effort) is None:
        again = _STRING.sub(_on_one_line, code)
        if parse_python(again, effort) is not None:
            return ParsedCall(call.tool, {**call.args, "code": again})
    return call


def _on_one_line(string: re.Match[str]) -> str:
    text = string.group()
    return text if text.startswith(("#", '"""', "'''")) else text.replace("\n", "\\n")


def calls_nothing(source: str, effort: Effort) -> bool:
    """Whether it is one expression of names, numbers and operators."""
    tree = parse_python(source.strip(), effort)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return False
    calm = (ast.expr, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
    wild = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.JoinedStr, ast.Lambda)
    return all(isinstance(node, calm) and not isinstance(node, wild) for node in ast.walk(tree.body[0].value))


def _does_something(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
            return _is_action(call)
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            # `port = 8080` and `debug = true` are as likely a file of settings.
            return not isinstance(value, ast.Constant | ast.Name | ast.Attribute)
        case ast.AnnAssign(value=value):
            return value is not None
        case ast.Expr() | ast.Pass():
            return False
        case _:
            return True


def _is_action(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name in _FUNCTIONS
        case ast.Attribute(value=ast.Name()):
            # `df.head()`; but datetime.date(2024, 1, 2) is how a value shows itself.
            return not call.args and not call.keywords
        case _:
            return True


def _expressions(tree: ast.Module) -> Iterator[ast.expr | None]:
    for statement in tree.body:
        match statement:
            case ast.Expr(value=ast.List(elts=items) | ast.Tuple(elts=items)) if items:
                yield from items
            case ast.Expr(value=value):
                yield value
            case _:
                yield None


def _tool_call(node: ast.expr | None, known: KnownTools) -> tuple[str, ast.Call] | None:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id="tools" | "functions" | "default_api"), attr=name)):
            pass
        case _:
            return None
    return (name, node) if name in known else None


def _parse_call(tool: str, call: ast.Call, known: KnownTools) -> ParsedCall | Fault:
    names = known.properties(tool)
    args: dict[str, Json] = {}
    given = [(None, value) for value in call.args] + [(word.arg, word.value) for word in call.keywords]
    if len(call.args) > len(names):
        return known.fault(tool, f"it takes at most {len(names)} arguments")
    for place, (word, node) in enumerate(given):
        # A `**` has no name.
        name = word if place >= len(call.args) else names[place]
        if name is None:
            return known.fault(tool, "its arguments must be plain values")
        if name in args:
            return known.fault(tool, f"`{name}` is given twice")
        try:
            args[name] = _literal(node, _DEEPEST)
        except _NotLiteral as error:
            return known.fault(tool, f"its arguments must be plain values, and `{name}` is {error}")
    return ParsedCall(tool, args)


def _literal(node: ast.expr, depth: int) -> Json:
    if not depth:
        raise _NotLiteral("nested too deep")
    match node:
        case ast.Constant(value=bool() | str() | None as value):
            return value
        case ast.Constant(value=int() | float() as value):
            return _plain_number(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -_plain_number(value)
        case ast.Name(id=name) if name in _JSON_WORDS:
            return _JSON_WORDS[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item, depth - 1) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value, depth - 1) for key, value in zip(keys, values, strict=True)}
        case ast.JoinedStr(values=parts) if all(isinstance(part, ast.Constant) for part in parts):
            return "".join(str(part.value) for part in cast("list[ast.Constant]", parts))
        case ast.Name(id=name):
            raise _NotLiteral(f"the variable {name}")
        case _:
            raise _NotLiteral("an expression")


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as key):
            return key
        case _:
            raise _NotLiteral("a dict whose keys are not strings")


def _plain_number(value: float) -> float:
    if isinstance(value, float) and math.isinf(value):
        raise _NotLiteral("infinite")
    if isinstance(value, int) and value.bit_length() > 1_000:
        raise _NotLiteral("too large")
    return value
