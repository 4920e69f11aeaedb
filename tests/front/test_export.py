"""Sessions leave as files and come back in, by the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from pinfold.app import ConfigError
from pinfold.app.clients.attachments import picture
from pinfold.front.cli.commands.sessions import ago, rows
from pinfold.log import Blobs

pytestmark = pytest.mark.integration
LOCAL = ("--sandbox", "unsafe-local")
Pinfold = Callable[..., Any]
PNG = "bytes.fromhex('89504e470d0a1a0a0000000d4948445200000002000000030806000000')"
FIRST = f"""rows = [3, 1, 2]
class Picture:
    def __repr__(self): return 'a picture'
    def _repr_png_(self): return {PNG}
print('unsorted', rows)
Picture()"""


@pytest.fixture
def talked(pinfold: Pinfold, script: Any, cell: Any) -> Pinfold:
    """A session with a picture, a turn that undid itself, and an answer."""
    model = script(
        cell(FIRST, text="I look."), cell("rows.sort()\nprint(rows)\nlen(rows)"), {"text": "They are **sorted**."}
    )
    done = pinfold("run", *LOCAL, "--model", model, "--title", "Sort: these/rows", "Please sort")
    assert done.code == 0, done.err
    assert pinfold("exec", "-s", "Sort: these/rows", "-c", "rows.clear()").code == 0
    assert pinfold("undo", "Sort: these/rows").code == 0
    return pinfold


def test_a_session_goes_into_every_kind_of_file_and_its_notebook_brings_the_values_back(
    talked: Pinfold, workspace: Path
) -> None:
    pinfold = talked
    for form in ("ipynb", "py", "md"):
        done = pinfold("export", "last", "--to", form)
        assert (done.code, done.out) == (0, ""), done.err
    assert (workspace / "sort-these-rows_files" / "display-1.png").read_bytes()[:4] == b"\x89PNG"
    again = pinfold("export", "last", "--to", "md")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "exists already: --force" in again.err
    assert pinfold("export", "last", "--to", "html", "-o", "-").out.startswith("<!doctype html>")

    program = subprocess.run([sys.executable, "sort-these-rows.py"], cwd=workspace, capture_output=True, check=True)
    assert program.stdout == b"unsorted [3, 1, 2]\n[1, 2, 3]\n"

    book = workspace / "sort-these-rows.ipynb"
    ran = pinfold("exec", *LOCAL, "-s", "again", str(book), "--to", "out.ipynb")
    assert (ran.code, ran.out) == (0, "unsorted [3, 1, 2]\na picture\n[1, 2, 3]\n3\n"), ran.err
    assert pinfold("exec", "-s", "again", "-c", "rows").out == "[1, 2, 3]\n"
    before, after = (_outputs(path) for path in (book, workspace / "out.ipynb"))
    assert before == after
    assert len([output for cell in after for output in cell]) == 4

    _displays(pinfold, workspace)


def _outputs(path: Path) -> list[list[dict[str, Any]]]:
    jupyter: Any = nbformat
    book = jupyter.read(path, as_version=4)
    jupyter.validate(book)
    return [
        [{**output, "execution_count": None} for output in cell.outputs]
        for cell in book.cells
        if cell.cell_type == "code"
    ]


def _displays(pinfold: Pinfold, workspace: Path) -> None:
    """Of the session `Sort: these/rows`."""
    name = "Sort: these/rows"
    assert "[display 1: image/png 2x3]" in pinfold("sessions", "show", name).out
    done = pinfold("sessions", "show", name, "--display", "1", "-o", "one.png")
    assert (done.code, (workspace / "one.png").read_bytes()[:4]) == (0, b"\x89PNG")
    assert pinfold("sessions", "show", name, "--display", "1", "--mime", "text/plain").out == "a picture"
    assert "the session has 1" in pinfold("sessions", "show", name, "--display", "2").err
    found = pinfold("sessions", "search", "--exact", "UNSORTED", "please sort")
    assert [line.split()[0] for line in found.out.splitlines()][1:3] == ["you", "code"]
    (one,) = [
        json.loads(line) for line in pinfold("sessions", "search", "--exact", "--json", "sorted**").out.splitlines()
    ]
    assert (one["title"], [match["place"] for match in one["matches"]]) == (name, ["agent"])
    assert name in pinfold("sessions", "search", "which", "were", "unsorted").out
    assert pinfold("sessions", "search", "heron").code == 1


def test_a_notebooks_failure_is_told_by_its_error_and_not_by_the_hint_under_it(
    pinfold: Pinfold, workspace: Path
) -> None:
    done = pinfold("exec", *LOCAL, str(_book(workspace, "import nosuchheron")))
    assert "cell 1 of 1 failed: ModuleNotFoundError: No module named 'nosuchheron'\n" in done.err


@pytest.mark.slow
def test_a_notebook_stops_at_the_cell_that_fails_and_goes_on_if_told_to(pinfold: Pinfold, workspace: Path) -> None:
    book = _book(workspace, "a = 1\nprint('a')", "", "1 / 0", "!echo shell\na + 1")
    done = pinfold("exec", *LOCAL, str(book), "--to", "out.ipynb")
    assert (done.code, done.out) == (1, "a\n")
    assert "pinfold: saved out.ipynb\n" in done.err
    assert "does not end in .ipynb" in pinfold("exec", *LOCAL, str(book), "--to", "out.html").err
    assert not (workspace / "out.html").exists()
    assert "book.ipynb: cell 2 of 3 failed: ZeroDivisionError: division by zero" in done.err
    assert "not run: 1 cell" in done.err
    assert [len(cell) for cell in _outputs(workspace / "out.ipynb")] == [1, 0, 1, 0]
    kept = pinfold("exec", *LOCAL, "--keep-going", str(book), "--to", "out.ipynb", "--force")
    assert (kept.code, kept.out) == (1, "a\nshell\n2\n")
    assert [len(cell) for cell in _outputs(workspace / "out.ipynb")] == [1, 0, 1, 2]


def test_a_notebook_is_written_through_no_link_that_its_cells_or_earlier_ones_made(
    pinfold: Pinfold, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "out.ipynb").write_text("kept")
    (workspace / "sub").mkdir()
    swap = f"import os\nos.rename('sub', 'was')\nos.symlink({str(outside)!r}, 'sub')"
    done = pinfold("exec", *LOCAL, str(_book(workspace, swap)), "--to", "sub/out.ipynb", "--force")
    assert done.code == 0, done.err
    assert (outside / "out.ipynb").read_text() == "kept"
    assert [len(cell) for cell in _outputs(workspace / "was" / "out.ipynb")] == [0]
    for command in (
        ("exec", *LOCAL, str(_book(workspace, "print(1)")), "--to", "sub/new.ipynb"),
        ("exec", *LOCAL, "-s", "kept", str(_book(workspace, "print(1)")), "--to", "sub/new.ipynb"),
    ):
        done = pinfold(*command)
        assert (done.code, done.out) == (2, ""), done
        assert "sub is a link: name the place it leads to" in done.err
    assert pinfold("exec", *LOCAL, "-s", "kept", "-c", "print(1)").code == 0
    for form in ("md", "bundle", "jsonl"):
        done = pinfold("export", "kept", "--to", form, "-o", "sub/new", "--force")
        assert (done.code, "sub is a link" in done.err) == (2, True), done
    assert [path.name for path in outside.iterdir()] == ["out.ipynb"]
    done = pinfold("export", "kept", "--to", "md", "-o", str(outside / "named.md"))  # where it leads, by name
    assert done.code == 0, done.err


@pytest.mark.slow
def test_a_notebook_that_is_brought_in_is_run_or_only_told(
    pinfold: Pinfold, workspace: Path, script: Any, cell: Any
) -> None:
    book = _book(workspace, "secret_number = 40\nprint('made')", "2 / 0", "never = 1")
    going_on = cell("print(secret_number + 2, 'never' in globals())", expect="cell 2 failed")
    done = pinfold(
        "run", *LOCAL, "--model", script(going_on, {"expect": "42 False", "text": "ok"}), "--from", str(book), "Go on"
    )
    assert (done.code, done.out) == (0, "ok\n"), done.err
    assert "cell 2 of 3 failed: ZeroDivisionError" in done.err
    model = script(
        {"expect": "Nothing of it was run", **cell("'secret_number' in globals()")}, {"expect": "False", "text": "told"}
    )
    told = pinfold("run", *LOCAL, "--model", model, "--from", str(book), "--no-run", "Read it")
    assert (told.code, told.out) == (0, "told\n"), told.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"print(1)", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "not a notebook"),
        (b'{"nbformat": 3, "worksheets": []}', "nbformat 3"),
        (b'{"nbformat": 9, "cells": []}', "nbformat 9"),
        (b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}', "damaged notebook"),
        (b'{"nbformat": 4, "cells": [], "metadata": {"kernelspec": {"language": "R"}}}', "only Python runs here"),
        (None, "cannot be read"),
        (b"{" + b" " * (65 << 20), "more than the 64 MB"),
    ],
)
def test_a_file_that_is_no_notebook_is_named_with_what_is_wrong(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    from pinfold.app.clients.notebooks import read_notebook

    path = tmp_path / "book.ipynb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as caught:
        read_notebook(path)
    assert "\n" not in str(caught.value)


def test_a_broken_notebook_is_one_line_on_the_command_line(pinfold: Pinfold, workspace: Path) -> None:
    (workspace / "book.ipynb").write_text("{}")
    for args in (
        ("exec", *LOCAL, "book.ipynb"),
        ("run", *LOCAL, "--model", "scripted:x", "--from", "book.ipynb", "hi"),
    ):
        done = pinfold(*args)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert "not a notebook" in done.err


def test_a_file_without_end_is_refused_in_one_line(pinfold: Pinfold, workspace: Path) -> None:
    """Such as a link in a repository to a device, or a picture that is all hole."""
    for name in ("book.ipynb", "program.py"):
        (workspace / name).symlink_to("/dev/zero")
    (workspace / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    os.truncate(workspace / "picture.png", 1 << 40)
    for words, args in (
        ("more than the 64 MB", ("exec", *LOCAL, "book.ipynb")),
        ("larger than the 16 MB", ("exec", *LOCAL, "program.py")),
    ):
        done = pinfold(*args)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
        assert words in done.err
    with pytest.raises(ConfigError, match="too large for a model"):
        picture(Blobs(None), workspace / "picture.png")


def test_the_list_of_sessions_fits_the_terminal() -> None:
    from pinfold.app import StoredSession
    from pinfold.events import SessionId
    from pinfold.log import Summary

    shelved = [
        StoredSession(
            id=SessionId(f"s_{number:012x}"),
            folder=Path("/x"),
            summary=Summary(title=title, last="2026-11-16T10:00:00.000Z", events=3, workspace="/srv/data"),
            readable=True,
            size=10**number,
            owner=None,
        )
        for number, title in enumerate(["short", "long " * 50, "東京" * 60], 3)
    ]
    for columns in (60, 80, 120, 200):
        lines = [*rows(shelved, columns)]
        assert len(lines) == 4
        assert all(len(line) <= columns for line in lines)
        assert lines[0].startswith("ID")
    assert ago("2020-01-02T00:00:00.000Z").startswith("2020-01-0")
    assert ago("no time") == "no time"


def _book(workspace: Path, *codes: str) -> Path:
    path = workspace / "book.ipynb"
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": code} for code in codes
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    return path
