"""Markdown of unknown origin as HTML in which nothing runs, loads or leads elsewhere. Code is highlighted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_RENDERED = 200_000
"""Characters beyond which a text is shown as it was written: an adversary's could take for ever."""
_MARKS = "[*_~`<!&"
_MARKED = 4000
"""The same for marks: what it takes to match them grows with their square."""
_MARKUP = ("html_block", "html_inline", "image")
_DEEPEST = 15
"""Blocks in each other; a little further in, our reader looks no more, and another may."""
_TAG_OR_PICTURE = re.compile(r"<[A-Za-z/!?]|!\[")
_HIGHLIGHTED = 20_000
_LANGUAGES = frozenset(
    (
        "python",
        "py",
        "python3",
        "json",
        "bash",
        "sh",
        "console",
        "sql",
        "yaml",
        "toml",
        "ini",
        "diff",
        "js",
        "html",
        "css",
    )
)
"""Not any that a text may name: there are hundreds, each with patterns of its own."""


def render_markdown(text: str) -> str:
    """Markdown as HTML. Where a link goes is told beside it; it is not one."""
    if _is_too_much(text):
        return f"<pre>{escape(text)}</pre>"
    return _renderer().render(text, {"links": []})


def has_markup(text: str) -> bool:
    """Whether a reader of this markdown finds HTML or a picture in it, with tables or without; also where it is too much to tell."""
    if _is_too_much(text):
        return bool(_TAG_OR_PICTURE.search(text))
    return any(
        token.type in _MARKUP or token.level > _DEEPEST
        for reader in _readers()
        for token in _tokens(reader.parse(text))
    )


def _tokens(found: Iterable[Token]) -> Iterator[Token]:
    for token in found:
        yield token
        yield from _tokens(token.children or ())


def _is_too_much(text: str) -> bool:
    return len(text) > _RENDERED or sum(map(text.count, _MARKS)) > _MARKED


def highlight_code(code: str, language: str = "python") -> str:
    """Code as HTML, without anything around it."""
    if len(code) > _HIGHLIGHTED or language not in _LANGUAGES:
        return escape(code)
    # Its types are partly unknown.
    pygments: Any = import_module("pygments")
    lexer = import_module("pygments.lexers").get_lexer_by_name(language, stripnl=False, ensurenl=False)
    plain = import_module("pygments.formatters").HtmlFormatter(nowrap=True, classprefix="k-")
    return str(pygments.highlight(code, lexer, plain))


@lru_cache(1)
def _readers() -> tuple[MarkdownIt, MarkdownIt]:
    from markdown_it import MarkdownIt

    plain, tables = (MarkdownIt("commonmark", {"html": True}) for _ in range(2))
    return plain, tables.enable("table")


@lru_cache(1)
def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False, "breaks": True, "highlight": _fence})
    renderer.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    renderer.add_render_rule("link_open", _link_open)
    renderer.add_render_rule("link_close", _link_close)
    return renderer


def _fence(code: str, language: str, _: str) -> str:
    return highlight_code(code, language) if language else escape(code)


def _link_open(_: Any, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:  # noqa: ARG001
    token = tokens[place]
    said = tokens[place + 1].content if place + 1 < len(tokens) else ""
    env["links"].append("" if token.info == "auto" or said == token.attrGet("href") else token.attrGet("href"))
    return '<span class="link">'


def _link_close(_: Any, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:  # noqa: ARG001
    target = env["links"].pop() if env["links"] else ""
    return f'</span> <span class="url">({escape(str(target))})</span>' if target else "</span>"
