"""`--mount`: a path of the host's at its own place, and nothing that must not be there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pinfold as package
from pinfold import Agent

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Any]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder beside the workspace, with a secret in it."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    (folder / "book.txt").write_text("words", encoding="utf-8")
    (folder / ".env").write_text("KEY=secret", encoding="utf-8")
    (folder / "AGENTS.md").write_text("be good", encoding="utf-8")
    return folder


def tried(path: Path, action: str) -> str:
    return f"""
from pathlib import Path
path = Path({str(path)!r})
try:
    {action}
except OSError as error:
    print(type(error).__name__, error.strerror)
"""


def test_a_path_is_seen_only_where_it_was_mounted(pinfold: Pinfold, shelf: Path) -> None:
    code = tried(shelf / "book.txt", "print(path.read_text())")
    assert pinfold("exec", "-c", code).out == "FileNotFoundError No such file or directory\n"
    assert pinfold("exec", "--mount", str(shelf), "-c", code).out == "words\n"


def test_it_is_read_only_unless_asked_otherwise(pinfold: Pinfold, shelf: Path) -> None:
    code = tried(shelf / "new.txt", "path.write_text('made inside')")
    assert pinfold("exec", "--mount", str(shelf), "-c", code).out == "OSError Read-only file system\n"
    assert not (shelf / "new.txt").exists()
    assert pinfold("exec", "--mount", f"{shelf}:rw", "-c", code).code == 0
    assert (shelf / "new.txt").read_text(encoding="utf-8") == "made inside"


def test_a_single_file_can_be_written_and_its_neighbours_are_not_there(pinfold: Pinfold, shelf: Path) -> None:
    code = f"import os\nopen({str(shelf / 'book.txt')!r}, 'a').write('!')\nos.listdir({str(shelf)!r})"
    assert pinfold("exec", "--mount", f"{shelf / 'book.txt'}:rw", "-c", code).out == "['book.txt']\n"
    assert (shelf / "book.txt").read_text(encoding="utf-8") == "words!"


def test_secrets_are_masked_and_instructions_cannot_be_changed(pinfold: Pinfold, shelf: Path) -> None:
    read = tried(shelf / ".env", "print(repr(path.read_text()))")
    assert pinfold("exec", "--mount", f"{shelf}:rw", "-c", read).out == "''\n"
    change = tried(shelf / "AGENTS.md", "path.write_text('be bad')")
    assert pinfold("exec", "--mount", f"{shelf}:rw", "-c", change).out == "OSError Read-only file system\n"
    assert (shelf / "AGENTS.md").read_text(encoding="utf-8") == "be good"


def test_a_link_is_mounted_as_what_it_leads_to(pinfold: Pinfold, shelf: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(shelf)
    code = tried(shelf / "book.txt", "print(path.read_text())")
    assert pinfold("exec", "--mount", str(link), "-c", code).out == "words\n"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("/nowhere", "does not exist"),
        ("/etc", "belongs to the system"),
        ("/etc/ssl:rw", "belongs to the system"),
        ("/proc/self/root", "far more than one task"),
        ("/usr/lib", "belongs to the system"),
        (":rw", "names no path"),
        ("{workspace}", "already and need not be mounted"),
        ("{workspace}/within", "already and need not be mounted"),
        ("{tmp_path}", "Pinfold's own files"),
        ("{tmp_path}/xdg/state/pinfold", "Pinfold's own files"),
        ("{package}:rw", "must not be changed from inside"),
    ],
)
def test_what_must_not_be_mounted_is_refused_in_one_line(
    pinfold: Pinfold, workspace: Path, tmp_path: Path, asked: str, words: str
) -> None:
    (workspace / "within").mkdir()
    (tmp_path / "xdg" / "state" / "pinfold").mkdir(parents=True)
    where = asked.format(workspace=workspace, tmp_path=tmp_path, package=Path(package.__file__).resolve().parent)
    done = pinfold("exec", "--mount", where, "-c", "1")
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_a_mount_around_the_workspace_is_refused(pinfold: Pinfold, tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    done = pinfold("exec", "--mount", str(inner.parent), "-c", "1", cwd=inner)
    assert done.code == 2
    assert "contains the workspace" in done.err


def test_two_mounts_may_not_lie_in_each_other(pinfold: Pinfold, shelf: Path) -> None:
    done = pinfold("exec", "--mount", str(shelf), "--mount", f"{shelf / 'book.txt'}:rw", "-c", "1")
    assert done.code == 2
    assert "one lies in the other" in done.err


def test_a_sandbox_that_cannot_keep_to_it_is_refused(pinfold: Pinfold, shelf: Path) -> None:
    done = pinfold("exec", "--sandbox", "unsafe-local", "--mount", str(shelf), "-c", "1")
    assert done.code == 2
    assert "unsafe-local cannot limit code to the mounted folders" in done.err


def test_a_session_keeps_its_mounts_and_they_are_recorded(pinfold: Pinfold, shelf: Path) -> None:
    assert pinfold("exec", "-s", "work", "--mount", f"{shelf}:rw", "-c", "1").code == 0
    code = tried(shelf / "book.txt", "print(path.read_text())")
    done = pinfold("exec", "-s", "work", "--json", "-c", code)
    assert [event["mounts"] for event in done.of_kind("SessionOpened")] == [{str(shelf): True}]
    assert done.of_kind("ActionFinished")[0]["observation"] == "words\n"


def test_the_mode_read_only_holds_for_mounts_too(
    pinfold: Pinfold, shelf: Path, script: Callable[..., str], cell: Callable[..., Any]
) -> None:
    code = tried(shelf / "new.txt", "path.write_text('made inside')")
    model = script(cell(code), {"expect": "Read-only file system", "text": "done"})
    done = pinfold("run", "--model", model, "--mode", "read-only", "--mount", f"{shelf}:rw", "--json", "go")
    assert done.code == 0
    (opened,) = done.of_kind("SessionOpened")
    assert f"Also read-only: {shelf}" in opened["prompt"]
    assert not (shelf / "new.txt").exists()


async def test_an_agent_takes_mounts_and_tells_its_model(
    shelf: Path, workspace: Path, script: Callable[..., str], cell: Callable[..., Any]
) -> None:
    model = script(cell(f"open({str(shelf / 'book.txt')!r}).read()"), {"expect": "words", "text": "read"})
    async with Agent(model=model, workspace=workspace, mounts=[f"{shelf}:rw"], ephemeral=True) as agent:
        events = [event async for event in agent.stream("read the book")]
        assert [getattr(event, "text", "") for event in events][-1] == "read"
