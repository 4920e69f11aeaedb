"""A session as a runnable program: a Jupyter notebook (nbformat 4.5), or a Python file with `# %%` cells.

The Python file compiles, and running it prints the same output.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias, assert_never

from msgspec import Struct

from pinfold.app.storage.exports import transcript
from pinfold.app.storage.exports.md import block_quote, escape_markdown, fence_code, keep_line_breaks, sanitize_markdown
from pinfold.app.storage.exports.transcript import is_text
from pinfold.events import BadEvent, Json, parse_json
from pinfold.text import cap_text, printable

_Json: TypeAlias = dict[str, object]
_STAND_IN = """\
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
"""Maximum characters of a tool's output."""


def to_ipynb(story: transcript.Transcript) -> bytes:
    cells = [*_opening(story), *(cell for item in story.items for cell in _cells(item))]
    whole: _Json = {
        "cells": [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells, 1)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "pinfold": {"title": story.title, "session": story.session},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return notebook_bytes(whole)


def notebook_bytes(whole: _Json) -> bytes:
    return (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def _opening(story: transcript.Transcript) -> Iterator[_Json]:
    lines = [f"# {escape_markdown(story.title)}"]
    about = [f"Pinfold session `{story.session}`"]
    if story.models:
        about.append("with " + ", ".join(escape_markdown(model) for model in story.models))
    if story.began:
        about.append(f"from {story.began[:10]}")
    lines.append(" ".join(about) + ".")
    if story.workspace:
        lines.append(f"Its files are those of {escape_markdown(story.workspace)}: run it there to find them.")
    if which := ", ".join(str(cell.number) for cell in story.path if cell.uses_servers):
        lines.append(
            f"**Cells that call `servers` (in the session: {which}) need Pinfold.** They are marked. Open this notebook there "
            "(`pinfold exec`), or replace the calls; everything else runs in any Jupyter."
        )
    yield _markdown("\n\n".join(lines))
    if any(_ANSWER.search(cell.code) for cell in story.path):
        yield _code(_STAND_IN)


def _cells(item: transcript.Item) -> Iterator[_Json]:
    match item:
        case transcript.Prompt(text=text, images=images):
            pictures = [f"![picture {n}](attachment:{n})" for n, _ in enumerate(images, 1)]
            cell = _markdown("\n\n".join(["**You**", block_quote(text), *pictures]))
            if images:
                cell["attachments"] = {str(n): {one.mime: _encode_base64(one)} for n, one in enumerate(images, 1)}
            yield cell
        case transcript.Answer(text=text):
            yield _markdown(keep_line_breaks(sanitize_markdown(text)))
        case transcript.Cell() as cell:
            yield from _cell(cell)
        case transcript.Step(tool=tool, args=args, outcome=outcome, text=text):
            words = f"**{escape_markdown(tool)}** ({outcome or 'no end'})\n\n{fence_code(args, 'json')}"
            shown = f"\n\n{fence_code(cap_text(text.rstrip(), _TEXT))}" if text.strip() else ""
            yield _markdown(words + shown)
        case transcript.Note(label=label, text=text):
            yield _markdown(f"*{label}: {keep_line_breaks(escape_markdown(text))}*")
        case _:
            assert_never(item)


def _cell(cell: transcript.Cell) -> Iterator[_Json]:
    if cell.standing != "kept":
        what = "was undone" if cell.standing == "undone" else f"was not run: {escape_markdown(cell.why) or 'no end'}"
        name = f"Cell {cell.number}" if cell.number is not None else "A cell"
        yield _markdown(f"*{name} {what}*\n\n{fence_code(cell.code, 'python')}")
        return
    source, tags = cell.code, list[str]()
    if cell.uses_servers:
        tags.append("needs-pinfold")
        if source.lstrip().startswith("%%"):  # a cell magic must be the first line
            yield _markdown(f"*{NEEDS_PINFOLD[2:]}*")
        else:
            source = f"{NEEDS_PINFOLD}\n{source}"
    if cell.error is not None:
        tags.append(MAY_FAIL)  # so that a run continues after it
    yield _code(source, outputs_of(cell, cell.number), count=cell.number, metadata={"tags": tags} if tags else {})


def _markdown(text: str) -> _Json:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(
    source: str, outputs: list[_Json] | None = None, count: int | None = None, metadata: _Json | None = None
) -> _Json:
    return {
        "cell_type": "code",
        "execution_count": count,
        "metadata": metadata or {},
        "outputs": outputs or [],
        "source": source,
    }


def outputs_of(cell: transcript.Cell, count: int | None = None) -> list[_Json]:
    """Return the outputs in notebook format; `count` is the execution count."""
    outputs: list[_Json] = [
        {"output_type": "stream", "name": name, "text": text}
        for name, text in (("stdout", cell.stdout), ("stderr", cell.stderr))
        if text
    ]
    outputs.extend({"output_type": "display_data", "metadata": {}, "data": bundle(one)} for one in cell.displays)
    if cell.result is not None or cell.value is not None:
        data = bundle(cell.result) if cell.result is not None else {"text/plain": cell.value}
        outputs.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    if cell.error is not None:
        name, words = split_error(cell.error)
        lines = cell.error.rstrip("\n").split("\n")
        outputs.append({"output_type": "error", "ename": name, "evalue": words, "traceback": lines})
    return outputs


def bundle(shown: transcript.ShownDisplay) -> dict[str, Json]:
    """Return a MIME bundle: text as it is, bytes as base64, JSON as JSON."""
    return {mime: _value(form) for mime, form in shown.forms.items()}


def _value(form: transcript.Form) -> Json:
    if form.mime == "application/json" or form.mime.endswith("+json"):
        try:
            return parse_json(form.data)
        except BadEvent:
            return form.text
    return form.text if is_text(form.mime) else _encode_base64(form)


def _encode_base64(form: transcript.Form) -> str:
    return base64.b64encode(form.data).decode()


def split_error(error: str) -> tuple[str, str]:
    """Return the exception's name and message from a traceback; without one, `Error` and the whole text."""
    lines = error.rstrip("\n").split("\n")
    # The exception follows the last frame; its message may have several lines.
    ends = [
        place for place in range(1, len(lines)) if lines[place - 1].startswith(" ") and not lines[place].startswith(" ")
    ]
    found = _NAMED.fullmatch("\n".join(lines[ends[-1] :])) if ends else None
    return (found[1], found[2] or "") if found else ("Error", error.strip())


_ENDS = re.compile(r"\r\n|\r|\n")
_VALUE = 1000
"""Maximum characters of a value shown below its cell."""
_AWAIT = '''\
def _run_awaiting(code):
    """Run a cell that awaits at its top level."""
    import ast, asyncio, inspect

    result = eval(compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), globals())
    if inspect.iscoroutine(result):
        asyncio.run(result)'''


def to_py(story: transcript.Transcript) -> bytes:
    cells = {id(cell): _program(cell) for cell in story.path}
    later = sorted({name for program in cells.values() for name in program.future})
    models = f", {', '.join(story.models)}" if story.models else ""
    # The first two lines must be ours, because other text there could declare an encoding.
    about = f"Exported from a Pinfold session.\n# {story.title}\n\nSession {story.session}{models}."
    parts = [_comment_cell(about)]
    setup = [f"from __future__ import {', '.join(later)}"] if later else []
    if any(program.awaits for program in cells.values()):
        setup.append(_AWAIT)
    if any(_ANSWER.search(cell.code) for cell in story.path):
        setup.append(_STAND_IN)
    if setup:
        parts.append("# %%\n" + "\n\n\n".join(setup))
    parts += ["\n".join(_part(item, cells.get(id(item)))) for item in story.items]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text.encode("utf-8", "replace")


class _Program(Struct, frozen=True):
    """A cell's code as a part of a script."""

    text: str
    awaits: bool = False
    future: tuple[str, ...] = ()


def _part(item: transcript.Item, program: _Program | None) -> Iterator[str]:
    match item:
        case transcript.Prompt(text=text):
            yield _comment_cell(f"**You:** {text}")
        case transcript.Answer(text=text):
            yield _comment_cell(text)
        case transcript.Step(tool=tool, args=args, outcome=outcome):
            yield _comment_cell(f"{tool} ({outcome or 'no end'}): {cap_text(args, _VALUE)}")
        case transcript.Note(label=label, text=text):
            yield _comment_cell(f"{label}: {text}")
        case transcript.Cell() as cell:
            name = f"cell {cell.number}" if cell.number is not None else "a cell"
            if program is None:
                what = "undone" if cell.standing == "undone" else "not run"
                yield f"{_comment_cell(f'{name}, {what}:')}\n{_comment_lines(cell.code, '#     ')}"
                return
            yield f"# %% {name}"
            if cell.uses_servers:
                yield NEEDS_PINFOLD
            yield program.text
            if cell.value is not None:
                yield _comment_lines(cap_text(cell.value, _VALUE), "#> ")
        case _:
            assert_never(item)


def _program(cell: transcript.Cell) -> _Program:
    tree = _try_compile(cell.code, 0)
    if tree is None:
        why = "this is not plain Python: it runs only in a session or in IPython"
        return _wrap_top_level_await(cell) or _comment_out_cell(cell, why)
    lines = _ENDS.split(cell.code)
    future: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            # Move it to the start of the file. Future imports other than `annotations` have no effect any more.
            future += [alias.name for alias in node.names if alias.name == "annotations"]
            for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[line] = f"# {lines[line]}"
    if cell.error is not None or cell.outcome not in ("ok", ""):
        lines = _keep_until_failure(cell, tree, lines)
    text = "\n".join(lines)
    if _try_compile(text, 0) is None:
        return _comment_out_cell(cell, "it is unclear which statements completed")
    return _Program(text, future=tuple(future))


def _wrap_top_level_await(cell: transcript.Cell) -> _Program | None:
    """Wrap a cell whose only obstacle is a top-level `await`; None for other cells."""
    if cell.error is not None or _try_compile(cell.code, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) is None:
        return None
    readable = "\\" not in cell.code and "'''" not in cell.code and printable(cell.code) == cell.code
    literal = f"'''\n{cell.code}\n'''" if readable else repr(cell.code)
    return _Program(f"_run_awaiting({literal})", awaits=True)


def _comment_out_cell(cell: transcript.Cell, why: str) -> _Program:
    return _Program(f"# Left out: {why}.\n{_comment_lines(cell.code, '#     ')}")


def _keep_until_failure(cell: transcript.Cell, tree: ast.Module, lines: list[str]) -> list[str]:
    """Return the lines of the statements that completed, and the rest as a comment."""
    name, words = split_error(cell.error) if cell.error else (cell.outcome, "")
    found = re.search(rf'File "<cell {cell.number}>", line (\d+)', cell.error or "")
    failed = int(found[1]) if found else 1
    start = next((node.lineno for node in tree.body if (node.end_lineno or node.lineno) >= failed), 1)
    said = cap_text(f"{name}: {words}" if words else name, 200)
    rest = "\n".join(lines[start - 1 :])
    return [*lines[: start - 1], f"# It stopped here: {_ENDS.sub(' ', said)}", _comment_lines(rest, "#     ")]


def _try_compile(code: str, flags: int) -> ast.Module | None:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the author has seen the compiler's warnings
        compile(code, "<cell>", "exec", flags, dont_inherit=True)
        return ast.parse(code)
    return None


def _comment_cell(text: str) -> str:
    return f"# %% [markdown]\n{_comment_lines(text)}"


def _comment_lines(text: str, mark: str = "# ") -> str:
    return "\n".join(f"{mark}{printable(line)}".rstrip() for line in _ENDS.split(text))
