"""Workspace files inside the guest: the kernel's way of staying in, and the way of older kernels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pinfold.guest.toolbox.files import Files, Refused

pytestmark = [pytest.mark.unit, pytest.mark.safety]

NO_SUCH_CALL = 1_000_000


@pytest.fixture(params=["openat2", "without openat2"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a way out of each kind; outside lies a secret."""
    if request.param != "openat2":
        monkeypatch.setattr("pinfold.guest.kernel.syscalls._OPENAT2", NO_SUCH_CALL)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret", encoding="utf-8")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "inside").mkdir()
    (workspace / "to-inside").symlink_to("inside")
    (workspace / "to-outside").symlink_to("../outside")
    (workspace / "to-secret").symlink_to(tmp_path / "outside" / "secret")
    (workspace / "to-new").symlink_to(tmp_path / "outside" / "new")
    (workspace / "to-root").symlink_to(f"/proc/{os.getpid()}/root")
    return workspace


def test_a_file_goes_in_and_comes_out(workspace: Path) -> None:
    room = Files(str(workspace))
    room.put("a/b/c.txt", b"content")
    assert room.get("a/b/c.txt", 100) == b"content"
    assert (workspace / "a/b/c.txt").read_bytes() == b"content"


def test_a_link_that_stays_inside_is_followed(workspace: Path) -> None:
    room = Files(str(workspace))
    room.put("to-inside/x", b"1")
    assert (workspace / "inside" / "x").read_bytes() == b"1"
    assert room.get("to-inside/x", 100) == b"1"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/hostname",
        "../outside/secret",
        "inside/../../outside/secret",
        "to-outside/secret",
        "to-outside/new",
        "to-outside/folder/new",
        "to-secret",
        "to-new",
        "to-root/etc/hostname",
        "",
        ".",
        "/",
        "a\0b",
    ],
)
def test_every_way_out_is_refused(workspace: Path, path: str) -> None:
    room = Files(str(workspace))
    with pytest.raises(Refused):
        room.get(path, 1000)
    if not path.startswith("/"):  # were it not refused, it would only be written in this test's folder
        with pytest.raises(Refused):
            room.put(path, b"planted")
    outside = workspace.parent / "outside"
    assert {found.name: found.read_text(encoding="utf-8") for found in outside.iterdir()} == {"secret": "secret"}


def test_a_folder_is_not_a_file(workspace: Path) -> None:
    with pytest.raises(Refused):
        Files(str(workspace)).get("inside", 100)
    with pytest.raises(Refused):
        Files(str(workspace)).put("inside", b"x")


def test_the_limit_is_a_limit(workspace: Path) -> None:
    room = Files(str(workspace))
    room.put("ten", b"0123456789")
    assert room.get("ten", 10) == b"0123456789"
    with pytest.raises(Refused, match="has 10 bytes; the limit is 9"):
        room.get("ten", 9)
