"""A session as a Python program in cells (`# %%`), which any editor knows. It compiles, and running it prints the same."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import assert_never

from pinfold.app.storage.exports.ipynb import NEEDS_PINFOLD, split_error
from pinfold.app.storage.exports.transcript import Answer, Cell, Item, Note, Prompt, Step, Transcript
from pinfold.text import cap_text, printable

_ENDS = re.compile(r"\r\n|\r|\n")
_ANSWER = re.compile(r"\banswer\s*\(")
_VALUE = 1000
"""Characters of a value that stand below its cell."""
_AWAIT = '''\
def _run_awaiting(code):
    """Run a cell that awaits at its top level."""
    import ast, asyncio, inspect

    result = eval(compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), globals())
    if inspect.iscoroutine(result):
        asyncio.run(result)'''
_STAND_IN = '''\
def answer(text=""):
    """In a Pinfold session this tells the user the result."""
    print(text)'''


def to_py(story: Transcript) -> bytes:
    cells = {id(cell): _program(cell) for cell in story.path}
    later = sorted({name for program in cells.values() for name in program.future})
    # The first two lines are ours: a text there could name another encoding.
    parts = ["# %% [markdown]\n# Exported from a Pinfold session.\n" + _comment_lines(_about(story))]
    setup = [f"from __future__ import {', '.join(later)}"] if later else []
    if any(program.awaits for program in cells.values()):
        setup.append(_AWAIT)
    if any(_ANSWER.search(cell.code) for cell in story.path):
        setup.append(_STAND_IN)
    if setup:
        parts.append("# %%\n" + "\n\n\n".join(setup))
    for item in story.items:
        program = cells.get(id(item))
        parts.append("\n".join(_part(item, program)))
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text.encode("utf-8", "replace")


def _about(story: Transcript) -> str:
    words = f"# {story.title}\n\nSession {story.session}"
    return f"{words}, {', '.join(story.models)}." if story.models else f"{words}."


class _Program:
    """A cell's code as a part of a script."""

    def __init__(self, text: str, *, awaits: bool = False, future: tuple[str, ...] = ()) -> None:
        self.text = text
        self.awaits = awaits
        self.future = future


def _part(item: Item, program: _Program | None) -> Iterator[str]:
    match item:
        case Prompt(text=text):
            yield f"# %% [markdown]\n{_comment_lines(f'**You:** {text}')}"
        case Answer(text=text):
            yield f"# %% [markdown]\n{_comment_lines(text)}"
        case Step(tool=tool, args=args, outcome=outcome):
            how = outcome or "no end"
            yield f"# %% [markdown]\n{_comment_lines(f'{tool} ({how}): {cap_text(args, _VALUE)}')}"
        case Note(label=label, text=text):
            yield f"# %% [markdown]\n{_comment_lines(f'{label}: {text}')}"
        case Cell() as cell:
            name = f"cell {cell.number}" if cell.number is not None else "a cell"
            if program is None:
                what = "undone" if cell.standing == "undone" else "not run"
                yield f"# %% [markdown]\n{_comment_lines(f'{name}, {what}:')}\n{_comment_lines(cell.code, '#     ')}"
                return
            yield f"# %% {name}"
            if cell.uses_servers:
                yield NEEDS_PINFOLD
            yield program.text
            if cell.value is not None:
                yield _comment_lines(cap_text(cell.value, _VALUE), "#> ")
        case _:
            assert_never(item)


def _program(cell: Cell) -> _Program:
    tree = _try_compile(cell.code, 0)
    if tree is None:
        return _wrap_top_level_await(cell) or _comment_out_cell(
            cell, "this is no plain Python: it runs in a session or in IPython"
        )
    lines = _ENDS.split(cell.code)
    future: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            # Belongs to the beginning of the file. The others have been true for long, or are a joke.
            future += [alias.name for alias in node.names if alias.name == "annotations"]
            for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[line] = f"# {lines[line]}"
    if cell.error is not None or cell.outcome not in ("ok", ""):
        lines = _keep_until_failure(cell, tree, lines)
    text = "\n".join(lines)
    if _try_compile(text, 0) is None:
        return _comment_out_cell(cell, "what of it came to its end cannot be told")
    return _Program(text, future=tuple(future))


def _wrap_top_level_await(cell: Cell) -> _Program | None:
    """A cell that awaits at its top level, if that is all there is to it."""
    if cell.error is not None or _try_compile(cell.code, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) is None:
        return None
    readable = "\\" not in cell.code and "'''" not in cell.code and printable(cell.code) == cell.code
    literal = f"'''\n{cell.code}\n'''" if readable else repr(cell.code)
    return _Program(f"_run_awaiting({literal})", awaits=True)


def _comment_out_cell(cell: Cell, why: str) -> _Program:
    return _Program(f"# Left out: {why}.\n{_comment_lines(cell.code, '#     ')}")


def _keep_until_failure(cell: Cell, tree: ast.Module, lines: list[str]) -> list[str]:
    """The statements that came to their end; the rest as a comment."""
    name, words = split_error(cell.error) if cell.error else (cell.outcome, "")
    found = re.search(rf'File "<cell {cell.number}>", line (\d+)', cell.error or "")
    failed = int(found[1]) if found else 1
    start = next((node.lineno for node in tree.body if (node.end_lineno or node.lineno) >= failed), 1)
    said = cap_text(f"{name}: {words}" if words else name, 200)
    rest = "\n".join(lines[start - 1 :])
    return [
        *lines[: start - 1],
        f"# It stopped here: {_ENDS.sub(' ', said)}",
        *_comment_lines(rest, "#     ").split("\n"),
    ]


def _try_compile(code: str, flags: int) -> ast.Module | None:
    try:
        with warnings.catch_warnings():  # what the compiler thinks of it, its author was told
            warnings.simplefilter("ignore")
            compile(code, "<cell>", "exec", flags, dont_inherit=True)
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _comment_lines(text: str, mark: str = "# ") -> str:
    return "\n".join(f"{mark}{printable(line)}".rstrip() for line in _ENDS.split(text))
