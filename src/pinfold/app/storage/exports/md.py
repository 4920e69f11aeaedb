"""A session as markdown. Pictures are separate files or embedded.

Markdown and HTML of unknown origin are sanitised: nothing in them runs, loads or links elsewhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from importlib import import_module
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, assert_never

from pinfold.app.storage.exports import transcript
from pinfold.app.storage.exports.transcript import PICTURES, best_of, display_label, suffix_of
from pinfold.text import cap_text, join_names, printable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


_RENDERED = 200_000
"""Maximum characters of markdown that is rendered; hostile input could take very long."""
_MARKS = "[*_~`<!&"
_MARKED = 4000
"""Maximum markup characters; the time to match them grows quadratically."""
_MARKUP = ("html_block", "html_inline", "image")
_DEEPEST = 15
"""Maximum nesting of blocks. A little deeper our parser stops, while another may go on."""
_TAG_OR_PICTURE = re.compile(r"<[A-Za-z/!?]|!\[")
_HIGHLIGHTED = 20_000
_LANGUAGES = "python py python3 json bash sh console sql yaml toml ini diff js html css"
"""The only languages that are highlighted; a text could name any of hundreds, each with its own patterns."""
_PLAIN_TAGS = (
    "table thead tbody tfoot tr th td caption colgroup col p div span b strong i em u s code pre sub sup small br hr "
    "h1 h2 h3 h4 h5 h6 ul ol li dl dt dd blockquote"
)
_PLAIN = frozenset(_PLAIN_TAGS.split())
_CELL_SPANS = {"colspan", "rowspan"}
_ANY_TAG = re.compile(r"<(/?)([A-Za-z0-9]*)")
_SCOPED = re.compile(r"<style scoped>[^<]*</style>")
"""The style that pandas adds to every table."""
_DEEPEST_TAGS = 100
_LARGEST = 500_000
_FRAMED = 5_000_000
"""Maximum characters of HTML in a frame."""
_CONNECTS = re.compile(r"<(/?)(?=link|iframe|frame|object|embed|portal|fencedframe|meta|base)", re.IGNORECASE)
"""For these tags a browser resolves the host and connects before a policy refuses the load."""
_FRAME = "<style>body{font:14px system-ui,sans-serif;color:#1c1c1e;background:#fff;margin:8px}</style>"


def render_markdown(text: str) -> str:
    """Render markdown as HTML. Links become text followed by their address."""
    if _is_too_much(text):
        return f"<pre>{escape(text)}</pre>"
    markdown = _renderer()
    tokens = markdown.parse(text)
    for token in tokens:
        _tell_links(token.children or ())
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def has_markup(text: str) -> bool:
    """True if a parser, with or without tables, finds HTML or a picture; text too long to parse is searched."""
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
    """Highlight code as HTML, without an enclosing tag."""
    if len(code) > _HIGHLIGHTED or language not in _LANGUAGES.split():
        return escape(code)
    # pygments is only partly typed.
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
    return renderer


def _fence(code: str, language: str, _: str) -> str:
    return highlight_code(code, language) if language else escape(code)


def _tell_links(tokens: Sequence[Token]) -> None:
    targets: list[str] = []
    for place, token in enumerate(tokens):
        if token.type == "link_open":
            target, said = str(token.attrGet("href") or ""), tokens[place + 1].content
            targets.append("" if token.info == "auto" or said == target else target)
            token.type, token.content = "html_inline", '<span class="link">'
        elif token.type == "link_close":
            target = targets.pop()
            beside = f' <span class="url">({escape(target)})</span>' if target else ""
            token.type, token.content = "html_inline", f"</span>{beside}"


_TICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SPANS = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_TICKED = 2000
"""With more backticks than this, inline code is not recognised, because it would take very long."""
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_MARKUP_CHARACTERS = re.compile(r"([\\`*_\[\]#|~])|<(?=[A-Za-z/!?])")


def fence_code(text: str, language: str = "") -> str:
    """Return a fenced code block; the fence is longer than any in the text."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def escape_markdown(text: str) -> str:
    """Escape plain text so that markdown shows it unchanged."""
    return _MARKUP_CHARACTERS.sub(lambda match: f"\\{match[1]}" if match[1] else "&lt;", text)


def block_quote(text: str) -> str:
    """Return plain text as a markdown quote, line by line."""
    return keep_line_breaks("\n".join(f"> {line}".rstrip() for line in escape_markdown(text).split("\n")))


def sanitize_markdown(text: str) -> str:
    """Return the markdown with its HTML and pictures escaped."""
    kept = _escape_outside_code(text)
    # In nested blocks, what looks like code may not be code. If markup is left, escape tags in code as well.
    return _escape_tags(text) if has_markup(kept) else kept


def keep_line_breaks(text: str) -> str:
    """Return markdown in which each line of a paragraph stays a line."""
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
    # An unclosed fence would swallow what comes after it.
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


def inline_html(html: str) -> str | None:
    """Return cleaned HTML if it holds only text, tables and emphasis; None if it needs a frame."""
    import nh3

    html = _SCOPED.sub("", html)
    tags = [(end, name.lower()) for end, name in _ANY_TAG.findall(html)]
    depths = accumulate(-1 if end else 1 for end, name in tags if name not in ("br", "hr", "col"))
    if len(html) > _LARGEST or any(name not in _PLAIN for _, name in tags) or max(depths, default=0) > _DEEPEST_TAGS:
        return None
    return nh3.clean(html, tags=set(_PLAIN), attributes={"td": _CELL_SPANS, "th": _CELL_SPANS}, link_rel=None)


def frame_html(html: str) -> str | None:
    """Put HTML in a frame without scripts; the page's policy decides what it may load. None if it is too long."""
    if len(html) > _FRAMED:
        return None
    rows = html.count("<tr") + html.count("<p") + html.count("<div") // 2 + html.count("<br")
    height = max(120, min(640, 40 + 26 * rows))
    html = _CONNECTS.sub(r"<\1x-", html)
    inside = escape(f"<!doctype html><meta charset=utf-8>{_FRAME}{html}")
    return f'<iframe sandbox title="HTML" height="{height}" srcdoc="{inside}"></iframe>'


LONG = 24
"""Output of this many lines or more is folded."""
_FILES = 20
_SHOWN = 20_000
"""Maximum characters of one output."""


def to_md(story: transcript.Transcript, folder: str | None = None) -> tuple[bytes, Mapping[str, bytes]]:
    """Return the page and its picture files by path in `folder`; without a folder, pictures are embedded."""
    page = _Page(folder)
    text = "\n\n".join([*_head(story), *(part for item in story.items for part in page.parts(item))])
    return f"{text}\n".encode("utf-8", "replace"), page.files


def _head(story: transcript.Transcript) -> Iterator[str]:
    yield f"# {escape_markdown(story.title)}"
    began = story.began[:16].replace("T", " ")
    yield " · ".join(filter(None, (f"Pinfold session `{story.session}`", *map(escape_markdown, story.models), began)))


class _Page:
    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self.files: dict[str, bytes] = {}

    def parts(self, item: transcript.Item) -> Iterator[str]:
        match item:
            case transcript.Prompt(text=text, images=images):
                yield f"---\n\n## You\n\n{block_quote(text)}"
                for one in images:
                    yield self._picture(one, f"given-{len(self.files) + 1}", "picture")
            case transcript.Answer(text=text):
                yield keep_line_breaks(sanitize_markdown(text.strip()))
            case transcript.Cell() as cell:
                yield from self._cell(cell)
            case transcript.Step() as step:
                yield from _step(step)
            case transcript.Note(label=label, text=text):
                yield f"*{label}: {keep_line_breaks(escape_markdown(text.strip()))}*"
            case _:
                assert_never(item)

    def _cell(self, cell: transcript.Cell) -> Iterator[str]:
        yield f"**{heading(cell)}**\n\n{fence_code(printable(cell.code), 'python')}"
        if cell.standing == "not run" and cell.why:
            yield f"*not run: {escape_markdown(cell.why.strip())}*"
        for label, text in (("Output", cell.stdout), ("stderr", cell.stderr)):
            if text:
                yield fold_output(text, label)
        for step in cell.calls:
            yield f"*called {escape_markdown(step.tool)}: {escape_markdown(step.outcome)}*"
        for shown in cell.displays:
            yield self._render_display(shown)
        if cell.result is not None and best_of(cell.result.forms) in PICTURES:
            yield self._render_display(cell.result)
        elif cell.value is not None:
            yield fold_output(cell.value, "Value")
        if cell.error is not None:
            yield fold_output(cell.error, "Error")
        for notice in cell.notices:
            yield f"*{escape_markdown(notice)}*"
        if cell.files:
            yield f"*files: {escape_markdown(join_names(cell.files, _FILES))}*"

    def _render_display(self, shown: transcript.ShownDisplay) -> str:
        best = best_of(shown.forms)
        if best is None:
            return f"*{display_label(shown.number, shown.forms)}*"
        form = shown.forms[best]
        if best in PICTURES:
            return self._picture(form, f"display-{shown.number}", f"display {shown.number}")
        if best == "text/markdown":
            return sanitize_markdown(form.text)
        plain = shown.forms.get("text/plain", form)
        return fold_output(plain.text, display_label(shown.number, shown.forms))

    def _picture(self, form: transcript.Form, name: str, words: str) -> str:
        if form.mime not in PICTURES:
            return f"*{escape_markdown(words)}: {escape_markdown(form.mime)}*"
        if self._folder is None:
            return f"![{words}](data:{form.mime};base64,{base64.b64encode(form.data).decode()})"
        path = f"{self._folder}/{name}.{suffix_of(form.mime)}"
        self.files[path] = form.data
        return f"![{words}](<{path}>)"


def heading(cell: transcript.Cell) -> str:
    """Return the cell's name and outcome."""
    name = f"Cell {cell.number}" if cell.number is not None else "Cell"
    by = ", yours" if cell.by_user else ""
    how = cell.outcome.replace("_", " ") or "no end" if cell.standing == "kept" else cell.standing
    return f"{name}{by}" if how == "ok" else f"{name}{by} ({how})"


def _step(step: transcript.Step) -> Iterator[str]:
    yield f"**{escape_markdown(step.tool)}** ({step.how})\n\n{fence_code(step.args, 'json')}"
    if step.text.strip():
        yield fold_output(step.text, "Result")


def fold_output(text: str, label: str) -> str:
    """Return output as a code block, folded if it is long."""
    text = cap_text(text.rstrip(), _SHOWN)
    lines = text.count("\n") + 1
    block = fence_code(text, "text")
    if lines < LONG:
        return block
    return f"<details>\n<summary>{label}, {lines:,} lines</summary>\n\n{block}\n\n</details>"
