"""HTML cut into tags and text in one pass. Never fails, and never looks at a place twice: pages are hostile.

The standard library's parser searches to the end of the page for every comment that is not closed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TAG = re.compile(r"<(?P<slash>/?)(?P<name>[a-zA-Z][a-zA-Z0-9:-]{0,40})")
_ATTRIBUTE = re.compile(
    r"""[\s/]*(?P<name>[^\s"'>/=]{1,100})(?:\s{0,20}=\s{0,20}(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s>"']+)))?"""
)
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "iframe", "xmp", "noembed")}
"""What is within them is no markup, and is left out."""
ATTRIBUTES = 50
"""Of one tag."""


@dataclass(frozen=True, slots=True)
class Tag:
    name: str
    is_end: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])


def pieces(page: str) -> Iterator[Tag | str]:
    """Tags and texts in order; texts are unescaped, comments and declarations are left out."""
    at, stop = 0, len(page)
    lost: set[str] = set()
    """What was searched for and is not there any more."""

    def find(what: str, start: int) -> int:
        found = -1 if what in lost else page.find(what, start)
        if found < 0:
            lost.add(what)
        return found

    while at < stop:
        mark = page.find("<", at)
        if mark < 0:
            mark = stop
        if mark > at:
            yield html.unescape(page[at:mark])
        if mark == stop:
            return
        if page.startswith("<!--", mark):
            end = find("-->", mark + 4)
            at = stop if end < 0 else end + 3
        elif page.startswith(("<!", "<?"), mark):
            end = find(">", mark)
            at = stop if end < 0 else end + 1
        elif tag := _TAG.match(page, mark):
            close = find(">", tag.end())
            if close < 0:  # then it is a sign of the text's
                yield "<"
                at = mark + 1
                continue
            found, at = _tag(page, tag, close)
            yield found
            if found.name in _RAW and not found.is_end:
                end_tag = _RAW[found.name].search(page, at)
                at = end_tag.start() if end_tag else stop
        else:
            yield "<"
            at = mark + 1


def _tag(page: str, tag: re.Match[str], close: int) -> tuple[Tag, int]:
    name = tag["name"].lower()
    if tag["slash"]:
        return Tag(name, is_end=True), close + 1
    attributes: dict[str, str] = {}
    at = tag.end()
    for _ in range(ATTRIBUTES):
        found = _ATTRIBUTE.match(page, at)
        if found is None:
            break
        at = found.end()
        value = found["double"] or found["single"] or found["bare"] or ""
        attributes.setdefault(found["name"].lower(), html.unescape(value))
    end = page.find(">", at)
    return Tag(name, attributes=attributes), (end + 1 if end >= 0 else len(page))
