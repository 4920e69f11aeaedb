"""Text on its way to a sink: bounded and counted, safe to print, free of secrets."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.text import cap_text, first_line, printable, redact
from pinfold.text.format import MARKS

pytestmark = [pytest.mark.unit, pytest.mark.installed]

_NOTE = re.compile(r"\n\[\.\.\. ([\d,]+) of ([\d,]+) characters left out(?:; all of it: (.*))? \.\.\.\]\n")


@given(st.text(), st.integers(0, 40))
def test_capped_text_is_whole_or_says_how_much_is_missing(text: str, limit: int) -> None:
    shown = cap_text(text, limit)
    if len(text) <= limit:
        assert shown == text
        return
    (note,) = [found for found in _NOTE.finditer(shown) if found[2] == f"{len(text):,}"][:1]
    head, tail = shown[: note.start()], shown[note.end() :]
    assert len(head) + len(tail) == limit
    assert int(note[1].replace(",", "")) + limit == len(text)
    assert text.startswith(head)
    assert text.endswith(tail)


def test_capped_text_names_where_the_whole_is() -> None:
    assert cap_text("a" * 2000, 6, whole="blob 1") == (
        "aaaa\n[... 1,994 of 2,000 characters left out; all of it: blob 1 ...]\naa"
    )


@given(st.text(alphabet=st.characters(), max_size=60) | st.text(alphabet="\r\n\t\x1b\x9b\u202e\u061c\ud800ab"))
def test_nothing_printable_can_steer_a_terminal(text: str) -> None:
    shown = printable(text)
    for letter in shown:
        assert letter in "\t\n" or unicodedata.category(letter) not in ("Cc", "Cs")
        assert unicodedata.bidirectional(letter) not in (
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
        )
    assert printable(shown) == shown
    shown.encode("utf-8")


BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    "letter", [*map(chr, [*range(9), *range(11, 32), *range(127, 160), 0xD800, 0xDFFF]), *BIDI_CONTROLS]
)
def test_every_hidden_letter_is_shown_as_an_escape(letter: str) -> None:
    code = ord(letter)
    assert printable(f"a{letter}b") == (f"a\\x{code:02x}b" if code < 256 else f"a\\u{code:04x}b")


# Letters and marks by their category that no screen shows.
UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0" + "".join(
    map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
)


@given(
    st.text(
        alphabet=st.characters(categories=["L", "N", "P", "S", "Zs", "M", "So"], exclude_characters=UNSEEN),
        max_size=MARKS,
    )
)
def test_what_is_meant_to_be_read_stays(text: str) -> None:
    assert printable(text) == text


def test_line_ends_of_other_systems_become_ours() -> None:
    assert printable("a\r\nb\tc\n") == "a\nb\tc\n"
    assert printable("progress\rdone") == "progress\\x0ddone"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("  \n\n  hello \nworld", "hello"),
        ("x" * 300, "x" * 197 + "..."),
        ("y" * 200, "y" * 200),
        ("one\x0btwo", "one"),
    ],
)
def test_a_first_line_is_one_bounded_line(text: str, line: str) -> None:
    assert first_line(text) == line


@given(st.text(), st.lists(st.text(min_size=6), max_size=3))
def test_no_given_secret_is_left(text: str, secrets: list[str]) -> None:
    hidden = redact(f"{text}{''.join(secrets)}", secrets)
    assert all(secret not in hidden or secret in "[redacted]" * 4 for secret in secrets)


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "hf_abcdefghijklmnopqrstuvwxyz",
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij",
    ],
)
def test_what_looks_like_a_key_is_hidden(key: str) -> None:
    assert redact(f"Authorization: {key}, and more") == "Authorization: [redacted], and more"


def test_a_longer_secret_goes_before_one_inside_it() -> None:
    assert redact("abcdef123456", ["abcdef", "abcdef123456"]) == "[redacted]"


def test_short_values_are_not_secrets() -> None:
    assert redact("the id is 12345", ["12345", ""]) == "the id is 12345"
