"""Folders no session sees, whoever asks: Pinfold's own, and those with the user's keys."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinfold.app import ConfigError, check_paths, mounts_of
from pinfold.app.paths import private_dir, workspace_at

pytestmark = pytest.mark.unit
KEYS = (".ssh", ".aws", ".gnupg", ".kube", ".config/gcloud", ".local/share/keyrings")


def as_workspace(path: Path) -> object:
    return workspace_at(path)


def as_data(path: Path) -> object:
    return check_paths({"x": path})


def as_mount(path: Path) -> object:
    return mounts_of([path])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in KEYS:
        (home / name / "deep").mkdir(parents=True)
    (home / "work" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.mark.parametrize("used", [as_workspace, as_data, as_mount])
@pytest.mark.parametrize("name", [*KEYS, ".ssh/deep", ".config", ".local"])
def test_keys_are_never_shown(home: Path, name: str, used: Callable[[Path], Any]) -> None:
    with pytest.raises(ConfigError, match=r"your keys are in|Pinfold's own files are in"):
        used(home / name)


@pytest.mark.parametrize("used", [as_workspace, as_data, as_mount])
def test_a_link_to_them_is_seen_through(home: Path, tmp_path: Path, used: Callable[[Path], Any]) -> None:
    link = tmp_path / "harmless"
    link.symlink_to(home / ".ssh")
    with pytest.raises(ConfigError, match="your keys are in"):
        used(link)


@pytest.mark.parametrize("used", [as_workspace, as_data, as_mount])
@pytest.mark.parametrize("name", ["work", "work/.ssh"])
def test_other_folders_of_a_home_can_be_used(home: Path, name: str, used: Callable[[Path], Any]) -> None:
    assert used(home / name)


def test_folders_made_on_the_way_to_a_private_one_are_private_too(tmp_path: Path) -> None:
    private_dir(tmp_path / "pinfold" / "scratch" / "one")
    made = tmp_path / "pinfold", tmp_path / "pinfold" / "scratch"
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in made] == [0o700, 0o700]
