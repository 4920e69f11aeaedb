"""Converts an HTML page to text for a model: headings, lists, tables, links and code as in Markdown.

Text that a browser would hide is left out. Pages may be hostile, so the page is read in one pass and linear time: the
standard library's parser searches to the end of the page for every unclosed comment.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from urllib.parse import urljoin

_TAG = re.compile(r"<(?P<slash>/?)(?P<name>[a-zA-Z][a-zA-Z0-9:-]{0,40})")
_ATTRIBUTE = re.compile(
    r"""[\s/]*(?P<name>[^\s"'>/=]{1,100})(?:\s{0,20}=\s{0,20}(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s>"']+)))?"""
)
_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "iframe", "xmp", "noembed")}
"""Elements whose content is not markup, with the end tag of each; the content is left out."""
ATTRIBUTES = 50
"""Maximum number read per tag."""
_UNREAD = frozenset(
    {"script", "style", "template", "svg", "math", "noscript", "iframe", "object", "select", "canvas", "dialog"}
)
_VOID = frozenset(
    {"br", "hr", "img", "input", "meta", "link", "wbr", "source", "track", "col", "area", "base", "embed"}
)
_BLOCKS = frozenset(
    {
        *("p", "div", "section", "article", "main", "header", "footer", "aside", "nav", "form", "fieldset", "figure"),
        *("ul", "ol", "dl", "dt", "dd", "table", "blockquote", "figcaption", "details", "summary", "address", "body"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "pre", "tr", "li", "hr", "caption", "title"),
    }
)
_PARAGRAPHS = _BLOCKS - {"li", "tr", "dt", "dd", "div"}
_HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d])"
)
_LINK_CHARS = 300
_DEPTH = 10
"""Maximum indentation of lists; deeper ones are not indented further."""


def readable(page: str, base: str = "") -> str:
    """Convert a page to text. `base` is its URL, for relative links."""
    writer = _Writer(base)
    _feed(page, writer)
    return writer.whole()


class _Writer:
    def __init__(self, base: str) -> None:
        self._base = base
        self._lines: list[str] = []
        self._line: list[str] = []
        self._gap = False
        """True if a blank line is due before the next text."""
        self._skipped: tuple[str, int] | None = None
        """Name of the element being skipped, and how many elements of that name are open."""
        self._lists: list[int] = []
        """The last number of each open list; -1 for a list without numbers."""
        self._pre = 0
        self._link: tuple[str, int] | None = None
        """Target of the open link, and the start of its text in the line."""
        self._cells = 0

    def whole(self) -> str:
        self._break()
        return "\n".join(self._lines).strip()

    def text(self, text: str) -> None:
        if self._skipped:
            return
        if self._pre:
            first, *rest = text.split("\n")
            self._line.append(first)
            for line in rest:
                self._put("".join(self._line))
                self._line = [line]
            return
        words = " ".join(text.split())
        if words or self._line:
            before = " " if text[:1].isspace() else ""
            after = " " if text[-1:].isspace() and words else ""
            self._line.append(before + words + after)

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._skipped:
            if name == self._skipped[0] and name not in _VOID:
                self._skipped = (name, self._skipped[1] + 1)
            return
        if name not in _VOID and (name in _UNREAD or _is_hidden(attributes)):
            self._skipped = (name, 1)
            return
        if name in _BLOCKS:
            self._break()
            self._gap = self._gap or name in _PARAGRAPHS
            self._open_block(name)
        else:
            self._open_inline(name, attributes)

    def _open_block(self, name: str) -> None:
        match name:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._line.append("#" * int(name[1]) + " ")
            case "ul" | "ol":
                self._gap = not self._lists
                self._lists.append(0 if name == "ol" else -1)
            case "li":
                self._item()
            case "hr":
                self._put("---")
            case "pre":
                self._put("```")
                self._pre += 1
            case "tr":
                self._cells = 0
            case _:
                pass

    def _open_inline(self, name: str, attributes: Mapping[str, str]) -> None:
        match name:
            case "br":
                self._break()
            case "code" if not self._pre:
                self._line.append("`")
            case "td" | "th":
                self._line.append(" | " if self._cells else "")
                self._cells += 1
            case "img" if alt := " ".join(attributes.get("alt", "").split()):
                self._line.append(f"[image: {alt[:_LINK_CHARS]}]")
            case "a":
                self._link = (self._target(attributes.get("href", "")), len(self._line))
            case _:
                pass

    def end(self, name: str) -> None:
        if self._skipped:
            left = self._skipped[1] - (name == self._skipped[0])
            self._skipped = (self._skipped[0], left) if left else None
            return
        match name:
            case "a":
                self._close_link()
            case "code" if not self._pre:
                self._line.append("`")
            case "pre" if self._pre:
                self._pre -= 1
                self._break()
                self._put("```")
            case "ul" | "ol" if self._lists:
                self._break()
                self._lists.pop()
            case _:
                pass
        if name in _BLOCKS:
            self._break()
            self._gap = self._gap or name in _PARAGRAPHS

    def _item(self) -> None:
        indent = "  " * min(len(self._lists) - 1, _DEPTH)
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] += 1
            self._line.append(f"{indent}{self._lists[-1]}. ")
        else:
            self._line.append(f"{indent}- ")

    def _target(self, href: str) -> str:
        if not href or href.startswith("#"):
            return ""
        try:
            target = urljoin(self._base, href.strip())
        except ValueError:
            return ""
        is_good = target.startswith(("http://", "https://", "mailto:")) and len(target) <= _LINK_CHARS
        return target if is_good and not re.search(r"[\s()<>]", target) else ""

    def _close_link(self) -> None:
        if self._link is None:
            return
        (target, start), self._link = self._link, None
        text = " ".join("".join(self._line[start:]).split())
        if target and text and not self._pre:
            self._line[start:] = [f"[{text}]({target})"]

    def _break(self) -> None:
        text = "".join(self._line)
        indent = re.match(r" *(?=- |\d+\. )", text) if self._lists else None
        line = text.rstrip() if self._pre else (indent.group() if indent else "") + " ".join(text.split())
        self._line = []
        self._link = None
        if line.strip("# -|`") or (self._pre and line):
            self._put(line)

    def _put(self, line: str) -> None:
        if self._gap and self._lines and self._lines[-1]:
            self._lines.append("")
        self._gap = False
        self._lines.append(line)


def _is_hidden(attributes: Mapping[str, str]) -> bool:
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden", "").lower() == "true"
        or bool(_HIDDEN_STYLE.search(attributes.get("style", "").lower()))
    )


def _feed(page: str, writer: _Writer) -> None:
    """Pass tags and unescaped texts to the writer in order; skip comments and declarations."""
    at = 0
    lost: set[str] = set()
    """Strings that do not occur in the rest of the page."""

    def after(what: str, start: int) -> int:
        """Return the position after the next `what`, or the end of the page."""
        found = -1 if what in lost else page.find(what, start)
        if found < 0:
            lost.add(what)
        return found + len(what) if found >= 0 else len(page)

    while (mark := page.find("<", at)) >= 0:
        writer.text(html.unescape(page[at:mark]))
        if page.startswith("<!--", mark):
            at = after("-->", mark + 4)
        elif page.startswith(("<!", "<?"), mark):
            at = after(">", mark)
        elif tag := _TAG.match(page, mark):
            close = after(">", tag.end())
            name = tag["name"].lower()
            if ">" in lost:  # no `>` follows: a literal `<`
                writer.text("<")
                at = mark + 1
            elif tag["slash"]:
                writer.end(name)
                at = close
            else:
                attributes, at = _read_attributes(page, tag.end())
                writer.start(name, attributes)
                if name in _RAW:
                    end_tag = _RAW[name].search(page, at)
                    at = end_tag.start() if end_tag else len(page)
        else:
            writer.text("<")
            at = mark + 1
    writer.text(html.unescape(page[at:]))


def _read_attributes(page: str, at: int) -> tuple[dict[str, str], int]:
    """Return the attributes, and the position after the tag."""
    attributes: dict[str, str] = {}
    for _ in range(ATTRIBUTES):
        found = _ATTRIBUTE.match(page, at)
        if found is None:
            break
        at = found.end()
        value = found["double"] or found["single"] or found["bare"] or ""
        attributes.setdefault(found["name"].lower(), html.unescape(value))
    end = page.find(">", at)
    return attributes, (end + 1 if end >= 0 else len(page))
