"""A session as a Jupyter notebook that runs: nbformat 4.5."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, assert_never

from pinfold.app.storage.exports.displays import Form, is_text
from pinfold.app.storage.exports.markup import (
    block_quote,
    escape_markdown,
    fence_code,
    keep_line_breaks,
    sanitize_markdown,
)
from pinfold.app.storage.exports.transcript import Answer, Cell, Item, Note, Prompt, ShownDisplay, Step, Transcript
from pinfold.events import BadEvent, Json, parse_json
from pinfold.text import cap_text

_Json: TypeAlias = dict[str, Any]
STAND_IN = """\
# Pinfold's `answer(text)` tells the user the result. Elsewhere it prints.
try:
    answer
except NameError:
    def answer(text=""):
        print(text)"""
NEEDS_PINFOLD = "# Needs Pinfold: `servers` is only there in its sessions."
MAY_FAIL = "raises-exception"
"""The tag of a cell that is known to fail."""
_ANSWER = re.compile(r"\banswer\s*\(")
_NAMED = re.compile(r"([A-Za-z_][\w.]*)(?::\s?(.*))?", re.DOTALL)
_TEXT = 4000
"""Characters of a tool's output that are shown."""


def to_ipynb(story: Transcript) -> bytes:
    return notebook_of(
        [*_opening(story), *(cell for item in story.items for cell in _cells(item))],
        title=story.title,
        session=story.session,
    )


def notebook_of(cells: Iterable[_Json], **about: str) -> bytes:
    """A file of these cells, each with an id of its own."""
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells, 1)]
    whole: _Json = {
        "cells": numbered,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "pinfold": about,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return _pretty(whole)


def _pretty(whole: _Json) -> bytes:
    import json

    return (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _opening(story: Transcript) -> Iterator[_Json]:
    lines = [f"# {escape_markdown(story.title)}"]
    about = [f"Pinfold session `{story.session}`"]
    if story.models:
        about.append("with " + ", ".join(escape_markdown(model) for model in story.models))
    if story.began:
        about.append(f"from {story.began[:10]}")
    lines.append(" ".join(about) + ".")
    if story.workspace:
        lines.append(f"Its files are those of {escape_markdown(story.workspace)}: run it there to find them.")
    used = [cell for cell in story.path if cell.uses_servers]
    if used:
        which = ", ".join(str(cell.number) for cell in used)
        lines.append(
            f"**Cells that call `servers` (in the session: {which}) need Pinfold.** They are marked. Open this notebook there "
            "(`pinfold exec`), or replace the calls; everything else runs in any Jupyter."
        )
    yield markdown("\n\n".join(lines))
    if any(_ANSWER.search(cell.code) for cell in story.path):
        yield code(STAND_IN)


def _cells(item: Item) -> Iterator[_Json]:
    match item:
        case Prompt(text=text, images=images):
            pictures = [f"![picture {n}](attachment:{n})" for n, _ in enumerate(images, 1)]
            cell = markdown("\n\n".join(["**You**", block_quote(text), *pictures]))
            if images:
                cell["attachments"] = {str(n): {one.mime: _encode_base64(one)} for n, one in enumerate(images, 1)}
            yield cell
        case Answer(text=text):
            yield markdown(keep_line_breaks(sanitize_markdown(text)))
        case Cell() as cell:
            yield from _cell(cell)
        case Step(tool=tool, args=args, outcome=outcome, text=text):
            words = "\n\n".join(
                [f"**{escape_markdown(tool)}** ({outcome or 'no end'})", fence_code(args, "json"), *_output(text)]
            )
            yield markdown(words)
        case Note(label=label, text=text):
            yield markdown(f"*{label}: {escape_markdown(text)}*")
        case _:
            assert_never(item)


def _output(text: str) -> list[str]:
    return [fence_code(cap_text(text.rstrip(), _TEXT))] if text.strip() else []


def _cell(cell: Cell) -> Iterator[_Json]:
    if cell.standing != "kept":
        what = "was undone" if cell.standing == "undone" else f"was not run: {escape_markdown(cell.why) or 'no end'}"
        name = f"Cell {cell.number}" if cell.number is not None else "A cell"
        yield markdown(f"*{name} {what}*\n\n{fence_code(cell.code, 'python')}")
        return
    source, tags = cell.code, list[str]()
    if cell.uses_servers:
        tags.append("needs-pinfold")
        if source.lstrip().startswith("%%"):  # which must come first
            yield markdown(f"*{NEEDS_PINFOLD[2:]}*")
        else:
            source = f"{NEEDS_PINFOLD}\n{source}"
    if cell.error is not None:
        tags.append(MAY_FAIL)  # so that a run goes on behind it
    yield code(source, outputs_of(cell, cell.number), count=cell.number, metadata={"tags": tags} if tags else {})


def markdown(text: str) -> _Json:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(
    source: str, outputs: list[_Json] | None = None, count: int | None = None, metadata: _Json | None = None
) -> _Json:
    return {
        "cell_type": "code",
        "execution_count": count,
        "metadata": metadata or {},
        "outputs": outputs or [],
        "source": source,
    }


def outputs_of(cell: Cell, count: int | None = None) -> list[_Json]:
    """As a notebook keeps them; `count` is what it calls the cell."""
    outputs: list[_Json] = [
        {"output_type": "stream", "name": name, "text": text}
        for name, text in (("stdout", cell.stdout), ("stderr", cell.stderr))
        if text
    ]
    outputs += [{"output_type": "display_data", "metadata": {}, "data": bundle(shown)} for shown in cell.displays]
    if cell.result is not None or cell.value is not None:
        data = bundle(cell.result) if cell.result is not None else {"text/plain": cell.value}
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    if cell.error is not None:
        name, words = split_error(cell.error)
        lines = cell.error.rstrip("\n").split("\n")
        outputs.append({"output_type": "error", "ename": name, "evalue": words, "traceback": lines})
    return outputs


def bundle(shown: ShownDisplay) -> dict[str, Json]:
    """Its forms as JSON: text as it is, bytes as base64, JSON as itself."""
    return {mime: _value(form) for mime, form in shown.forms.items()}


def _value(form: Form) -> Json:
    if form.mime == "application/json" or form.mime.endswith("+json"):
        try:
            return parse_json(form.data)
        except BadEvent:
            return form.text
    return form.text if is_text(form.mime) else _encode_base64(form)


def _encode_base64(form: Form) -> str:
    return base64.b64encode(form.data).decode()


def split_error(error: str) -> tuple[str, str]:
    """The name of an exception and its words, from a traceback; else all of it as words."""
    lines = error.rstrip("\n").split("\n")
    # It stands behind the last frame; its own words may have several lines.
    ends = [
        place for place in range(1, len(lines)) if lines[place - 1].startswith(" ") and not lines[place].startswith(" ")
    ]
    found = _NAMED.fullmatch("\n".join(lines[ends[-1] :])) if ends else None
    return (found[1], found[2] or "") if found else ("Error", error.strip())
