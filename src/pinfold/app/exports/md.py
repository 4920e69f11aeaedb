"""A session as markdown to be read. Pictures lie beside it as files, or inside."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import assert_never

from pinfold.app.exports.fences import block_quote, fenced, quoted, tamed, with_lines
from pinfold.app.exports.showing import PICTURES, Form, best_of, in_a_word, suffix_of
from pinfold.app.exports.story import Answer, Cell, Item, Note, Prompt, Shown, Step, Story
from pinfold.text import cap_text, join_names, printable

LONG = 24
"""Lines of output from which on they are folded away."""
_FILES = 20
_SHOWN = 20_000
"""Characters of one output."""


def to_md(story: Story, folder: str | None = None) -> tuple[bytes, Mapping[str, bytes]]:
    """The page, and the files it names by where they lie: in `folder`, or nowhere if they are to be inside."""
    page = _Page(folder)
    text = "\n\n".join([*_head(story), *(part for item in story.items for part in page.parts(item))])
    return f"{text}\n".encode("utf-8", "replace"), page.files


def _head(story: Story) -> Iterator[str]:
    yield f"# {quoted(story.title)}"
    facts = [
        f"Pinfold session `{story.session}`",
        *map(quoted, story.models),
        story.began[:16].replace("T", " "),
    ]
    yield " · ".join(filter(None, facts))


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
                yield with_lines(tamed(text.strip()))
            case Cell() as cell:
                yield from self._cell(cell)
            case Step() as step:
                yield from _step(step)
            case Note(label=label, text=text):
                yield f"*{label}: {quoted(text.strip())}*"
            case _:
                assert_never(item)

    def _cell(self, cell: Cell) -> Iterator[str]:
        yield f"**{heading(cell)}**\n\n{fenced(printable(cell.code), 'python')}"
        if cell.standing == "not run" and cell.why:
            yield f"*not run: {quoted(cell.why.strip())}*"
        for label, text in (("Output", cell.stdout), ("stderr", cell.stderr)):
            if text:
                yield folded(text, label)
        for step in cell.calls:
            yield f"*called {quoted(step.tool)}: {quoted(step.outcome)}*"
        for shown in cell.displays:
            yield self._shown(shown)
        if cell.result is not None and best_of(cell.result.forms) in PICTURES:
            yield self._shown(cell.result)
        elif cell.value is not None:
            yield folded(cell.value, "Value")
        if cell.error is not None:
            yield folded(cell.error, "Error")
        for notice in cell.notices:
            yield f"*{quoted(notice)}*"
        if cell.files:
            yield f"*files: {quoted(join_names(cell.files, _FILES))}*"

    def _shown(self, shown: Shown) -> str:
        best = best_of(shown.forms)
        if best is None:
            return f"*{in_a_word(shown.number, shown.forms)}*"
        form = shown.forms[best]
        if best in PICTURES:
            return self._picture(form, f"display-{shown.number}", f"display {shown.number}")
        if best == "text/markdown":
            return tamed(form.text)
        plain = shown.forms.get("text/plain", form)
        return folded(plain.text, in_a_word(shown.number, shown.forms))

    def _picture(self, form: Form, name: str, words: str) -> str:
        if form.mime not in PICTURES:
            return f"*{quoted(words)}: {quoted(form.mime)}*"
        if self._folder is None:
            return f"![{words}](data:{form.mime};base64,{base64.b64encode(form.data).decode()})"
        path = f"{self._folder}/{name}.{suffix_of(form.mime)}"
        self.files[path] = form.data
        return f"![{words}](<{path}>)"


def heading(cell: Cell) -> str:
    """What it is called, and what became of it."""
    name = f"Cell {cell.number}" if cell.number is not None else "Cell"
    by = ", yours" if cell.by_user else ""
    match cell.standing:
        case "undone":
            return f"{name}{by} (undone)"
        case "not run":
            return f"{name}{by} (not run)"
        case "kept":
            how = "" if cell.outcome == "ok" else f" ({(cell.outcome or 'no end').replace('_', ' ')})"
            return f"{name}{by}{how}"


def _step(step: Step) -> Iterator[str]:
    how = step.outcome.replace("_", " ") or "no end"
    yield f"**{quoted(step.tool)}** ({how})\n\n{fenced(step.args, 'json')}"
    if step.text.strip():
        yield folded(step.text, "Result")


def folded(text: str, label: str) -> str:
    """Output as a block; a long one opens on demand."""
    text = cap_text(text.rstrip(), _SHOWN)
    lines = text.count("\n") + 1
    block = fenced(text, "text")
    if lines < LONG:
        return block
    return f"<details>\n<summary>{label}, {lines:,} lines</summary>\n\n{block}\n\n</details>"
