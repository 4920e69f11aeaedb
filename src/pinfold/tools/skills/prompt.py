"""What the model is told of skills before it reads one: a line each, of bounded length."""

from __future__ import annotations

import re
from collections.abc import Sequence

LINE_TOKENS = 40
"""Of the line of one skill, at most; a longer description is cut."""
LISTED = 40
"""Skills that the prompt lists."""
_INTRODUCTION = (
    "Skills: before a task that one fits, read it: `from servers.skills import read_skill; read_skill(NAME)`. "
    "Its files are in {place}/NAME.\n"
)
_IN_FILES = "Skills: before a task that one fits, read {place}/NAME/SKILL.md.\n"
_FUNCTIONS = "Functions you made before: `from servers.skills import NAME`.\n"
_AS_TOOLS = "Functions you made before, as tools:\n"
_PIECES = re.compile(r"[A-Za-z]+|\d+|\s+|.", re.DOTALL)


def skills_prompt(
    skills: Sequence[tuple[str, str]], functions: Sequence[tuple[str, str]], place: str, *, can_call: bool = True
) -> str:
    """Each with its description; empty if there are none. `place`: where code finds the folders of skills."""
    heading = (_INTRODUCTION if can_call else _IN_FILES).format(place=place)
    return _section(heading, skills) + _section(_FUNCTIONS if can_call else _AS_TOOLS, functions)


def _section(heading: str, described: Sequence[tuple[str, str]]) -> str:
    lines = [_line(f"- {name}: ", description) for name, description in described[:LISTED]]
    if (more := len(described) - LISTED) > 0:
        lines.append(f'- and {more} more: read_skill("") lists all\n')
    return heading + "".join(lines) if lines else ""


def _line(start: str, description: str) -> str:
    """Cut to its size."""
    room = LINE_TOKENS - 2.0  # for the sign that it was cut, and the end of the line
    kept = ""
    for piece in _PIECES.findall(start + description):
        room -= _estimate_tokens(piece)
        if room < 0:
            return f"{kept.rstrip()}…\n"
        kept += piece
    return f"{kept}\n"


def _estimate_tokens(piece: str) -> float:
    """More than a tokenizer of today makes of a word, a number or a sign, as a rule."""
    if piece.isspace():
        return 0
    if not piece.isascii():
        return 3 if piece > "\uffff" else len(piece.encode()) / 2
    return 1 + max(0, len(piece) - 6) / 3 if piece.isalpha() else len(piece) / 2 if piece.isdigit() else 1
