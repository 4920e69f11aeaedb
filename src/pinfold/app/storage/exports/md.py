"""A session as markdown to be read. Pictures lie beside it as files, or inside."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import assert_never

from pinfold.app.storage.exports.markup import (
    block_quote,
    escape_markdown,
    fence_code,
    keep_line_breaks,
    sanitize_markdown,
)
from pinfold.app.storage.exports.transcript import (
    PICTURES,
    Answer,
    Cell,
    Form,
    Item,
    Note,
    Prompt,
    ShownDisplay,
    Step,
    Transcript,
    best_of,
    display_label,
    suffix_of,
)
from pinfold.text import cap_text, join_names, printable

LONG = 24
"""Lines of output from which on they are folded away."""
_FILES = 20
_SHOWN = 20_000
"""Characters of one output."""


def to_md(story: Transcript, folder: str | None = None) -> tuple[bytes, Mapping[str, bytes]]:
    """The page, and the files it names by where they lie: in `folder`, or nowhere if they are to be inside."""
    page = _Page(folder)
    text = "\n\n".join([*_head(story), *(part for item in story.items for part in page.parts(item))])
    return f"{text}\n".encode("utf-8", "replace"), page.files


def _head(story: Transcript) -> Iterator[str]:
    yield f"# {escape_markdown(story.title)}"
    began = story.began[:16].replace("T", " ")
    yield " · ".join(filter(None, (f"Pinfold session `{story.session}`", *map(escape_markdown, story.models), began)))


class _Page:
    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self.files: dict[str, bytes] = {}

    def parts(self, item: Item) -> Iterator[str]:
        match item:
            case Prompt(text=text, images=images):
                yield f"---\n\n## You\n\n{block_quote(text)}"
                for one in images:
                    yield self._picture(one, f"given-{len(self.files) + 1}", "picture")
            case Answer(text=text):
                yield keep_line_breaks(sanitize_markdown(text.strip()))
            case Cell() as cell:
                yield from self._cell(cell)
            case Step() as step:
                yield from _step(step)
            case Note(label=label, text=text):
                yield f"*{label}: {keep_line_breaks(escape_markdown(text.strip()))}*"
            case _:
                assert_never(item)

    def _cell(self, cell: Cell) -> Iterator[str]:
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

    def _render_display(self, shown: ShownDisplay) -> str:
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

    def _picture(self, form: Form, name: str, words: str) -> str:
        if form.mime not in PICTURES:
            return f"*{escape_markdown(words)}: {escape_markdown(form.mime)}*"
        if self._folder is None:
            return f"![{words}](data:{form.mime};base64,{base64.b64encode(form.data).decode()})"
        path = f"{self._folder}/{name}.{suffix_of(form.mime)}"
        self.files[path] = form.data
        return f"![{words}](<{path}>)"


def heading(cell: Cell) -> str:
    """What it is called, and what became of it."""
    name = f"Cell {cell.number}" if cell.number is not None else "Cell"
    by = ", yours" if cell.by_user else ""
    how = cell.outcome.replace("_", " ") or "no end" if cell.standing == "kept" else cell.standing
    return f"{name}{by}" if how == "ok" else f"{name}{by} ({how})"


def _step(step: Step) -> Iterator[str]:
    how = step.outcome.replace("_", " ") or "no end"
    yield f"**{escape_markdown(step.tool)}** ({how})\n\n{fence_code(step.args, 'json')}"
    if step.text.strip():
        yield fold_output(step.text, "Result")


def fold_output(text: str, label: str) -> str:
    """Output as a block; a long one opens on demand."""
    text = cap_text(text.rstrip(), _SHOWN)
    lines = text.count("\n") + 1
    block = fence_code(text, "text")
    if lines < LONG:
        return block
    return f"<details>\n<summary>{label}, {lines:,} lines</summary>\n\n{block}\n\n</details>"
