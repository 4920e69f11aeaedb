"""`answer(text)` in cells: what the user is told, and the end of the turn if the cell ends well."""

from __future__ import annotations

import builtins


def answer(text: object = "") -> None:
    """Tell the user the result and end the turn, unless the rest of the code fails."""
    from ..calls import call, is_possible

    if is_possible():
        call("answer", text=str(text))
    else:
        print(text)  # noqa: T201 - for the model, which then says it


def install() -> None:
    builtins.answer = answer  # pyright: ignore[reportAttributeAccessIssue]
