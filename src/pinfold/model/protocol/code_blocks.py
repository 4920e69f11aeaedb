"""Finds code in a reply: fenced blocks, and Python as its own parser reads it.

Start, language and end of a block are found in linear time. Python's parser tells whether a text is code, and which
calls with literal arguments it holds.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from pinfold.events import Json
from pinfold.model.protocol.known_tools import Effort, Fault, KnownTools, ParsedCall

Language: TypeAlias = Literal["python", "calls", "bare", "other"]
"""`calls` stands for notations of tool calls, such as JSON; `bare` for a block that names no language."""

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
"""A fence after prose on the same line, accepted only if it is unambiguous."""
_RUNS_LOOKED_AT = 20_000
_HALF_A_FENCE = re.compile(r"\n[ \t]*+`{1,2}+[ \t\r\n]*+\Z")

# Skips Python strings and comments as a whole: a fence inside them closes nothing. A string without an end is skipped
# one character at a time, and an escape outside of strings as a unit, so that nothing is tried twice.
# No possessive groups: before Python 3.11.5, alternatives inside them may match wrongly.
_PASSED = (
    r"[^`\"'#\\]+|\\.|#[^\n]*|\"\"\".*?\"\"\"|'''.*?'''"
    r"|\"(?!\"\")[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'(?!'')[^'\\\n]*(?:\\.[^'\\\n]*)*'|[\"'\\]|(?<!`)`{1,%d}(?!`)"
)


@dataclass(frozen=True, slots=True)
class Fence:
    language: Language
    body: str
    start: int
    """Start of the body in the text; `stop` is its end."""
    stop: int
    end: int
    """End of the closing fence, or start of the next opening one."""


def fence_at(text: str, opening: re.Match[str], stop: int, effort: Effort) -> Fence | None:
    """Return the block that opens here; None if this is a run of backticks within a line."""
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
    # Drop the line end before the closing fence. If there is none, drop half a fence at the end.
    body = body.removesuffix("\n") if close else _HALF_A_FENCE.sub("", body)
    if width := len(opening["indent"]):  # of the fence itself
        body = re.sub(rf"^[ \t]{{1,{width}}}+", "", body, flags=re.MULTILINE)
    return Fence(language, body, start, end_of_body, end)


def holds(code: str) -> bool:
    """True if a fence of three backticks would hold exactly this code, whatever follows the fence."""
    # A string without an end would extend beyond the fence, up to the next quotes.
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
    """Parse a block on one line: ```` ```python print(1)``` ````"""
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
    """Find the first backticks outside of strings and comments, where Python has no other use for them."""
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
    # If another block opens here, this one was not closed.
    return line, line if rest and rest[0].isalnum() else end


def _closing_line(text: str, start: int, stop: int, run: str, *, opens_another: bool = False) -> tuple[int, int] | None:
    """Return the end of the body and where to continue; None if nothing closes it."""
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
            # A block without a language that meets the opening of another was a stray fence.
            if opens_another and _language(rest.split(maxsplit=1)[0]) in ("python", "calls"):
                return line, line
        at = end
    return None


_DEEPEST = 50
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\u2018\u2019", '"""\'\'')
_JSON_WORDS: dict[str, Json] = {"true": True, "false": False, "null": None}
_TOKEN = re.compile(
    # Escapes outside of strings are skipped too, else an escaped quote would be tried again and again.
    r"\"\"\".*?\"\"\"|'''.*?'''|\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'|\\.|[()\[\]{}]",
    re.DOTALL,
)
_LONGEST = 100_000
_STRING = re.compile(r"\"\"\".*?\"\"\"|'''.*?'''|#[^\n]*+|\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\\.", re.DOTALL)
_CLOSED_BY = {")": "(", "]": "[", "}": "{"}
_FUNCTIONS = frozenset(
    name for name, value in vars(builtins).items() if callable(value) and not isinstance(value, type)
)
"""Includes `print` and `sum`, but no types such as `range`: the repr of a value looks like a call of its type."""


class _NotLiteral(ValueError): ...


def bracket_end(text: str, start: int, stop: int, effort: Effort) -> int | None:
    """Return the position after the bracket that closes the one at `start`."""
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
    """Parse a program; None if it is not valid Python or too long."""
    if not effort.python(len(source)):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes in the model's code
            return ast.parse(source)
    # NUL raises ValueError, a lone surrogate UnicodeError, deep nesting RecursionError or MemoryError.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def calls_of(source: str, known: KnownTools, effort: Effort) -> list[ParsedCall | Fault]:
    """Return the calls if the text is nothing but calls of known tools, else none. Bad arguments give a Fault."""
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
    """True if a block without a language is meant to run: it is valid Python and has an effect.

    Values, tables and settings must not pass, although many of them are valid Python.
    """
    tree = parse_python(textwrap.dedent(source), effort) if len(source) <= _LONGEST else None
    return tree is not None and any(map(_does_something, tree.body))


def with_sound_code(call: ParsedCall | Fault, known: KnownTools, effort: Effort) -> ParsedCall | Fault:
    r"""Repair code whose escapes were decoded once too often.

    A `\n` in a string of the code has become a line end, which Python does not allow there.
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
    """True if it is one expression of names, constants and operators."""
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
            # `port = 8080` and `debug = true` may just as well be settings.
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
            # `df.head()` is a call, but `datetime.date(2024, 1, 2)` may be the repr of a value.
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
    names = tuple(known.properties(tool))
    args: dict[str, Json] = {}
    given = [(None, value) for value in call.args] + [(word.arg, word.value) for word in call.keywords]
    if len(call.args) > len(names):
        return known.fault(tool, f"it takes at most {len(names)} arguments")
    for place, (word, node) in enumerate(given):
        # An argument after `**` has no name.
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
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _NotLiteral("a dict whose keys are not strings")


def _plain_number(value: float) -> float:
    if isinstance(value, float) and math.isinf(value):
        raise _NotLiteral("infinite")
    if isinstance(value, int) and value.bit_length() > 1_000:
        raise _NotLiteral("too large")
    return value
