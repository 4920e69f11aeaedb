"""Arithmetic: as Python has it, never long, and clear about what it does not take."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.tools import BadCall, Registry
from pinfold.tools.builtin.small import BITS, calculator, evaluate

pytestmark = pytest.mark.unit

numbers = st.integers(0, 10**6).map(str) | st.floats(0, 1e6, allow_nan=False).map(repr)
calls = st.sampled_from(["abs({})", "round({})", "int({})", "min({}, 3)", "max({}, 2, 1)", "sum([{}, 1])"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        st.builds(
            "({} {} {})".format,
            inner,
            st.sampled_from(["+", "-", "*", "/", "//", "%", "<<", ">>", "&", "|", "<", "=="]),
            inner,
        )
        | st.builds("({} ** {})".format, inner, st.integers(-4, 60))
        | st.builds("{}{}".format, st.sampled_from(["-", "+", "~"]), inner)
        | st.builds(str.format, calls, inner)
    )


expressions = st.recursive(numbers, larger, max_leaves=12)


def by_python(expression: str) -> Any:
    """None where Python itself refuses, or goes beyond what we take."""
    tree = compile(expression, "", "eval")
    try:
        value = eval(
            tree, {"__builtins__": {}, "abs": abs, "round": round, "int": int, "min": min, "max": max, "sum": sum}
        )
    except (ArithmeticError, ValueError, TypeError, MemoryError):
        return None
    return None if isinstance(value, complex) else value


@given(expressions)
@settings(max_examples=400)
def test_it_agrees_with_python_and_never_takes_long(expression: str) -> None:
    began = time.thread_time()
    try:
        ours: Any = evaluate(expression)
    except BadCall:
        ours = None
    assert time.thread_time() - began < 10
    if "<<" in expression and ours is None:
        return  # Python might really make the number
    theirs = by_python(expression)
    if ours is not None:
        assert repr(ours) == repr(theirs)
    elif theirs is not None:
        # We refuse what Python takes only where a number on the way is too big.
        with pytest.raises(BadCall, match=r"4,200 digits|not a real number"):
            evaluate(expression)


@given(st.text(alphabet="0123456789.+-*/%()<>,[]eE_ abcsqrt!^&|~='\"", max_size=80))
@settings(max_examples=500)
def test_any_text_is_answered_at_once(text: str) -> None:
    began = time.thread_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        with suppress(BadCall):
            evaluate(text)
    assert time.thread_time() - began < 10


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**9**9**9",
        "10**10**10",
        "1 << 10**12",
        "factorial(10**8)",
        "comb(10**9, 5 * 10**8)",
        "perm(10**9)",
        "round(7, -10**12)",
        "(2**13000) ** 100",
        "prod([" + "2**13999," * 150 + "])",
        "lcm(" + ", ".join(f"2**13000 + {n}" for n in range(90)) + ")",
        "-" * 1999 + "1",
        "(" * 900 + "1" + ")" * 900,
        "1" + "+1" * 990,
        "[" * 500,
        "1e308 * 10**4000",
    ],
)
def test_nothing_takes_long(expression: str) -> None:
    began = time.thread_time()
    with suppress(BadCall):
        evaluate(expression)
    assert time.thread_time() - began < 10


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("2**64 % 97", "61"),
        ("2**200", str(2**200)),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("7 % 3", "1"),
        ("5 % -3", "-1"),
        ("15% of 80", "12.0"),
        ("200 * 15%", "30.0"),
        ("5%", "0.05"),
        ("7 × 6 ÷ 2 − 1 =", "20.0"),  # noqa: RUF001
        ("sqrt(2) * pi", "4.442882938158366"),
        ("mean([1, 2, 4])", "2.3333333333333335"),
        ("median([3, 1, 2])", "2"),
        ("divmod(7, 2)", "[3, 1]"),
        ("1 < 2 < 3", "True"),
        ("comb(52, 5)", "2598960"),
        ("1_000 + 0xff", "1255"),
        ("factorial(20)", "2432902008176640000"),
    ],
)
async def test_what_people_write_is_worked_out(expression: str, shown: str) -> None:
    assert (await Registry([calculator]).call("calculator", {"expression": expression})).text == shown


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("2^10", r"write \*\* for a power"),
        ("100 - 20%", "is ambiguous"),
        ("10% + 5", "is ambiguous"),
        ("1,234 + 1", "write 1234, without commas"),
        ("1/0", "division by zero"),
        ("x + 1", "unknown name 'x'"),
        ("2(3)", r"write \* between"),
        ("sqrt(-1)", "math domain error"),
        ("(-8) ** 0.5", "not a real number"),
        ("foo(1)", "no function 'foo'; there are abs, "),
        ("__import__('os').system('id')", "call functions by name"),
        ("[].__class__", "Attribute is not arithmetic"),
        ("'a' * 10**9", "Constant is not arithmetic"),
        ("[1] * 10**9", "a list can only be given to a function"),
        ("(lambda: 1)()", "call functions by name"),
        ("(1 + 2", "this is not an expression near column 1"),
        ("", "this is not an expression"),
        ("9" * 3000, "3,000 characters; 2,000 is the most"),
        ("sum(*[1])", "takes plain values only"),
        ("1e308 * 10", None),
    ],
)
def test_what_it_does_not_take_it_says(expression: str, words: str | None) -> None:
    if words is None:
        assert evaluate(expression) == float("inf")
        return
    with pytest.raises(BadCall, match=words):
        evaluate(expression)


def test_the_largest_number_can_still_be_written_out() -> None:
    assert len(calculator(f"2**{BITS - 1}")) == 4215
