"""Makes text safe and short: what controls a terminal, reverses the reading order or hides words is shown as an escape.

Changes nothing that is meant to be read: emoji, every script's letters and marks, tabs and line ends stay. Capped
text always says how much was left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

MARK = "[redacted]"
"""Replaces a secret."""
MARKS = 8
"""The most combining marks on one letter; real scripts need fewer."""
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_BREAKS = "\u2028\u2029"
# Soft hyphen, grapheme joiner, fillers, invisible operators and vowels, annotation and shorthand controls, byte order mark.
_UNSEEN = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_SELECTORS = "\ufe00-\ufe0f"
_TAGS = "\U000e0000-\U000e0fff"
"""Tag characters, which can spell whole invisible sentences."""
_JOINERS = "\u200b-\u200d"
_PICTURES = "\u00a9\u00ae\u203c\u2049\u2122-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
# Scripts whose letters are joined, kept apart or broken into lines by zero-width characters.
_JOINED = "\u0600-\u061b\u061d-\u07ff\u0840-\u0dff\u0e00-\u109f\u1780-\u17b3\u17b6-\u17d3\u1810-\u18aa\ua840-\ua87f"
# The flags of England, Scotland and Wales are the only emoji that are written with tags.
_FLAG = "|".join("".join(chr(0xE0000 + ord(letter)) for letter in name) for name in ("gbeng", "gbsct", "gbwls"))

_MEANT = (
    rf"(?<=[{_PICTURES}])\ufe0f?\u200d(?=[{_PICTURES}])"
    rf"|(?<=[{_JOINED}])[{_JOINERS}](?=[{_JOINED}])"
    rf"|(?<=[{_PICTURES}0-9#*])[\ufe0e\ufe0f]"
    rf"|(?<=\U0001f3f4)(?:{_FLAG})\U000e007f"
)
# Not compiled here: that is slow, and only needed once a letter beyond ASCII is seen.
_HIDDEN = rf"(?P<meant>{_MEANT})|[{_CONTROLS}{_BIDI}{_BREAKS}{_UNSEEN}{_SELECTORS}{_JOINERS}{_TAGS}]"
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
"""Control characters of ASCII."""
# Includes more than the marks: each character is looked up.
_MAYBE_MARKS = (
    "[\u0300-\u036f\u0483-\u0489\u0591-\u1dff\u20d0-\u20ff\u2cef-\u2dff\u302a-\u302f\u3099\u309a"
    rf"\ua66f-\uabed\ufb1e\ufe20-\ufe2f\U000101fd-\U00011fff\U00016af0-\U00016fff\U0001bc9d\U0001bc9e\U0001cf00-\U0001cf46\U0001d165-\U0001e94a]{{{MARKS + 1},}}"
)
_SEQUENCES = r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"


def printable(text: str) -> str:
    """Return `text` with everything that could control a terminal, or hide, as a visible escape."""
    if text.isascii() and not _STEERING.search(text):
        return text
    text = text.replace("\r\n", "\n")
    if not text.isascii():
        text = re.sub(_MAYBE_MARKS, _with_few_marks, text)
    return re.sub(_HIDDEN, _visible, text)


def printable_line(text: str) -> str:
    """As `printable`, on one line: line ends are shown as escapes too."""
    return printable(text).replace("\n", "\\n")


def bare(text: str) -> str:
    """Return the visible text, without escape sequences and hidden characters. For comparing, not for showing."""
    if text.isascii() and not _STEERING.search(text):
        return text
    text = re.sub(_SEQUENCES, "", text.replace("\r\n", "\n"))
    return re.sub(_HIDDEN, lambda match: match["meant"] or "", text)


def _visible(match: re.Match[str]) -> str:
    return match["meant"] or _escape_letter(match.group())


@lru_cache(4096)
def _escape_letter(letter: str) -> str:
    code = ord(letter)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _with_few_marks(match: re.Match[str]) -> str:
    kept: list[str] = []
    run = 0
    for letter in match.group():
        run = run + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        kept.append(letter if run <= MARKS else _escape_letter(letter))
    return "".join(kept)


BYTES_PER_TOKEN = 4
"""An estimate for English and code."""
NO_OUTPUT = "(no output)"
"""Shown to the model in place of empty output."""


def cap_text(text: str, limit: int, *, whole: str = "") -> str:
    """Return `text` if it fits in `limit` characters, else its head and tail around a line that counts the rest.

    `whole` names where all of it can be found, e.g. a blob.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    note = _left_out(len(text) - limit, len(text), "characters", whole)
    return f"{text[:head]}\n{note}\n{text[len(text) - tail :]}"


def capped_lines(text: str, limit: int, *, whole: str = "") -> str:
    """As `cap_text`, counting lines."""
    lines = text.split("\n")
    count = len(lines) - (lines[-1] == "")  # a final line break does not begin another line
    if count <= limit:
        return text
    head = limit * 2 // 3
    note = _left_out(count - limit, count, "lines", whole)
    return "\n".join([*lines[:head], note, *lines[head + count - limit :]])


def _left_out(count: int, of: int, what: str, whole: str) -> str:
    return f"[... {count:,} of {of:,} {what} left out{f'; all of it: {whole}' if whole else ''} ...]"


def first_line(text: str, limit: int = 200) -> str:
    """Return the first line that is not blank, cut at `limit`."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def join_names(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the known name that is most like `name`; empty if none is like it."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, [*known], n=1, cutoff=cutoff)), "")


def pluralize(what: str, count: int) -> str:
    """Return `1 turn`, or `3 turns`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def join_numbers(what: str, numbers: Sequence[int]) -> str:
    """Return `cell 3`, or `cells 3, 4`."""
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def abbreviate_home(text: str) -> str:
    """Return `text` with `~` in place of the user's home folder in paths."""
    try:
        home = str(Path.home())
    except RuntimeError:  # the user has no home folder
        return text
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}/", "~/", text)
