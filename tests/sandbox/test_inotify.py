"""Watched folders: what is told of names in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinfold.sandbox.kernel.inotify import FILES, OPENED, Watch

pytestmark = [pytest.mark.unit, pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")]


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.close()


def test_names_that_mean_something_else_are_told_apart_from_files_written(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    assert watch.add(str(tmp_path))
    assert watch.changes() == (set(), set())
    (tmp_path / "old").write_text("2")
    (tmp_path / "new").mkdir()
    assert not watch.is_quiet
    assert watch.peek_touched() == watch.changes() == ({f"{tmp_path}/new"}, {f"{tmp_path}/old"})
    assert watch.is_quiet


def test_a_folder_that_was_away_is_new_when_it_is_back(watch: Watch, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    assert watch.add(str(folder))
    assert not watch.add(str(folder))
    folder.rename(tmp_path / "away")
    (tmp_path / "away").rename(folder)
    renamed, _ = watch.changes() or (set[str](), set[str]())
    assert renamed == {str(folder)}
    assert watch.add(str(folder))


def test_a_folder_put_in_the_place_of_another_is_the_one_watched(watch: Watch, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    watch.add(str(folder))
    folder.rename(tmp_path / "away")
    folder.mkdir()
    assert watch.add(str(folder))
    watch.changes()
    (tmp_path / "away" / "unseen").touch()
    (folder / "seen").touch()
    renamed, _ = watch.changes() or (set[str](), set[str]())
    assert renamed == {f"{folder}/seen"}


def test_what_is_no_folder_is_left_out_and_a_link_is_not_followed(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    assert not watch.add_all(str(tmp_path / name) for name in ("absent", "file", "link"))


def test_more_folders_than_allowed_are_refused_and_those_known_are_not(tmp_path: Path) -> None:
    watch = Watch(most=1)
    (tmp_path / "below").mkdir()
    assert watch.add(str(tmp_path))
    with pytest.raises(OSError, match="more than 1 folders"):
        watch.add(str(tmp_path / "below"))
    assert not watch.add(str(tmp_path))
    watch.close()


def test_opening_is_told_only_where_it_is_asked_for_and_not_our_own(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    watch = Watch(events=FILES)
    fd = os.open(tmp_path, os.O_RDONLY)
    watch.add("", fd)
    os.close(fd)
    (tmp_path / "a").read_bytes()
    watch.collect(ours={"a"})
    (tmp_path / "b").read_bytes()
    assert watch.take_events() == {"b": OPENED}
    watch.close()
