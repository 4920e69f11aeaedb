"""The tools `calculator`, `now`, `ask_user` and `answer`. Arithmetic is exact for integers and bounded in time."""

from __future__ import annotations

import ast
import builtins
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NoReturn, TypeAlias

from pinfold.text import closest, first_line
from pinfold.tools.results import BadCall
from pinfold.tools.tool import AnyTool, tool

Number: TypeAlias = int | float | bool
Value: TypeAlias = "Number | list[Value]"

LENGTH = 2_000
DEPTH = 200
BITS = 14_000
"""Maximum size of an integer: 4,214 digits, which Python still converts to text."""
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\u00a0": " "})  # noqa: RUF001
_PERCENT_OF = r"(?i)(\d[\d_]*\.?\d*)\s*%\s*of\b"
_PERCENT = r"(\d[\d_]*\.?\d*)\s*%(?=\s*(?:$|[),*/]))"
_UNCLEAR_PERCENT = r"\d\s*%\s*[+-]\s|[\w).]\s*[+-]\s*\d[\d_]*\.?\d*\s*%\s*(?:$|\))"
_COMMA = r"(?<![\w.(\[,])\d{1,3}(?:,\d{3})+(?![\w,])"


def _operators(pairs: str) -> Mapping[type[ast.AST], Callable[..., Number]]:
    """Map syntax nodes to functions of `operator`, from pairs such as `Add:add`."""
    split = [pair.split(":") for pair in pairs.split()]
    return {getattr(ast, node): getattr(operator, function) for node, function in split}


_BINARY = _operators(
    "Add:add Sub:sub Mult:mul Div:truediv FloorDiv:floordiv Mod:mod Pow:pow BitAnd:and_ BitOr:or_ LShift:lshift RShift:rshift"
)
_UNARY = _operators("UAdd:pos USub:neg Invert:invert Not:not_")
_COMPARE = _operators("Eq:eq NotEq:ne Lt:lt LtE:le Gt:gt GtE:ge")
_CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau, "inf": math.inf}
_OF_MATH = """
sqrt cbrt exp log log2 log10 log1p expm1 floor ceil trunc gcd sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh
atanh degrees radians hypot isqrt fsum erf gamma lgamma copysign fmod isnan isinf
"""


def _whole(name: str, *numbers: object) -> None:
    if not all(isinstance(number, int) for number in numbers):
        raise BadCall(f"{name} takes whole numbers")


def _factorial(n: int) -> int:
    _whole("factorial", n)
    if n > 1_500:  # a larger result would exceed BITS anyway
        _too_big()
    return math.factorial(n)


def _comb(n: int, k: int) -> int:
    _whole("comb", n, k)
    return math.comb(n, k) if min(k, n - k) * n.bit_length() <= 8 * BITS else _too_big()


def _perm(n: int, k: int | None = None) -> int:
    k = n if k is None else k
    _whole("perm", n, k)
    return math.perm(n, k) if k * n.bit_length() <= 8 * BITS else _too_big()


def _round(number: Number, digits: int | None = None) -> Number:
    if digits is None:
        return round(number)
    _whole("round to digits", digits)
    return round(number, max(-5_000, min(digits, 5_000)))  # more digits give the same result


def _prod(numbers: list[Number]) -> Number:
    return functools.reduce(lambda made, one: _check_size(made * one), numbers, 1)


def _lcm(*numbers: int) -> int:
    _whole("lcm", *numbers)
    return functools.reduce(lambda made, one: int(_check_size(math.lcm(made, one))), numbers, 1)


def _statistic(name: str) -> Callable[[list[Number]], Number]:
    def of(data: list[Number]) -> Number:
        import statistics

        return getattr(statistics, name)(data)

    return of


_FUNCTIONS: Mapping[str, Callable[..., Number | tuple[Number, ...]]] = {
    **{name: getattr(math, name) for name in _OF_MATH.split()},
    **{name: _statistic(name) for name in ("mean", "median", "mode", "stdev", "pstdev", "variance")},
    **{name: getattr(builtins, name) for name in ("abs", "divmod", "float", "int", "max", "min", "sum")},
    **{one.__name__[1:]: one for one in (_comb, _factorial, _lcm, _perm, _prod, _round)},
    **{name: getattr(operator, name) for name in ("mod", "xor")},
    "ln": math.log,
}


@tool(effect="pure", reach="nothing", cache=True, timeout_s=10.0, server="system")
def calculator(expression: str) -> str:
    """Work out an arithmetic expression, exactly for whole numbers: "2**64 % 97", "sqrt(2) * 3", "15% of 80".

    Args:
        expression: Python's operators, functions such as sqrt, log, sin, round, min, max, sum, mean, comb, factorial.
    """
    return _format_value(evaluate(expression))


def evaluate(expression: str) -> Value:
    """Return the value of an expression. Raises BadCall with what to change."""
    text = expression.translate(_SIGNS).strip().removesuffix("=").rstrip()
    if len(text) > LENGTH:
        raise BadCall(f"the expression has {len(text):,} characters; {LENGTH:,} is the most")
    if "^" in text:
        raise BadCall("'^' is ambiguous: write ** for a power, xor(a, b) for bits")
    if re.search(_UNCLEAR_PERCENT, text):
        raise BadCall("'%' next to a sign is ambiguous: write (10/100) for a percentage, mod(a, b) for the remainder")
    if not set(text) & set("([") and (number := re.search(_COMMA, text)):
        raise BadCall(f"write {number.group().replace(',', '')}, without commas")
    try:
        return _value(_parse_expression(text).body, 0)
    except BadCall:
        raise
    except ZeroDivisionError:
        raise BadCall("division by zero") from None
    except OverflowError:
        raise BadCall("the result is too large for a decimal number") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise BadCall(str(error)) from error


def _parse_expression(text: str) -> ast.Expression:
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        # Only text that is not Python is read as a percentage: `7 % 3` stays a remainder.
        percent = re.sub(_PERCENT, r"(\1/100)", re.sub(_PERCENT_OF, r"(\1/100)*", text))
        if percent != text:
            return _parse_expression(percent)
        where = f" near column {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise BadCall(f"this is not an expression{where}: write it as in Python, such as (2 + 3) * 4") from error


def _value(node: ast.expr, depth: int) -> Value:
    if depth > DEPTH:
        raise BadCall(f"it is nested deeper than {DEPTH}; work it out in parts")
    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            return _check_size(number)
        case ast.BinOp():
            return _binary(node, depth)
        case ast.UnaryOp(op=sign, operand=inner):
            return _check_size(_UNARY[type(sign)](_number(inner, depth)))
        case ast.Compare(left=left, ops=signs, comparators=others):
            if odd := next((type(sign).__name__ for sign in signs if type(sign) not in _COMPARE), ""):
                raise BadCall(f"{odd} is not arithmetic; compare with ==, !=, <, <=, >, >=")
            values = [_number(one, depth) for one in (left, *others)]
            return all(_COMPARE[type(sign)](a, b) for sign, a, b in zip(signs, values, values[1:], strict=False))
        case ast.Name(id=name):
            if name in _CONSTANTS:
                return _CONSTANTS[name]
            raise BadCall(f"unknown name {name!r}; there are {', '.join(_CONSTANTS)} and functions such as sqrt(2)")
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, depth + 1) for item in items]
        case ast.Call():
            return _call_function(node, depth)
        case _:
            raise BadCall(f"{type(node).__name__} is not arithmetic; use the python tool for programs")


def _binary(node: ast.BinOp, depth: int) -> Number:
    # A long sum is nested to the left: use a loop, since recursion would go too deep.
    chain: list[ast.BinOp] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp):
        chain.append(left)
        left = left.left
    value = _number(left, depth)
    for step in reversed(chain):
        other = _number(step.right, depth)
        if type(step.op) not in _BINARY:
            raise BadCall(f"{type(step.op).__name__} is not arithmetic of numbers")
        _foresee(step.op, value, other)
        value = _check_size(_BINARY[type(step.op)](value, other))
    return value


def _foresee(sign: ast.operator, a: Number, b: Number) -> None:
    """Refuse an operation whose result would be too large, before computing it."""
    if not isinstance(a, int) or not isinstance(b, int) or b <= 0:
        return
    grown = 0
    if isinstance(sign, ast.Pow) and abs(a) > 1:
        grown = (a.bit_length() - 1) * b
    elif isinstance(sign, ast.LShift):
        grown = a.bit_length() + b
    if grown > BITS:
        _too_big()


def _call_function(node: ast.Call, depth: int) -> Value:
    if not isinstance(node.func, ast.Name):
        raise BadCall("write * between a number and a bracket, and call functions by name: 2 * (3 + 4), sqrt(2)")
    function = _FUNCTIONS.get(node.func.id)
    if function is None:
        raise BadCall(f"there is no function {node.func.id!r}; there are {', '.join(sorted(_FUNCTIONS))}")
    if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
        raise BadCall(f"{node.func.id} takes plain values only")
    given = [_value(one, depth + 1) for one in node.args]
    result = function(*given)
    if isinstance(result, tuple):
        return [_check_size(one) for one in result]
    return _check_size(result)


def _number(node: ast.expr, depth: int) -> Number:
    value = _value(node, depth + 1)
    if isinstance(value, list):
        raise BadCall("a list can only be given to a function such as sum or mean")
    return value


def _check_size(value: Number | complex) -> Number:
    if isinstance(value, complex):
        raise BadCall("the result is not a real number")
    if isinstance(value, int) and value.bit_length() > BITS:
        _too_big()
    return value


def _too_big() -> NoReturn:
    raise BadCall("a whole number on the way has more than 4,200 digits; use the python tool, or logarithms")


def _format_value(value: Value) -> str:
    return f"[{', '.join(map(_format_value, value))}]" if isinstance(value, list) else repr(value)


_OFFSET = r"(?i)(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?(\d{2}))?"


def now_tool(clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> AnyTool:
    @tool(effect="pure", reach="nothing", timeout_s=10.0, server="system")
    def now(tz: str | None = None) -> str:
        """Tell the date and time.

        Args:
            tz: A time zone such as Europe/Berlin, UTC or +02:00; by default the one of this machine.
        """
        at = clock().astimezone(None if tz is None else _zone(tz))
        name = str(at.tzinfo) if tz else at.tzname() or ""
        return f"{at.isoformat(timespec='seconds')} ({at:%A}, {name})"

    return now


def _zone(name: str) -> tzinfo:
    """Find a time zone by name, city or offset."""
    import zoneinfo

    asked = name.strip().replace(" ", "_")
    if asked.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if offset := re.fullmatch(_OFFSET, name.strip()):
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours < 24 and minutes < 60:
            away = timedelta(hours=hours, minutes=minutes)
            return timezone(-away if offset[1] == "-" else away)
    zones = zoneinfo.available_timezones()
    fitting = [zone for zone in zones if zone.casefold() == asked.casefold()] or [
        zone for zone in zones if zone.rpartition("/")[2].casefold() == asked.casefold()
    ]
    if len(fitting) == 1:
        return zoneinfo.ZoneInfo(fitting[0])
    if not zones:
        raise BadCall("this machine has no table of time zones; give an offset such as +02:00")
    by_city = {zone.rpartition("/")[2]: zone for zone in sorted(zones)}
    near = closest(asked, [*by_city, *zones], 0.5)
    hint = by_city.get(near, near) or "Europe/Berlin or +02:00"
    raise BadCall(f"no time zone is called {name[:60]!r}; did you mean {min(fitting, default=hint)}?")


@tool(effect="pure", reach="nothing", server="system")
def ask_user(question: str, options: list[str] | None = None) -> str:
    """Ask the user what only they can know."""
    del options
    raise BadCall(f"there was no answer to {first_line(question)!r}")


@tool(effect="pure", reach="nothing", server="system")
def answer(text: str) -> None:
    """Tell the user the result from code and end the turn, unless the code fails later on.

    Args:
        text: The answer, as the user shall read it.
    """
    del text  # the engine reads it from the log


def small_tools() -> Sequence[AnyTool]:
    return calculator, now_tool(), ask_user, answer
