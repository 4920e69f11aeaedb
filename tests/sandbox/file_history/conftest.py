"""A workspace with something of everything, watched or not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import WALKED, WATCHED

if sys.platform != "linux":
    collect_ignore_glob = ["test_*"]  # openat2 and inotify are Linux's


@pytest.fixture(params=[WATCHED, WALKED], ids=["watched", "walked"])
def watches(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "notes.txt").write_text("one")
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "main.py").write_text("print(1)")
    (workspace / "src" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 9)
    (workspace / "empty").mkdir(mode=0o750)
    (workspace / "run.sh").write_text("exit")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "link").symlink_to("src/main.py")
    (workspace / "out").symlink_to("/etc")
    (workspace / ".gitignore").write_text("*.log\n")
    (workspace / "train.log").write_text("ignored by git")
    (workspace / os.fsdecode(b"caf\xe9 \n\x01")).write_text("a name that is no text")
    return workspace
