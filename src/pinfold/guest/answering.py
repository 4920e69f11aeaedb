"""`answer(text)` in cells: what the user is told, and the end of the turn if the cell ends well."""

from __future__ import annotations

import builtins


def answer(text: object = "") -> None:
    """Tell the user the result and end the turn, unless the rest of the code fails."""
    from .calls import call

    call("answer", text=str(text))


def install() -> None:
    builtins.answer = answer  # pyright: ignore[reportAttributeAccessIssue]
