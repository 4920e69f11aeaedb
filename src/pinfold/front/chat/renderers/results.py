"""Splits the observation of an action into its parts; renders its status line."""

from __future__ import annotations

import re

from msgspec import Struct
from rich.text import Text

from pinfold.app import changed_in_words
from pinfold.events import ActionFinished
from pinfold.front.chat.renderers.output import STDERR
from pinfold.text import NO_OUTPUT, presentable_line

_SHOWN = re.compile(rb"(?:\A|\n)\[shown to the user: [^\]\n]{1,400}\]$")
_NOTE = re.compile(rb"(?:\A|\n)(\[[^\n]{1,2000}\])$")
_INTERRUPTED = re.compile(rb"\AThis was interrupted;[^\n]*(?:\nOutput until then:)?(?:\n|\Z)")
"""Text for the model; the user sees it in the status line."""
_EXIT = re.compile(r"(?:\A|\n)\[(exit code \d+)\]\Z")
_NOTES = 8
_LINE = 2200
"""Longest line that is searched for at the end of an output."""
_OUTCOMES = {
    "ok": ("ok", "green"),
    "error": ("error", "red"),
    "denied": ("not run", "yellow"),
    "interrupted": ("interrupted", "yellow"),
    "timeout": ("out of time", "red"),
    "killed": ("killed", "red"),
    "outcome_unknown": ("outcome unknown", "yellow"),
    "not_run": ("not run", "yellow"),
}


class Parts(Struct, kw_only=True):
    """The parts of an observation."""

    stdout: bytes
    stderr: bytes = b""
    value: str = ""
    error: str = ""
    notes: list[str] = []


def split_observation(event: ActionFinished, whole: bytes, told: list[bytes]) -> Parts:
    """`told`: the texts of its displays, in order. What is not recognised stays in the output."""
    rest = whole.rstrip(b"\n")
    if event.outcome == "interrupted":
        rest = _INTERRUPTED.sub(b"", rest, count=1)
    parts = Parts(stdout=b"")
    if event.error:
        rest = _take_error(rest, event.error, parts)
    elif event.value is not None:
        rest = _take_value(rest, event.value, parts)
    for text in reversed(told):
        taken = _without(rest, text.rstrip(b"\n"))
        rest = rest if taken is None else taken
    while shown := _SHOWN.search(rest, max(0, len(rest) - _LINE)):
        rest = rest[: shown.start()]
    if rest == NO_OUTPUT.encode():
        rest = b""
    mark = STDERR.encode() + b"\n"
    if rest.startswith(mark):
        parts.stderr = rest[len(mark) :]
    else:
        parts.stdout, _, parts.stderr = rest.partition(b"\n" + mark)
    return parts


def _take_error(rest: bytes, error: str, parts: Parts) -> bytes:
    before, found, after = rest.rpartition(error.rstrip("\n").encode("utf-8", "surrogatepass"))
    if not found:
        return rest
    parts.error = error
    parts.notes = [line.decode("utf-8", "replace") for line in after.split(b"\n") if line.strip()]
    return before.rstrip(b"\n")


def _take_value(rest: bytes, value: str, parts: Parts) -> bytes:
    """It is last, except for notes in brackets."""
    end = value.rstrip("\n").encode("utf-8", "surrogatepass")
    left, notes = rest, list[str]()
    for _ in range(_NOTES):
        if (before := _without(left, end)) is not None:
            parts.value, parts.notes = value, notes
            return before
        note = _NOTE.search(left, max(0, len(left) - _LINE))
        if note is None:
            break
        notes.insert(0, note[1].decode("utf-8", "replace"))
        left = left[: note.start()]
    return rest


def _without(rest: bytes, end: bytes) -> bytes | None:
    """None if `rest` does not end in these lines."""
    if not end or not rest.endswith(end):
        return None
    before = rest[: -len(end)]
    return before.rstrip(b"\n") if not before or before.endswith(b"\n") else None


def exit_code(event: ActionFinished) -> str:
    """`exit code 1`, if a command ended with that."""
    found = _EXIT.search(event.observation.rstrip("\n")) if event.outcome in ("ok", "error") else None
    return found[1] if found else ""


def render_status(event: ActionFinished, exit_code: str = "") -> Text:
    """`[ok 0.02 s; variables: added x]`."""
    words, style = (exit_code, "yellow") if exit_code else _OUTCOMES[event.outcome]
    text = Text().append("    [", "dim")
    text.append(words, style)
    text.append(f" {event.duration_s:.2f} s", "dim")
    if event.variables:
        text.append(f"; {presentable_line(changed_in_words(event.variables))}", "dim")
    if event.rolled_back:
        text.append("; rolled back: variables and files are as before it", "yellow")
    return text.append("]", "dim")
