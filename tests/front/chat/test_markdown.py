"""Replies: the same scrollback however they arrive, in time that grows with their length and no faster."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.front.chat.recorded_output import KeptTranscript
from tests.time_complexity import assert_linear, repeated

from pinfold.front.chat.renderers.markdown import MarkdownStream
from pinfold.front.chat.renderers.transcript import SpacedTranscript

pytestmark = pytest.mark.unit
REPLY = """# Cars
Here is **bold**, *thin* and `code` in snake_case_words.
Still the same paragraph.

1. First
   with more
2. Second:
   ```bash
   ls -la
   ```
   - nested
10. Tenth

> quoted
> twice

| name | price |
|------|------:|
| Golf | 12,300 |
| 日本 🚗 | 9 |

```python
def f(x):
    \"\"\"Over
    lines.\"\"\"
    return f"{x}"
```
After.

---
Open fence:
```json
{"a": 1}"""
_MARKS = ("# ", "- ", "1. ", "```", "```python\n", "~~~", "|", "|-|-|\n", "> ", "    ", "**", "_", "`", "\\", "<br>")
_WORDS = ("x", "word ", "日本", "🚗", "é", "[a](http://b)", "\x1b[31m", "===\n", "---\n", "\t", "\n", "\n\n", "\r\n")
_PIECES = st.sampled_from((*_MARKS, *_WORDS))
_TEXTS = st.one_of(
    st.lists(_PIECES, max_size=60).map("".join), st.text(max_size=200), st.text("`*_~[]()\\<>|#-1. \n", max_size=60)
)


def spoken(*parts: str, width: int = 60) -> KeptTranscript:
    transcript = KeptTranscript(width)
    speech = MarkdownStream(SpacedTranscript(transcript))
    for part in parts:
        speech.add(part)
        speech.render_unfinished()
    speech.end()
    return transcript


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[begin:end] for begin, end in pairwise(edges)]


@example(text="\\```", places=[])
@given(text=_TEXTS, places=st.lists(st.integers(0, 1000), max_size=12))
@settings(max_examples=120)
def test_a_reply_looks_the_same_however_it_was_cut(text: str, places: list[int]) -> None:
    assert spoken(*cut(text, places)).sent == spoken(text).sent


def test_a_reply_that_comes_letter_by_letter_looks_as_at_once() -> None:
    assert spoken(*REPLY).sent == spoken(REPLY).sent


def test_a_reply_reads_well() -> None:
    assert spoken(REPLY).text.strip("\n").split("\n") == [
        "Cars",
        "",
        "Here is bold, thin and code in snake_case_words.",
        "Still the same paragraph.",
        "",
        " 1. First",
        "    with more",
        " 2. Second:",
        "",
        "      ls -la",
        "",
        "   • nested",
        " 10. Tenth",
        "",
        "  │ quoted",
        "  │ twice",
        "",
        "name       price",
        "────────────────",
        "Golf      12,300",
        "日本 🚗        9",
        "",
        "    def f(x):",
        '        """Over',
        '        lines."""',
        '        return f"{x}"',
        "",
        "After.",
        "",
        "─" * 60,
        "",
        "Open fence:",
        "",
        '    {"a": 1}',
    ]


def test_a_block_is_written_when_it_is_finished_and_not_before() -> None:
    transcript = KeptTranscript()
    speech = MarkdownStream(SpacedTranscript(transcript))
    speech.add("First paragraph.\n\nSecond par")
    assert transcript.text == "First paragraph.\n"
    assert str(speech.render_unfinished()) == "Second par"
    speech.add("agraph.\n\n```python\nx = 1\ny = ")
    assert transcript.text.endswith("Second paragraph.\n\n    x = 1\n")
    assert "y =" in str(speech.render_unfinished())
    speech.add("2\n```\n- one\n- two\n- th")
    assert transcript.text.endswith("    y = 2\n\n • one\n")
    assert str(speech.render_unfinished()) == "two\n- th"


def test_code_keeps_its_colours_over_lines() -> None:
    lines = spoken('```python\nx = """a\nb\n"""\nreturn\n```\n').sent.split("\n")
    assert "\x1b[32mb" in lines[1]
    assert "\x1b[35mreturn" in lines[3]


def test_what_steers_a_terminal_is_shown_and_never_sent() -> None:
    words = "a \x1b[31mred\x1b]0;t\x07 b"
    transcript = spoken(f"{words}\n\n# {words}\n- {words}\n\n|{words}|x|\n|-|-|\n|{words}|y|\n\n```sh\n{words}\n```\n")
    assert "\x1b[31m" not in transcript.sent
    assert "\x1b]" not in transcript.sent
    assert transcript.text.count("\\x1b") == 12


def test_a_private_key_is_not_seen_even_line_by_line() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA75\nhVmxyz\n-----END RSA PRIVATE KEY-----"
    text = spoken(*f"```\n{key}\nafter\n```\n").text
    assert "MII" not in text
    assert "hVm" not in text
    assert "after" in text
    assert "MII" not in spoken(key).text


def test_the_address_of_a_link_is_always_seen() -> None:
    assert "bank.example (https://evil.example/x)" in spoken("[bank.example](https://evil.example/x)").text


@pytest.mark.parametrize(
    "unit",
    [
        "word *a* `b` [c](d)\n\n- item\n",
        "word ",
        "x",
        "`",
        "*a ",
        "_",
        "[",
        "[a](",
        "(",
        "|",
        "#",
        " ",
        "- ",
        "> a\n",
        "|a|b|\n",
        "日本",
    ],
)
def test_time_grows_with_the_length_and_no_faster(unit: str) -> None:
    def speak(text: str) -> None:
        spoken(*(text[at : at + 4096] for at in range(0, len(text), 4096)))

    assert_linear(speak, repeated(unit), (2_000, 20_000))


def test_a_line_of_a_megabyte_is_written() -> None:
    assert spoken("x" * 1_000_000, width=1000).text.replace("\n", "") == "x" * 1_000_000
