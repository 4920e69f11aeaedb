"""`pinfold memory`: notes listed, found, shown, edited, forgotten and exported by the user."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Ran

from pinfold.app.session.notes import open_memory

pytestmark = pytest.mark.integration
Pinfold = Callable[..., Ran]


@pytest.fixture
def notes(workspace: Path) -> None:
    """Note 1 is replaced by 2; 3 is of another folder, and untrusted."""
    here = open_memory(workspace, "s_1")
    old = here.remember("the deadline is Monday", ["plan"], trusted=True, cell=4)
    here.remember("the deadline is Friday", trusted=True, scope="global", replaces=old)
    open_memory(Path("/elsewhere"), "s_2").remember("the port is 8080", trusted=False)


@pytest.mark.usefixtures("notes")
def test_notes_are_listed_and_found(pinfold: Pinfold) -> None:
    lines = pinfold("memory", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["3", "2"]
    assert "untrusted" in lines[0]
    assert [line.split()[0] for line in pinfold("memory", "list", "--here").out.splitlines()] == ["2"]
    assert "replaced by 2" in pinfold("memory", "list", "--all").out
    (found,) = [json.loads(line) for line in pinfold("memory", "search", "deadlines", "--json").out.splitlines()]
    assert (found["id"], found["scope"], found["trusted"], found["session"]) == (2, "global", True, "s_1")
    nothing = pinfold("memory", "search", "zebra")
    assert (nothing.code, nothing.out, nothing.err) == (1, "", "Nothing found.\n")


@pytest.mark.usefixtures("notes")
def test_a_note_is_shown_with_where_it_came_from_and_what_replaced_it(pinfold: Pinfold) -> None:
    shown = pinfold("memory", "show", "1").out
    assert shown.startswith("the deadline is Monday\n")
    for words in ("session s_1, cell 4", "by note 2", "plan"):
        assert words in shown
    assert "had read outside text" in pinfold("memory", "show", "3").out
    assert json.loads(pinfold("memory", "show", "1", "--json").out)["superseded_by"] == 2
    missing = pinfold("memory", "show", "9")
    assert missing.code != 0
    assert "there is no note 9" in missing.err


@pytest.mark.usefixtures("notes")
def test_a_note_is_edited_and_no_secret_gets_in_that_way(pinfold: Pinfold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/Friday/Sunday/")
    done = pinfold("memory", "edit", "2")
    assert (done.code, done.err) == (0, "note 2 is changed\n")
    assert "Sunday" in pinfold("memory", "search", "sunday").out
    key = "ghp_" + "a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6"
    monkeypatch.setenv("EDITOR", f"sed -i s/Sunday/{key}/")
    refused = pinfold("memory", "edit", "2")
    assert refused.code != 0
    assert "looks like a password or key" in refused.err
    assert "Sunday" in pinfold("memory", "show", "2").out
    monkeypatch.setenv("EDITOR", "true")
    assert pinfold("memory", "edit", "2").err == "nothing was changed\n"
    assert pinfold("memory", "edit", "2", "other words").err == "note 2 is changed\n"
    assert pinfold("memory", "show", "2").out.startswith("other words\n")


@pytest.mark.usefixtures("notes")
def test_forgetting_asks_or_needs_yes(pinfold: Pinfold) -> None:
    refused = pinfold("memory", "forget", "2")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    done = pinfold("memory", "forget", "2", "3", "--yes")
    assert (done.code, done.err) == (0, "note 2 is forgotten\nnote 3 is forgotten\n")
    assert pinfold("memory", "list").err == "No notes yet.\n"
    assert "there is no note 2" in pinfold("memory", "forget", "2", "--yes").err


@pytest.mark.usefixtures("notes")
def test_all_notes_are_exported_as_json_lines(pinfold: Pinfold, workspace: Path) -> None:
    rows = [json.loads(line) for line in pinfold("memory", "export", "--json").out.splitlines()]
    assert [(row["id"], row["superseded_by"], row["tags"]) for row in rows] == [
        (1, 2, ["plan"]),
        (2, None, []),
        (3, None, []),
    ]
    assert "Saved 3 notes" in pinfold("memory", "export", "-o", "notes.jsonl").err
    assert len((workspace / "notes.jsonl").read_text().splitlines()) == 3
    assert (workspace / "notes.jsonl").stat().st_mode & 0o777 == 0o600
    again = pinfold("memory", "export", "-o", "notes.jsonl")
    assert (again.code, "exists" in again.err) == (2, True)
