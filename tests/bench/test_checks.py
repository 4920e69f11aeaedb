"""The checkers of bench/tasks.py: any wording of a right answer, and no list that happens to hold it.

`bench/tasks.py --self-test` tries every task's checker on its oracle and on wrong answers.
"""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from bench.task_suite import checks, dev, held_out, png
from bench.task_suite.mbpp import code_in
from bench.task_suite.task import Check, Outcome
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.unit
NOW = datetime(2026, 3, 5, 14, 7, 30, tzinfo=UTC)


def verdict(check: Check, answer: str, prompt: str = "How much is it?") -> str | None:
    return check(Outcome(prompt=prompt, answer=answer, workspace=Path("/nowhere"), actions=0, began=NOW, ended=NOW))


@pytest.mark.parametrize(
    "answer", ["1234.5", "It is **1,234.50**.", "$1,234.50", "np.float64(1234.5)", "1.2345e3", "2024-05-06: 1234.5"]
)
def test_a_number_may_be_written_in_any_usual_way(answer: str) -> None:
    assert verdict(checks.number(1234.5), answer) is None


@pytest.mark.parametrize("answer", ["", "12345", "1234", "-1234.5", "v1234.5", "1 2 3 4 5 6 1234.5"])
def test_another_number_or_a_list_of_numbers_is_no_answer(answer: str) -> None:
    assert verdict(checks.number(1234.5), answer) is not None


def test_numbers_of_the_question_are_no_strange_numbers() -> None:
    values = "1, 2, 3, 4, 5, 6, 7"
    assert verdict(checks.number(28), f"{values} add up to 28", prompt=f"Add {values}") is None


def test_small_numbers_may_be_spelled() -> None:
    assert verdict(checks.number(3), "There are three of them.") is None
    assert verdict(checks.number(1), "This is one way to look at it.") is not None


@given(st.decimals(-(10**9), 10**9, places=2))
def test_a_number_with_separators_is_the_same_number(value: Decimal) -> None:
    assert checks.numbers_in(f"so {value:,} it is") == [value]


@pytest.mark.parametrize("answer", ["It is 14:07.", "2:07 PM", "02:08 p.m.", "2026-03-05T14:07:31.5"])
def test_the_time_is_told_in_many_ways(answer: str) -> None:
    assert verdict(checks.the_time, answer) is None


@pytest.mark.parametrize("answer", ["2:07", "15:07 UTC", "It is noon.", "14:20"])
def test_another_time_is_not_the_time(answer: str) -> None:
    assert verdict(checks.the_time, answer) is not None


@pytest.mark.parametrize("answer", ["2026-03-05", "March 5th, 2026", "5 March 2026", "03/05/2026", "Thu, 5 Mar 2026"])
def test_the_date_is_told_in_many_ways(answer: str) -> None:
    assert verdict(checks.the_date, answer) is None


def test_another_date_is_not_today() -> None:
    assert verdict(checks.the_date, f"{NOW - timedelta(days=1):%Y-%m-%d}") is not None


def _png(rows: list[bytes], width: int, how: int) -> bytes:
    """RGB rows, each with the given filter."""
    packed, above = b"", bytes(3 * width)
    for row in rows:
        left, corner = bytes(3) + row[:-3], bytes(3) + above[:-3]
        guesses = {
            0: bytes(len(row)),
            1: left,
            2: above,
            3: bytes((a + b) // 2 for a, b in zip(left, above, strict=True)),
            4: bytes(_paeth(a, b, c) for a, b, c in zip(left, above, corner, strict=True)),
        }
        packed += bytes([how, *((a - b) & 255 for a, b in zip(row, guesses[how], strict=True))])
        above = row
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, len(rows), 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(packed))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(b)) + k + b + bytes(4) for k, b in parts)


def _paeth(a: int, b: int, c: int) -> int:
    return min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]


@given(st.lists(st.binary(min_size=12, max_size=12), min_size=1, max_size=5), st.integers(0, 4))
def test_pictures_are_read_whatever_their_filter(rows: list[bytes], how: int) -> None:
    seen = png.read(_png(rows, 4, how)).colours
    pixels = [tuple(row[k : k + 3]) for row in rows for k in range(0, 12, 3)]
    assert {colour: pixels.count(colour) for colour in pixels} == dict(seen)


@given(st.binary(max_size=200))
def test_what_is_no_picture_is_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(png.NotAPicture):
        png.read(b"\x89PNG\r\n\x1a\n" + data)


def test_code_is_found_in_an_answer() -> None:
    assert code_in("first\n```python\na = 1\n```\nbetter\n```py\nb = 2\n```") == "b = 2\n"
    assert code_in("def f():\n    return 1") == "def f():\n    return 1"
    assert code_in("I wrote the function.") is None


def test_both_halves_have_the_same_kinds_and_share_no_question() -> None:
    assert sorted(task.kind for task in dev.TASKS) == sorted(task.kind for task in held_out.TASKS)
    assert not {task.prompt for task in dev.TASKS} & {task.prompt for task in held_out.TASKS}
