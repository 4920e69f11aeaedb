"""Sessions that go on, go back and fork, from the command line: each command a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Any]


def test_a_session_simply_goes_on_in_the_next_process(pinfold: Pinfold) -> None:
    assert pinfold("exec", "-s", "work", "-c", "items = [1]\ndef f(): return len(items)").code == 0
    assert pinfold("exec", "-s", "work", "-c", "items.append(2)").code == 0
    done = pinfold("exec", "-s", "work", "-c", "(items, f())")
    assert (done.code, done.out, done.err) == (0, "([1, 2], 2)\n", "")
    opened = pinfold("sessions", "show", "work", "--json").of_kind("SessionOpened")
    assert opened[-1]["restored"] == ["items", "f"]
    assert opened[-1]["lost"] == []


def test_undo_takes_variables_and_files_back_with_nobody_there_and_redo_brings_them(
    pinfold: Pinfold, workspace: Path
) -> None:
    pinfold("exec", "-s", "work", "-c", "n = [1]\nopen('kept.txt', 'w').write('one')")
    pinfold("exec", "-s", "work", "-c", "n.append(2)\nopen('kept.txt', 'w').write('two')")
    done = pinfold("undo", "work")
    assert (done.code, done.out) == (0, "undid cell 2: variables and workspace files are as after cell 1.\n")
    assert (workspace / "kept.txt").read_text(encoding="utf-8") == "one"
    shown = pinfold("sessions", "show", "work").out
    assert "[cell 1]\n" in shown
    assert "[cell 2, undone]\n" in shown
    assert "[undo]\n  The user undid cell 2: " in shown
    assert pinfold("redo", "work").out == "redid cell 2: variables and workspace files are as after cell 2.\n"
    assert (workspace / "kept.txt").read_text(encoding="utf-8") == "two"
    assert pinfold("undo", "work", "--to", "0").code == 0
    assert not (workspace / "kept.txt").exists()
    assert pinfold("exec", "-s", "work", "-c", "'n' in globals()").out == "False\n"


@pytest.mark.slow
def test_what_cannot_be_gone_back_to_is_refused_in_one_line(pinfold: Pinfold) -> None:
    pinfold("exec", "-s", "work", "-c", "x = 1")
    done = pinfold("undo", "work", "--to", "7")
    assert done.code == 1
    assert done.err == "pinfold: there is no state after cell 7 to go back to; there are 0, 1\n"
    assert pinfold("redo", "work").err == "pinfold: nothing was undone since the last cell\n"
    assert pinfold("undo", "nobody").err.startswith("pinfold: there is no session 'nobody'")


def test_the_files_alone_can_go_back(pinfold: Pinfold, workspace: Path) -> None:
    pinfold("exec", "-s", "work", "-c", "x = 1\nopen('made.txt', 'w').close()")
    done = pinfold("undo", "work", "--what", "files")
    assert done.out == "undid file changes: workspace files are as at the start.\n"
    assert not (workspace / "made.txt").exists()
    assert pinfold("exec", "-s", "work", "-c", "x").out == "1\n"


def test_what_a_cell_did_to_variables_is_told_in_one_line(pinfold: Pinfold) -> None:
    done = pinfold("exec", "--json", "-c", "a = 1\nb = [2]")
    (finished,) = done.of_kind("ActionFinished")
    assert finished["variables"] == {"added": ["a", "b"], "changed": [], "removed": [], "shapes": []}
    assert "variables" not in finished["observation"]


@pytest.mark.slow
def test_a_fork_goes_its_own_way_from_where_its_source_was(pinfold: Pinfold) -> None:
    pinfold("exec", "-s", "work", "-c", "items = [1]")
    fork = pinfold("fork", "work", "--title", "other").out.strip()
    pinfold("exec", "-s", "other", "-c", "items.append(2)")
    pinfold("exec", "-s", "work", "-c", "items.append(3)")
    assert pinfold("exec", "-s", "other", "-c", "items").out == "[1, 2]\n"
    assert pinfold("exec", "-s", "work", "-c", "items").out == "[1, 3]\n"
    (forked,) = pinfold("sessions", "show", fork, "--json").of_kind("SessionForked")
    assert forked["from"] in pinfold("sessions").out


def test_a_killed_owner_loses_nothing_that_was_saved(pinfold: Pinfold, start: Any) -> None:
    running = start("exec", "-s", "work", "-c", "items = [1]\nprint('ready', flush=True)")
    assert running.stdout.readline() == "ready\n"
    assert running.wait(timeout=200) == 0
    running = start("exec", "-s", "work", "-c", "items.append(2)\nprint('on', flush=True)\nwhile True: pass")
    assert running.stdout.readline() == "on\n"
    running.kill()
    running.wait(timeout=200)
    done = pinfold("exec", "-s", "work", "-c", "items")
    assert done.out == "[1]\n"
    finished = pinfold("sessions", "show", "work", "--json").of_kind("ActionFinished")
    assert [one["outcome"] for one in finished] == ["ok", "outcome_unknown", "ok"]


def test_what_undo_does_not_cover_is_said_before_the_first_cell_runs(pinfold: Pinfold, workspace: Path) -> None:
    with (workspace / "large.bin").open("wb") as file:
        file.truncate(100 << 20)
    done = pinfold("exec", "--json", "-c", "x = 1")
    kinds = [event["kind"] for event in done.events]
    (said,) = [event for event in done.of_kind("Noticed") if "large.bin" in event["text"]]
    assert "Undo does not cover large.bin" in said["text"]
    assert done.events.index(said) < kinds.index("ActionFinished")
    (finished,) = done.of_kind("ActionFinished")
    assert "large.bin" not in finished["observation"]


def test_what_undo_does_not_cover_is_said_once_a_session(pinfold: Pinfold, workspace: Path, tmp_path: Path) -> None:
    with (workspace / "large.bin").open("wb") as file:
        file.truncate(100 << 20)
    (tmp_path / "shared").mkdir()
    first = pinfold("exec", "-s", "work", "--mount", f"{tmp_path / 'shared'}:rw", "-c", "x = 1")
    assert "Undo does not cover large.bin" in first.err
    assert f"Undo does not cover {tmp_path / 'shared'}" in first.err
    again = pinfold("exec", "-s", "work", "-c", "x")
    assert again.out == "1\n"
    assert "Undo does not cover" not in again.err
