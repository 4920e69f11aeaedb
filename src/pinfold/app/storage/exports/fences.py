"""Text of unknown origin inside markdown: set apart so that nothing in it is markup, or kept as markdown but without HTML."""

from __future__ import annotations

import re
from itertools import pairwise

from pinfold.app.storage.exports.markdown_html import has_markup

_TICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SPANS = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_TICKED = 2000
"""Beyond that code in a line is not told apart: it would take for ever."""
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_MARKUP = re.compile(r"([\\`*_\[\]#|~])|<(?=[A-Za-z/!?])")


def fence_code(text: str, language: str = "") -> str:
    """A block of code, whatever is in it."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def escape_markdown(text: str) -> str:
    """Plain text: what would be markup is shown as it is."""
    return _MARKUP.sub(lambda match: f"\\{match[1]}" if match[1] else "&lt;", text)


def block_quote(text: str) -> str:
    """Plain text as a quote, line by line."""
    return keep_line_breaks("\n".join(f"> {line}".rstrip() for line in escape_markdown(text).split("\n")))


def sanitize_markdown(text: str) -> str:
    """Markdown as it is, but without HTML and without pictures from elsewhere."""
    kept = _escape_outside_code(text)
    # What looks like code here may be none where blocks lie in each other: then code loses its tags as well.
    return _escape_tags(text) if has_markup(kept) else kept


def keep_line_breaks(text: str) -> str:
    """Markdown in which each line of a paragraph stays a line."""
    lines = text.split("\n")
    fence = ""
    for number, (line, after) in enumerate(pairwise(text.split("\n"))):
        mark = _FENCE.match(line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        elif not fence and line.strip() and after.strip():
            lines[number] = f"{line.rstrip()}  "
    return "\n".join(lines)


def _escape_outside_code(text: str) -> str:
    lines: list[str] = []
    block: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            lines.append(line)
            if mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not line.strip(" `~"):
                fence = ""
        elif mark:
            lines += _escape_outside_spans("\n".join(block)).split("\n") if block else []
            lines.append(line)
            block, fence = [], mark[1]
        else:
            block.append(line)
    if block:
        lines += _escape_outside_spans("\n".join(block)).split("\n")
    # A block that is never closed would swallow what comes after it.
    return "\n".join([*lines, fence] if fence else lines)


def _escape_outside_spans(text: str) -> str:
    if text.count("`") > _TICKED:
        return _escape_tags(text)
    parts: list[str] = []
    end = 0
    for span in _SPANS.finditer(text):
        parts += [_escape_tags(text[end : span.start()]), span[0]]
        end = span.end()
    return "".join([*parts, _escape_tags(text[end:])])


def _escape_tags(text: str) -> str:
    return _TAG.sub("&lt;", text).replace("![", "!\\[")
