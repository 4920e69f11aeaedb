"""A repository goes back and forth as a whole, or stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import history

pytestmark = pytest.mark.integration


QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_OPTIONAL_LOCKS": "0",  # as editors do: looking at the status writes no index
    "PATH": os.environ["PATH"],
}
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, env=QUIET, check=True, capture_output=True, text=True)
    return done.stdout


def commit(folder: Path, text: str) -> None:
    (folder / "notes.txt").write_text(text)
    git(folder, "add", "notes.txt")
    git(folder, "commit", "-q", "-m", text)


@pytest.fixture
def repository(workspace: Path) -> Path:
    git(workspace, "init", "-q", "-b", "main")
    commit(workspace, "one")
    return workspace


def log(repository: Path) -> list[str]:
    git(repository, "fsck", "--strict")
    return git(repository, "log", "--format=%s").split()


@needs_git
def test_a_repository_goes_back_and_forth_with_its_files(repository: Path, watches: int) -> None:
    with history(repository, watches=watches) as cells:
        cells.run(lambda: commit(repository, "two"))
        cells.run(lambda: (git(repository, "gc", "-q"), git(repository, "checkout", "-q", "-b", "topic")))
        cells.versions.restore(0)
        assert (log(repository), git(repository, "status", "--porcelain")) == (["one"], "")
        cells.versions.restore(2)
        assert (log(repository), git(repository, "branch", "--show-current")) == (["two", "one"], "topic\n")
        cells.run(lambda: [shutil.rmtree(path) for path in repository.iterdir() if path.is_dir()])
        cells.versions.restore(1)
        assert (log(repository), git(repository, "branch", "--show-current")) == (["two", "one"], "main\n")


@needs_git
def test_a_repository_the_user_works_in_stays_whole(repository: Path, watches: int) -> None:
    with history(repository, watches=watches) as cells:
        cells.run(lambda: commit(repository, "two"))
        commit(repository, "three")
        cells.run(lambda: commit(repository, "four"))
        cells.versions.restore(0)
        assert log(repository) == ["three", "two", "one"]
        assert git(repository, "status", "--porcelain") == ""
        cells.versions.restore(2)
        assert log(repository) == ["four", "three", "two", "one"]
        commit(repository, "five")
        cells.versions.restore(0)
        assert log(repository) == ["five", "four", "three", "two", "one"]


@needs_git
def test_a_repository_comes_back_as_a_whole_or_stays_as_it_is(repository: Path) -> None:
    (repository / "large").write_bytes(os.urandom(1 << 19))
    git(repository, "add", "large")
    git(repository, "commit", "-q", "-m", "large")
    with history(repository, file_cap=1 << 18) as cells:
        cells.run(lambda: (commit(repository, "two"), git(repository, "gc", "-q", "--prune=now")))
        undone = cells.undo()
        assert [missed.path for missed in undone.missed] == [".git"]
        assert log(repository) == ["two", "large", "one"]
        assert (repository / "notes.txt").read_text() == "one"
