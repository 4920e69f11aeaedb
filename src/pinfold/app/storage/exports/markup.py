"""HTML that a program displayed, made harmless: plain tables and text as a part of the page, all else in a frame of its own."""

from __future__ import annotations

import re
from html import escape, unescape

_PLAIN = frozenset(
    [
        "table",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "th",
        "td",
        "caption",
        "colgroup",
        "p",
        "div",
        "span",
        "b",
        "strong",
        "i",
        "em",
        "u",
        "s",
        "code",
        "pre",
        "sub",
        "sup",
        "small",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "ul",
        "ol",
        "li",
        "dl",
        "dt",
        "dd",
        "blockquote",
    ]
)
_EMPTY = frozenset(("br", "hr", "col"))
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z][A-Za-z0-9]*)(?P<attributes>(?:\s[^<>]{0,500})?)/?>")
_SPAN = re.compile(r"\s(colspan|rowspan)\s*=\s*[\"']?([0-9]{1,4})[\"']?(?=\s|$)", re.IGNORECASE)
_SCOPED = re.compile(r"<style scoped>[^<]*</style>")
"""What pandas adds to every table."""
_DEEPEST = 100
_LARGEST = 500_000
_FRAMED = 5_000_000
"""Characters."""
_FRAME = "<style>body{font:14px system-ui,sans-serif;color:#1c1c1e;background:#fff;margin:8px}</style>"


def inline_html(html: str) -> str | None:
    """The same with nothing but text, tables and emphasis in it; None where that would not be the same."""
    if len(html) > _LARGEST:
        return None
    return _HtmlCleaner().clean_html(_SCOPED.sub("", html))


def frame_html(html: str) -> str | None:
    """In a frame in which nothing runs; what it may load, the page's own policy says. None if it is too much."""
    if len(html) > _FRAMED:
        return None
    rows = html.count("<tr") + html.count("<p") + html.count("<div") // 2 + html.count("<br")
    height = max(120, min(640, 40 + 26 * rows))
    inside = escape(f"<!doctype html><meta charset=utf-8>{_FRAME}{html}")
    return f'<iframe sandbox title="HTML" height="{height}" srcdoc="{inside}"></iframe>'


class _HtmlCleaner:
    """Strict on purpose: what is not plainly one of our tags, or text, is for the frame."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._open: list[str] = []

    def clean_html(self, html: str) -> str | None:
        end = 0
        for tag in _TAG.finditer(html):
            if not self._text(html[end : tag.start()]):
                return None
            end = tag.end()
            name = tag["name"].lower()
            if name not in _PLAIN and name not in _EMPTY:
                return None
            if tag["end"]:
                self._close(name)
            elif len(self._open) < _DEEPEST:
                self._begin(name, tag["attributes"])
            else:
                return None
        if not self._text(html[end:]):
            return None
        return "".join([*self._parts, *(f"</{tag}>" for tag in reversed(self._open))])

    def _text(self, text: str) -> bool:
        """Whether it is text: no mark of another tag is in it."""
        self._parts.append(escape(unescape(text)))
        return "<" not in text

    def _begin(self, name: str, attributes: str) -> None:
        kept = "".join(f' {span[1].lower()}="{span[2]}"' for span in _SPAN.finditer(attributes))
        self._parts.append(f"<{name}{kept}>")
        if name not in _EMPTY:
            self._open.append(name)

    def _close(self, name: str) -> None:
        while name in self._open:
            last = self._open.pop()
            self._parts.append(f"</{last}>")
            if last == name:
                break
