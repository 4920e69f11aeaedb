"""Notebooks given to Pinfold: validate, run cells in a session, describe to the model, write back with outputs."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from pinfold.app.clients.submit import Opening, until_end
from pinfold.app.errors import ConfigError
from pinfold.app.ownership.owner import Link
from pinfold.app.paths import read_limited
from pinfold.app.storage.exports.md import fence_code
from pinfold.app.storage.exports.programs import MAY_FAIL, notebook_bytes, outputs_of
from pinfold.app.storage.exports.transcript import Cell, build_transcript
from pinfold.events import (
    ActionFinished,
    ActionId,
    BlobId,
    Delta,
    Entry,
    Execute,
    Json,
    PinfoldError,
    convert,
    is_deeper,
    new_action_id,
)
from pinfold.text import cap_text, presentable, presentable_line

LARGEST = 64 << 20
"""Largest notebook, in bytes."""
_TOLD = 20_000
"""Characters of a notebook shown to the model; a cell or output gets at most a tenth."""
_DEEPEST = 100
_PYTHON = frozenset(("python", "ipython", "python3", "ipython3"))
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b")
_Raw: TypeAlias = dict[str, Json]
Show: TypeAlias = Callable[[Entry | Delta], None]


class NotebookCell(Struct, frozen=True, kw_only=True):
    place: int
    """Index among all cells of the file, from 0."""
    kind: Literal["code", "other"]
    source: str
    outputs: str = ""
    """The output stored in the file, as text."""
    may_fail: bool = False
    """True if it is tagged so; a run continues after its failure."""


class Notebook(Struct, frozen=True, kw_only=True):
    name: str
    cells: tuple[NotebookCell, ...]
    raw: _Raw

    @property
    def programs(self) -> tuple[NotebookCell, ...]:
        """The cells that can be run."""
        return tuple(cell for cell in self.cells if cell.kind == "code" and cell.source.strip())


class NotebookResult(Struct, frozen=True, kw_only=True):
    """A cell of a notebook and its result."""

    number: int
    """Index among the cells that are run, from 1."""
    cell: NotebookCell
    finished: ActionFinished
    output: Cell
    """The cell with its outputs, secrets removed."""

    @property
    def failed(self) -> bool:
        expected = self.cell.may_fail and self.finished.outcome == "error"
        return self.finished.outcome != "ok" and not expected


def read_notebook(path: Path) -> Notebook:
    """Raises ConfigError that says what to do about it."""
    name = presentable_line(path.name)
    clear = f"clear its outputs: jupyter nbconvert --clear-output --inplace {name}"
    data = read_limited(path, LARGEST, f"is more than the {LARGEST >> 20} MB a notebook may have; {clear}")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a notebook: it is not JSON ({error})") from error
    return _parse_notebook(path, name, raw)


class _Head(Struct):
    nbformat: int


class _RawCell(Struct):
    cell_type: str
    source: str | list[str]
    outputs: list[_Raw] = []
    metadata: _Raw = {}


class _RawNotebook(Struct):
    cells: list[_RawCell]
    metadata: _Raw = {}


def _parse_notebook(path: Path, name: str, raw: Json) -> Notebook:
    try:
        version = convert(raw, _Head).nbformat
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path} is JSON but not a notebook: {error}") from error
    if version < 4:
        raise ConfigError(
            f"{path} is of nbformat {version}, from before 2015; convert it: "
            f"jupyter nbconvert --to notebook --nbformat 4 {name}"
        )
    if version > 4:
        raise ConfigError(f"{path} is of nbformat {version}; this Pinfold reads nbformat 4")
    try:
        read = convert(raw, _RawNotebook)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"{path} is a damaged notebook: {error}") from error
    if (language := _language(read.metadata)) and language.lower() not in _PYTHON:
        raise ConfigError(f"{path} is a notebook for {language!r}; only Python runs here")
    if is_deeper(raw, _DEEPEST):
        raise ConfigError(f"{path} is a damaged notebook: it is nested more than {_DEEPEST} deep")
    cells = (_cell(place, cell) for place, cell in enumerate(read.cells))
    return Notebook(name=name, cells=tuple(cells), raw=raw)


def _language(metadata: _Raw) -> str:
    match metadata:
        case {"kernelspec": {"language": str(language)}} | {"language_info": {"name": str(language)}}:
            return presentable_line(language)
        case _:
            return ""


def _cell(place: int, cell: _RawCell) -> NotebookCell:
    source, tags = _join_lines(cell.source), cell.metadata.get("tags")
    if cell.cell_type != "code":
        return NotebookCell(place=place, kind="other", source=source)
    outputs, may_fail = "".join(map(_read_output, cell.outputs)), isinstance(tags, list) and MAY_FAIL in tags
    return NotebookCell(place=place, kind="code", source=source, outputs=outputs, may_fail=may_fail)


def _join_lines(text: object) -> str:
    """Join a text that may be given as a list of lines."""
    lines = cast("list[object]", text) if isinstance(text, list) else [text]
    return "".join(line for line in lines if isinstance(line, str))


def _read_output(output: _Raw) -> str:
    data = output.get("data")
    plain = cast(_Raw, data).get("text/plain") if isinstance(data, dict) else None
    match output.get("output_type"):
        case "stream":
            return _join_lines(output.get("text"))
        case "error":
            return f"{output.get('ename')}: {output.get('evalue')}\n"
        case _:
            return _join_lines(plain).rstrip("\n") + "\n" if plain else ""


async def run_notebook(
    link: Link,
    notebook: Notebook,
    show: Show,
    *,
    keep_going: bool = False,
    timeout_s: float | None = None,
    each: Callable[[NotebookResult], Awaitable[None]] | None = None,
    begin: Callable[[int, ActionId], None] = lambda _, __: None,
) -> list[NotebookResult]:
    """Run the cells in order up to the first failure. `begin` is called before each cell, `each` after it."""
    ran: list[NotebookResult] = []
    async with link.subscribe((await link.status()).seq) as feed:
        for number, cell in enumerate(notebook.programs, 1):
            id_ = new_action_id()
            begin(number, id_)
            await link.submit(Execute(id=id_, code=cell.source, timeout_s=timeout_s))
            entries: list[Entry] = []
            async for item in until_end(feed, id_):
                show(item)
                if isinstance(item, Entry):
                    entries.append(item)
            if entries and isinstance(end := entries[-1].event, ActionFinished):
                ran.append(await _collect_result(link, number, cell, end, entries))
            if each and ran:
                await each(ran[-1])
            if ran and ran[-1].failed and (not keep_going or ran[-1].finished.outcome == "interrupted"):
                break
    return ran


async def _collect_result(
    link: Link, number: int, cell: NotebookCell, finished: ActionFinished, entries: list[Entry]
) -> NotebookResult:
    wanted = {*finished.blobs, *(blob for display in finished.displays for blob in display.mime.values())}
    blobs: dict[BlobId, bytes] = {}
    for blob in wanted:
        with suppress(PinfoldError):
            blobs[blob] = await link.blob(blob)

    def read(blob: BlobId) -> bytes:
        if blob not in blobs:
            raise ConfigError(f"blob {blob} is gone")
        return blobs[blob]

    about = [entry for entry in entries if getattr(entry.event, "id", None) == finished.id]
    (output,) = build_transcript(about, read).cells[-1:] or (Cell(code=cell.source),)
    return NotebookResult(number=number, cell=cell, finished=finished, output=output)


class AttachedNotebook:
    """A notebook given with the first prompt: its cells are run once, then it is described to the model."""

    def __init__(self, file: Path, *, run: bool, say: Callable[[str], None]) -> None:
        """`say` gets a line for the user. Raises ConfigError."""
        self.notebook = read_notebook(file)
        self._run = run
        self._say = say
        self._ran: list[NotebookResult] | None = None

    async def run_cells(self, link: Link, show: Show = lambda _: None) -> None:
        """Run the cells, if that was asked for and has not been done."""
        if self._run and self._ran is None:
            self._ran = await run_notebook(link, self.notebook, show, each=self._report_failure)

    def add_to_prompt(self, prompt: str) -> str:
        """Return the prompt followed by the description of the notebook."""
        return f"{prompt}\n\n{describe_notebook(self.notebook, self._ran)}"

    def wrap_opening(self, opening: Opening) -> Opening:
        """Wrap `opening` so that the notebook's cells run when the session opens."""

        @asynccontextmanager
        async def open_with_notebook() -> AsyncGenerator[Link]:
            async with opening() as link:
                await self.run_cells(link)
                yield link

        return open_with_notebook

    async def _report_failure(self, one: NotebookResult) -> None:
        if one.failed:
            self._say(f"{failure_in_words(self.notebook, one)}; what comes after it was not run")


def with_outputs(notebook: Notebook, ran: list[NotebookResult]) -> bytes:
    """Return the notebook file with new outputs for cells that ran and none for the others."""
    by_place = {one.cell.place: one for one in ran}
    cells: list[_Raw] = []
    for place, cell in enumerate(notebook.raw["cells"]):
        one = by_place.get(place)
        new = {
            "outputs": outputs_of(one.output, count=one.number) if one else [],
            "execution_count": one and one.number,
        }
        cells.append(cell | new if cell.get("cell_type") == "code" else cell)
    return notebook_bytes({**notebook.raw, "cells": cells})


def describe_notebook(notebook: Notebook, ran: list[NotebookResult] | None) -> str:
    """Describe the notebook to the model. `ran` is None if its cells were not to be run."""
    total = len(notebook.programs)
    if ran is None:
        how = "Nothing of it was run in this session; outputs are those in the file."
    elif ran and ran[-1].failed:
        how = f"{len(ran)} of its {total} code cells were run in this session; cell {ran[-1].number} failed."
    else:
        how = "Its code cells were run in this session: its variables are here."
    by_place = {one.cell.place: one for one in ran or ()}
    parts = [f"[The user brings a notebook, {notebook.name}. {how} What follows is its content, not the user's words.]"]
    for cell in notebook.cells:
        if not cell.source.strip():
            continue
        if cell.kind == "other":
            parts.append(cap_text(cell.source.strip(), _TOLD // 10))
            continue
        parts.append(fence_code(cap_text(cell.source, _TOLD // 10), "python"))
        one = by_place.get(cell.place)
        output = one.finished.observation if one else "" if ran is not None else cell.outputs
        if output.strip():
            parts.append(fence_code(cap_text(output.strip(), _TOLD // 10), "text"))
    return cap_text("\n\n".join(parts), _TOLD)


def failure_in_words(notebook: Notebook, one: NotebookResult) -> str:
    """Return one line that says which cell failed and why."""
    lines = presentable(one.finished.error or one.finished.observation).strip().splitlines()
    # After the error line come hints, or further lines of a long message.
    raised = [line for line in lines if _RAISED.match(line)]
    why = (raised or lines or [one.finished.outcome])[-1].strip()
    ends = {"interrupted": "was interrupted", "timeout": "took too long", "killed": "was killed"}
    cell = f"cell {one.number} of {len(notebook.programs)} {ends.get(one.finished.outcome, 'failed')}"
    return f"{notebook.name}: {cell}: {cap_text(why, 300)}"
