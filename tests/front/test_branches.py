"""`pinfold run --branches N --check CMD`: real sessions side by side over one workspace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinfold.app.trust.untrusted_files import Writer, find_untrusted

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Any]
TURNS = """
import os, pathlib
tries = pathlib.Path('tries'); tries.mkdir(exist_ok=True)
pathlib.Path('answer.txt').write_text('42')
pathlib.Path('old.txt').unlink()
"""


def test_the_branch_that_passes_is_kept_with_its_files_and_the_others_leave_nothing(
    pinfold: Pinfold, workspace: Path, script: Any, cell: Any
) -> None:
    (workspace / "old.txt").write_text("old", encoding="utf-8")
    model = script(cell(TURNS), {"text": "it is 42"})
    done = pinfold(
        "run", "--model", model, "--branches", "3", "--check", "grep -q 42 answer.txt", "--title", "best", "go"
    )
    assert (done.code, done.out) == (0, "it is 42\n"), done.err
    assert (workspace / "answer.txt").read_text(encoding="utf-8") == "42"
    assert not (workspace / "old.txt").exists()
    (kept,) = pinfold("sessions").out.splitlines()
    assert "best (" in kept
    shown = pinfold("sessions", "show", "last").out
    assert "The check `grep -q 42 answer.txt` passed." in shown
    assert pinfold("exec", "-s", kept.split()[0], "-c", "tries.name").out == "'tries'\n"


def test_where_none_passes_the_files_are_as_they_were(
    pinfold: Pinfold, workspace: Path, script: Any, cell: Any
) -> None:
    (workspace / "old.txt").write_text("old", encoding="utf-8")
    model = script(cell(TURNS), {"text": "it is 42"})
    done = pinfold("run", "--model", model, "--branches", "2", "--check", "false", "go")
    assert (done.code, done.out) == (1, "")
    assert "none of 2 branches passed" in done.err
    assert [path.name for path in workspace.iterdir()] == ["old.txt"]
    assert len(pinfold("sessions").out.splitlines()) == 2


def test_a_branch_that_fails_its_check_is_passed_over(
    pinfold: Pinfold, workspace: Path, tmp_path: Path, script: Any, cell: Any
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    model = script(cell("open('made.txt', 'w').write('by a branch')"), {"text": "done"})
    check = f"! mkdir {shared}/first"  # whoever comes first fails
    done = pinfold(
        "run", *("--model", model, "--mount", f"{shared}:rw", "--branches", "2", "--check", check, "--ephemeral", "go")
    )
    assert done.code == 0, done.err
    assert "did not pass the check" in done.err
    assert (workspace / "made.txt").read_text(encoding="utf-8") == "by a branch"
    assert pinfold("sessions").out == ""


@pytest.mark.parametrize("outside", [True, False])
def test_what_an_untrusted_branch_brings_over_is_marked(
    pinfold: Pinfold, workspace: Path, tmp_path: Path, script: Any, cell: Any, outside: bool
) -> None:
    """A branch is untrusted because of a file of others' words that it can read."""
    data = tmp_path / "data"
    data.mkdir()
    writer = Writer("s_before", [data])
    if outside:
        writer.turn_untrusted()
    (data / "page.txt").write_text("words", encoding="utf-8")
    writer.end()
    (workspace / "mine.txt").write_text("mine", encoding="utf-8")
    model = script(cell("open('made.txt', 'w').write('words')"), {"text": "done"})
    given = ("--model", model, "--mount", str(data), "--branches", "2", "--check", "true")
    assert pinfold("run", *given, "go").code == 0
    assert (workspace / "made.txt").exists()
    assert {path.name for path in find_untrusted([workspace])} == ({"made.txt"} if outside else set())


def test_branches_without_a_check_are_refused_in_one_line(pinfold: Pinfold, script: Any) -> None:
    done = pinfold("run", "--model", script({"text": "x"}), "--branches", "2", "go")
    assert done.code == 2
    assert "--branches needs --check, and --check needs --branches" in done.err
