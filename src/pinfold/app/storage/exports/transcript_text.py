"""Texts of a transcript: a cell's output extracted from its observation, and replies without their code.

`split_observation` is the inverse of `observations.observation`, because old logs hold nothing else. Everything is cleaned
of secrets and of characters that steer a terminal or hide text.
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
"""Maximum characters of one exported text."""
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_FENCED = re.compile(r"(?P<run>```+|~~~+)[^\n`]*\n(?P<body>.*?)(?:\n?(?P=run)\n?|\Z)", re.DOTALL)
_TAGGED = re.compile(
    r"(?<!`)<(tool_call|function_call|tool_use|tool)(?:[ \t=:][^<>\n]{0,200}+)?+>.*?(?:</\1>\n?|\Z)", re.DOTALL
)
_OBJECT = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)
_JSON = json.JSONDecoder(strict=False)
_OBJECTS = 64
"""Maximum places in a reply where JSON is looked for."""
_OWN_NOTICES = re.compile(rf"(?:\n?\[(?:{'|'.join(LAST_WORDS)})[^\n]*\])+\Z")
"""Trailing notices of Pinfold, which no program is likely to print by chance."""


class PrintedOutput(Struct, frozen=True, kw_only=True):
    stdout: str = ""
    stderr: str = ""
    notices: tuple[str, ...] = ()


def split_observation(whole: str, *, value: str | None, error: str | None, shown: Iterable[str] = ()) -> PrintedOutput:
    """Split an observation into its parts. `shown` are the words in it that describe each display."""
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
    """Return the text before `last`, and the notices after it."""
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
    """Return a reply without the code it runs, which the transcript shows as a cell, and without calls in its text."""
    calls = (CallTool(tool=call.tool, args=call.args) for call in event.actions)
    codes = {code for call in calls if (code := str(call.given.get("code", "")).strip())}
    text = event.text
    if event.in_text:
        text = _remove_objects(_TAGGED.sub("", text), codes)
    if not codes:
        return text
    return _FENCED.sub(lambda found: "" if _is_one_of(found["body"], codes) else found[0], text)


def _is_one_of(body: str, codes: set[str]) -> bool:
    """True if the text is one of the codes, or a JSON call that holds one."""
    return body.strip() in codes or not _remove_objects(body, codes).strip()


def _remove_objects(text: str, codes: set[str]) -> str:
    """Remove JSON values that start a line and hold one of the codes."""
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
        # Where a progress bar overwrote its line, keep the last version, as a screen does.
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return presentable(cap_text(redact(text), SHOWN) if len(text) > SHOWN else text)


def clean_code(code: str) -> str:
    return redact(code).encode("utf-8", "replace").decode()
