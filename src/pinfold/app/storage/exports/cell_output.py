"""What a cell printed, taken out of what the model was shown of it: the inverse of `observing.observation`.

Old logs have nothing else. Where between its lines a display was made is not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from pinfold.app.session.observations import LAST_WORDS, STDERR
from pinfold.text import NO_OUTPUT

_OWN_NOTICES = re.compile(rf"(?:\n?\[(?:{'|'.join(LAST_WORDS)})[^\n]*\])+\Z")
"""Lines that no program is likely to print by chance."""


class PrintedOutput(Struct, frozen=True, kw_only=True):
    stdout: str = ""
    stderr: str = ""
    notices: tuple[str, ...] = ()


def split_observation(whole: str, *, value: str | None, error: str | None, shown: Iterable[str] = ()) -> PrintedOutput:
    """`whole` is all of the observation; `shown` what stands in it for each display."""
    text = whole.rstrip("\n")
    if not text or text == NO_OUTPUT:
        return PrintedOutput()
    rest, notices = _split_off_end(text, error or value)
    if error and value is not None:
        rest = _remove_last(rest, value)
    for words in reversed([*shown]):
        if words != value:
            rest = _remove_last(rest, words)
    stdout, _, stderr = f"\n{rest}".partition(f"\n{STDERR}\n")
    return PrintedOutput(stdout=_lines(stdout[1:]), stderr=_lines(stderr), notices=notices)


def _split_off_end(text: str, last: str | None) -> tuple[str, tuple[str, ...]]:
    """What stands before `last`, and the notices behind it."""
    wanted = (last or "").rstrip("\n")
    if not wanted:
        found = _OWN_NOTICES.search(text)
        return (text[: found.start()], _read_notices(found.group())) if found else (text, ())
    head = text
    while head != wanted and not head.endswith(f"\n{wanted}"):
        head, _, line = head.rpartition("\n")
        if not (line.startswith("[") and line.endswith("]")):
            return text, ()
    return head[: -len(wanted)].removesuffix("\n"), _read_notices(text[len(head) :])


def _remove_last(text: str, words: str) -> str:
    wanted = words.rstrip("\n")
    if text == wanted:
        return ""
    return text.removesuffix(f"\n{wanted}")


def _read_notices(text: str) -> tuple[str, ...]:
    return tuple(line[1:-1] for line in text.split("\n") if line)


def _lines(text: str) -> str:
    return f"{text}\n" if text.strip("\n") else ""
