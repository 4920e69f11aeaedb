"""Styled text as prompt_toolkit has it: cut, merged, joined."""

from __future__ import annotations

from itertools import groupby

from prompt_toolkit.formatted_text import StyleAndTextTuples


def cut(line: StyleAndTextTuples, columns: int) -> StyleAndTextTuples:
    """Not to the last column: some terminals would wrap."""
    [(style, text, *_)] = line
    room = max(1, columns - 1)
    return [(style, text if len(text) <= room else text[: room - 1] + "…")]


def merge_fragments(line: StyleAndTextTuples) -> StyleAndTextTuples:
    """Letters of one style together: they come one by one, and each would be laid out by itself."""
    together: StyleAndTextTuples = []
    for style, letters in groupby(line, key=lambda fragment: fragment[0]):
        together.append((style, "".join(fragment[1] for fragment in letters)))
    while together and not together[-1][1].rstrip(" "):
        together.pop()
    if together:  # blanks at the end would be broken into a line of their own when the terminal gets narrower
        together[-1] = (together[-1][0], together[-1][1].rstrip(" "))
    return together


def join_lines(lines: list[StyleAndTextTuples]) -> StyleAndTextTuples:
    whole: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        if number:
            whole.append(("", "\n"))
        whole += line
    return whole


def format_elapsed(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
