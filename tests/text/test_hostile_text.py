"""What no sink may pass on: sequences that steer, marks that turn the reading order round, letters nobody sees."""

from __future__ import annotations

import unicodedata

import pytest
from bench.sink_suite.hostile import HARMLESS, RAW, hostile
from hypothesis import given
from hypothesis import strategies as st
from tests.time_complexity import assert_linear, repeated

from pinfold.text import presentable, presentable_line, printable, printable_line
from pinfold.text.format import MARKS

pytestmark = pytest.mark.safety
HOSTILE = hostile()
ODD = st.characters(categories=["Cc", "Cf", "Cs", "Mn", "Me", "Zl", "Zp", "So", "Lo"])
ANY = st.text(alphabet=ODD | st.characters(), max_size=80) | st.sampled_from(HOSTILE)


def runs_of_marks(text: str) -> int:
    longest = run = 0
    for letter in text:
        run = run + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        longest = max(longest, run)
    return longest


def test_500_hostile_outputs_leave_nothing_that_steers_or_hides() -> None:
    assert len(HOSTILE) == 500
    for text in HOSTILE:
        # Without the function they do come through: each one has something to stop.
        assert RAW.search(text) or runs_of_marks(text) > MARKS or printable(text) != text
        for shown in (printable(text), presentable(text), printable_line(text), presentable_line(text)):
            assert not RAW.search(shown), ascii(shown)
            assert runs_of_marks(shown) <= MARKS
            shown.encode("utf-8")
        assert "\n" not in printable_line(text)
    assert sum(bool(RAW.search(text)) for text in HOSTILE) > 490


@pytest.mark.parametrize("text", HARMLESS)
def test_what_people_write_is_left_alone(text: str) -> None:
    assert presentable(text) == printable(text) == text


@given(ANY)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    shown = printable(text)
    assert not RAW.search(shown)
    assert runs_of_marks(shown) <= MARKS
    assert printable(shown) == shown
    assert printable_line(shown) == printable_line(text)


@given(st.characters(categories=["Cf", "Cc", "Cs", "Zl", "Zp"]).filter(lambda letter: letter not in "\t\n"))
def test_every_format_letter_is_shown_unless_a_font_draws_it(letter: str) -> None:
    drawn = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    shown = printable(f"a{letter}b")
    if letter in drawn or "\U00013430" <= letter <= "\U0001345f":
        assert shown == f"a{letter}b"
    else:
        assert shown.isascii()
        assert shown.startswith(("a\\x", "a\\u", "a\\U"))


def test_hidden_letters_are_named_so_that_nothing_is_lost() -> None:
    assert printable("a\u200bb\u202ec\U000e0041") == "a\\u200bb\\u202ec\\U000e0041"
    assert printable_line("one\ntwo\r\nthree\rfour") == "one\\ntwo\\nthree\\x0dfour"
    assert printable("x" + "\u0301" * (MARKS + 2)) == "x" + "\u0301" * MARKS + "\\u0301\\u0301"


def test_joiners_and_selectors_stay_only_where_they_shape_something() -> None:
    assert printable("pay\u200dpal \u200d😀 😀\u200d 😀\u200d\u200d😀") == (
        "pay\\u200dpal \\u200d😀 😀\\u200d 😀\\u200d\\u200d😀"
    )
    assert printable("❤\ufe0f a\ufe0f ❤\ufe0f\ufe0f 語\U000e0100") == "❤\ufe0f a\\ufe0f ❤\ufe0f\\ufe0f 語\\U000e0100"


@pytest.mark.parametrize(
    "piece",
    ["\x1b[31m", "\x1b]", "\u200d", "\u0301", "😀\u200d", "م\u200c", "ا", "日", "\U000e0041", "a\r\n"],  # noqa: RUF001
)
def test_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    assert_linear(printable, repeated(piece))
