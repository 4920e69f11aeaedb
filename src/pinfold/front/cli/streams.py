"""A cell's own streams on ours, as it writes them."""

from __future__ import annotations

import re
import sys
from typing import Any

from pinfold.events import ActionFinished, ActionId, ApprovalDecided, Delta, Entry, Noticed, OutputDelta, SessionOpened
from pinfold.front.cli.turn_output import show_notice
from pinfold.text import presentable

ALLOWED = "nobody can be asked here; with `--mode full` what needs a yes is allowed"


_EXIT = re.compile(r"(?:\A|\n)SystemExit(?:: (?:None|(?P<code>-?\d{1,9})))?\s*\Z")


class Streams:
    """Of one cell at a time."""

    def __init__(self, cell: ActionId | None = None) -> None:
        self._cell = cell

    def follow(self, cell: ActionId) -> None:
        self._cell = cell

    def show(self, item: Entry | Delta) -> None:
        match item.event if isinstance(item, Entry) else item:
            case OutputDelta(id=id_, stream=stream, text=text) if id_ == self._cell:
                write(sys.stderr if stream == "stderr" else sys.stdout, text)
            case Noticed() | SessionOpened() if isinstance(item, Entry):
                show_notice(item)
            case ApprovalDecided(by="nobody"):
                write(sys.stderr, f"pinfold: {ALLOWED}\n")
            case ActionFinished(id=id_, value=value, error=error, outcome=outcome, notices=notices) if (
                id_ == self._cell
            ):
                for notice in notices:
                    write(sys.stderr, f"pinfold: {presentable(notice)}\n")
                if value is not None:
                    write(sys.stdout, f"{value}\n")
                if exit_code(error) is None and (error or outcome != "ok"):
                    # What was never run said nothing itself: these are our words.
                    whose = "pinfold: " if outcome == "not_run" else ""
                    write(sys.stderr, f"{whose}{(error or outcome).rstrip()}\n")
            case _:
                pass


def exit_code(error: str | None) -> int | None:
    """What a program wants to end with: it called `sys.exit` with a number, or with nothing. None: it did not."""
    found = _EXIT.search(error or "")
    return None if found is None else int(found["code"] or 0) & 0xFF


def write(stream: Any, text: str) -> None:
    if stream.isatty():
        text = presentable(text)
    stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    stream.flush()
