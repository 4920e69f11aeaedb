"""Secrets on their way to a sink: known ones in every writing, unknown ones by their looks, and nothing else."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from bench.sink_suite.ordinary import ordinary
from bench.sink_suite.secrets import Planted, planted
from hypothesis import given
from hypothesis import strategies as st
from tests.time_complexity import assert_linear, repeated

from pinfold.text import presentable, presentable_line, redact, without_known
from pinfold.text.format import MARK
from pinfold.text.secret_patterns import KNOWN_PREFIXES

pytestmark = pytest.mark.safety
SECRET = 'Grey/heron+42 "wades" & waits=='


def is_seen(one: Planted, shown: str) -> bool:
    return any(part in shown for part in one.secret.split("\n"))


@pytest.mark.parametrize("one", planted(), ids=lambda one: one.kind)
def test_a_secret_of_this_shape_is_hidden_whatever_it_is(one: Planted) -> None:
    for seed in range(5):
        (again,) = [other for other in planted(seed) if other.kind == one.kind]
        assert is_seen(again, again.line)  # what is looked for can be found
        for text in (
            again.line,
            f"before {again.line} after",
            f"a\n{again.line}\nb",
            "\n".join(f"+{line}" for line in again.line.split("\n")),
            "\n".join(f"-{line}" for line in again.line.split("\n")),
            f"\x1b[31m{again.line}\x1b[0m",
        ):
            for shown in (redact(text), presentable(text), presentable_line(text)):
                assert not is_seen(again, shown)
                assert MARK in shown


def test_80_shapes_are_examined() -> None:
    assert len({one.kind for one in planted()}) == len(planted()) == 80
    assert not {one.secret for one in planted(1)} & {one.secret for one in planted(2)}


def test_ordinary_lines_are_left_alone() -> None:
    lines = ordinary()
    assert len(lines) > 300
    assert [line for line in lines if presentable(line) != line] == []
    together = "\n".join(lines)
    assert redact(together) == together


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps({"deep": json.dumps({"value": SECRET})}),
        repr([SECRET]),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        SECRET.encode().hex(),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"u:{SECRET}:more".encode()).decode(),
        base64.b64encode(f"us:{SECRET}".encode()).decode(),
        base64.b64encode(f"use:{SECRET}..".encode()).decode(),
    ],
)
def test_a_known_secret_is_hidden_in_every_writing(written: str) -> None:
    shown = without_known(f"before {written} after", [SECRET])
    assert MARK in shown
    assert "heron" not in shown
    assert not any(piece in shown for piece in (quote(SECRET)[6:20], SECRET.encode().hex()[8:40]))
    assert without_known(f"before {written} after") == f"before {written} after"


@given(st.text(min_size=6, max_size=40), st.binary(max_size=9), st.binary(max_size=9))
def test_a_known_secret_is_found_anywhere_inside_encoded_text(secret: str, before: bytes, after: bytes) -> None:
    data = secret.encode("utf-8", "surrogatepass")
    encoded = base64.b64encode(before + data + after).decode()
    shown = without_known(encoded, [secret])
    # The letters at both ends belong to the neighbours too.
    assert MARK in shown
    assert len(shown) - len(MARK) <= len(encoded) - len(data) * 8 // 6 + 4


ESCAPES: dict[str, Callable[[str], str]] = {
    "decimal": lambda letter: f"&#{ord(letter)};",
    "hex": lambda letter: f"&#x{ord(letter):x};",
    "padded": lambda letter: f"&#X{ord(letter):06X};",
    "twice": lambda letter: f"&amp;#{ord(letter)};",
    "percent": lambda letter: f"%{ord(letter):02X}",
    "percent of percent": lambda letter: f"%25{ord(letter):02x}",
    "percent u": lambda letter: f"%u{ord(letter):04x}",
    "u": lambda letter: f"\\u{ord(letter):04x}",
    "u in a text in a text": lambda letter: f"\\\\\\\\u{ord(letter):04X}",
    "braces": lambda letter: f"\\u{{{ord(letter):x}}}",
    "x": lambda letter: f"\\x{ord(letter):02x}",
    "U": lambda letter: f"\\U{ord(letter):08x}",
    "octal": lambda letter: f"\\{ord(letter):03o}",
    "entities in percent": lambda letter: quote(f"&#{ord(letter)};", safe=""),
    "x in entities": lambda letter: f"&#92;x{ord(letter):02x}",
    "parted": lambda letter: f"&shy;{letter}",
    "by name": lambda letter: {"_": "&lowbar;", "+": "&plus;", "/": "&sol;", "=": "&equals;"}.get(letter, letter),
}


def disguised(text: str, how: str, every: int = 1, first: int = 0) -> str:
    return "".join(ESCAPES[how](letter) if at % every == first else letter for at, letter in enumerate(text))


@pytest.mark.parametrize("how", ESCAPES)
def test_a_key_is_found_behind_escapes_of_some_or_all_of_its_letters(how: str) -> None:
    key = "Grey_heron+42/wades="
    places = [(every, first) for every in (1, 2, 3, 7) for first in range(every)]
    for hidden in {disguised(key, how, *place) for place in places} - {key}:
        text = f"100%25 a%20b &lt;{hidden}&gt; c&amp;d \\u00e4"
        shown = f"100%25 a%20b &lt;{MARK}&gt; c&amp;d \\u00e4"
        assert without_known(text, [key]).replace("&shy;", "") == shown
        assert without_known(text) == text
    found = 0
    for one in planted():
        if redact(one.secret) == MARK and how != "by name":
            found += 1
            assert redact(f"a {disguised(one.secret, how, 2)} b").replace("&shy;", "") == f"a {MARK} b", one
            assert disguised("plain words and 42 numbers", how, 2) in redact(
                f"a {disguised('plain words and 42 numbers', how, 2)} b"
            )
    assert found > 50 or how == "by name"


def test_mixed_escapes_and_wrapped_lines_hide_nothing() -> None:
    key, ways = "Grey_heron-42+wades", list(ESCAPES)
    mixed = "".join(disguised(letter, ways[at % len(ways)]) for at, letter in enumerate(key))
    assert without_known(f"a {mixed} b", [key]) == f"a {MARK} b"
    for before in range(60):
        data = b"x" * before + key.encode() + b"y" * 60
        for text in (base64.encodebytes(data).decode(), "\n".join(textwrap.wrap(data.hex(), 60))):
            for written in (text, json.dumps(text), json.dumps(json.dumps(text)), text.replace("\n", "\r\n")):
                assert MARK in without_known(written, [key]), (before, written)
                assert without_known(written, ["another_heron"]) == written


def test_what_is_kept_secret_once_is_hidden_everywhere_after() -> None:
    program = (
        "from pinfold.text import keep_secret, presentable, redact, without_known\n"
        "value = 'just some words'\n"
        "print(presentable(value))\n"
        "keep_secret(value, 'short')\n"
        "print(presentable(value), redact(f'[{value}]'), without_known(value), presentable('short'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["just some words", f"{MARK} [{MARK}] {MARK} short"]


def test_invisible_letters_and_colours_do_not_keep_a_secret_from_being_found() -> None:
    key = next(one.secret for one in planted() if one.kind == "github classic")
    for text in (
        "\u200b".join(key),
        f"{key[:9]}\x1b[1m{key[9:]}",
        f"{key[:9]}\x1b]8;;x\x07{key[9:]}",
        f"{key[:9]}\u2060{key[9:]}",
    ):
        shown = presentable(f"it is {text}, and more")
        assert shown == f"it is {MARK}, and more"


PIECES = (
    *(
        "token=",
        '"token": "',
        "password",
        "secret\t\t",
        "?token=",
        "?aaaaaaaaaaaaaaaaaaaaaaaa",
        "--a-b-token=",
        "api key ",
    ),
    *(
        "Authorization: Bearer ",
        "bearer ",
        "cookie: a=",
        "login x password ",
        "curl -u a:b ",
        "ab://a:",
        "ab://",
        "://",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nabc\n", "-----END", "-----BEGIN "),
    *("eyJ-", "eyJaaaaaaaaaaaa.", ".eyJ", "SG.", "a sk-", "sk-", "M" * 25 + ".", "123456789:AA", "abc8Q~"),
    *(
        "%41",
        "%25",
        "&#65;",
        "&amp;",
        "&amp;#",
        "\\u0041",
        "\\x4",
        "QUJD" * 19 + "\n",
        "QUJD" * 19 + "\\n",
        "&",
        "%",
        "\n",
    ),
    *("\x1b[31m", "\u200b", "a", "0", "-", ".", "\\", "=", "pat"),
)


@pytest.mark.parametrize("piece", [*PIECES, " ".join(KNOWN_PREFIXES), "\n".join(ordinary())])
def test_time_grows_with_the_text_and_no_faster_whatever_it_is(piece: str) -> None:
    assert_linear(redact, repeated(piece))
    assert_linear(redact, lambda size: piece + "a" * size)
