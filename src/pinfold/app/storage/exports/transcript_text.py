"""Texts of a transcript: what a cell printed, taken out of what the model saw of it, and replies without their code.

`split_observation` is the inverse of `observations.observation`: old logs hold nothing else. Everything is cleaned of secrets
and of characters that steer or hide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import cast

from msgspec import Struct

from pinfold.app.session.observations import LAST_WORDS, STDERR
from pinfold.events import CallTool, ModelReplied
from pinfold.text import NO_OUTPUT, cap_text, presentable, redact

SHOWN = 1_000_000
"""Characters of one text that are exported."""
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_FENCED = re.compile(r"(?P<run>```+|~~~+)[^\n`]*\n(?P<body>.*?)(?:\n?(?P=run)\n?|\Z)", re.DOTALL)
_TAGGED = re.compile(
    r"(?<!`)<(tool_call|function_call|tool_use|tool)(?:[ \t=:][^<>\n]{0,200}+)?+>.*?(?:</\1>\n?|\Z)", re.DOTALL
)
_OBJECT = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
_JSON = json.JSONDecoder(strict=False)
_OBJECTS = 64
"""Places of a reply where JSON is looked for."""
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


def remove_code(event: ModelReplied) -> str:
    """A reply without the code it runs, which is told as a cell, and without calls that were read out of its text."""
    calls = (CallTool(tool=call.tool, args=call.args) for call in event.actions)
    codes = {code for call in calls if (code := str(call.given.get("code", "")).strip())}
    text = event.text
    if event.in_text:
        text = _remove_objects(_TAGGED.sub("", text), codes)
    if not codes:
        return text
    return _FENCED.sub(lambda found: "" if _is_one_of(found["body"], codes) else found[0], text)


def _is_one_of(body: str, codes: set[str]) -> bool:
    """The code itself, or a call written as JSON that holds it."""
    return body.strip() in codes or not _remove_objects(body, codes).strip()


def _remove_objects(text: str, codes: set[str]) -> str:
    """Without JSON at the beginning of a line that holds one of the codes."""
    for found in reversed([*_OBJECT.finditer(text)][:_OBJECTS]):
        try:
            value, end = _JSON.raw_decode(text, found.end())
        except (ValueError, RecursionError):
            continue
        if codes & {one.strip() for one in _texts_in(value)}:
            text = text[: found.start()] + text[end:]
    return text


def _texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in cast("dict[str, object]", value).values():
                yield from _texts_in(one)
        case list():
            for one in cast("list[object]", value):
                yield from _texts_in(one)
        case _:
            pass


def clean_text(text: str) -> str:
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if "\r" in text:
        # What a progress bar wrote over itself: the last of it counts, as on a screen.
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return presentable(cap_text(redact(text), SHOWN) if len(text) > SHOWN else text)


def clean_code(code: str) -> str:
    return redact(code).encode("utf-8", "replace").decode()
