"""The measure of growth itself: it fails where time grows faster than the text, and only there."""

from __future__ import annotations

import re

import pytest
from tests.time_complexity import assert_linear, repeated

pytestmark = pytest.mark.unit


def test_what_is_linear_passes() -> None:
    assert_linear(lambda text: [ord(letter) for letter in text], repeated("ab"))
    assert_linear(lambda text: re.findall("a+c", text), repeated("ab"))


def test_what_is_quadratic_fails() -> None:
    with pytest.raises(AssertionError, match="20 times as much took"):
        assert_linear(lambda text: re.findall("a+c", text), repeated("a"), (1_000, 20_000))


def test_a_little_work_of_any_growth_passes() -> None:
    assert_linear(lambda text: [text.count("b") for _ in text], repeated("a"), (20, 200))
