"""Blobs: named by their content, checked whenever they are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.events import BlobId
from pinfold.log import BlobMissing, Blobs, LogUnwritable, blob_id

pytestmark = pytest.mark.unit


def path_of(folder: Path, blob: BlobId) -> Path:
    digest = blob.removeprefix("sha256:")
    return folder / digest[:2] / digest


@given(st.binary())
def test_what_is_put_is_what_is_got(data: bytes) -> None:
    blobs = Blobs(None)
    assert blobs.get(blobs.put(data)) == data
    assert blobs.all() == [blob_id(data)]


def test_blobs_on_disk_survive_and_are_written_once(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    first, second = (Blobs(folder).put(b"hello") for _ in range(2))
    assert first == second == "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert Blobs(folder).get(first) == b"hello"
    assert Blobs(folder).all() == [first]
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [first.removeprefix("sha256:")]


def test_a_missing_blob_is_named(tmp_path: Path) -> None:
    for blobs in (Blobs(None), Blobs(tmp_path)):
        with pytest.raises(BlobMissing, match=r"^blob sha256:[0-9a-f]{64} is not in this session$"):
            blobs.get(blob_id(b"never put"))


def test_a_damaged_blob_is_never_given_out(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    blob = blobs.put(b"hello")
    path_of(tmp_path, blob).write_bytes(b"hallo")
    with pytest.raises(BlobMissing, match="is damaged: its content has another hash"):
        blobs.get(blob)


@pytest.mark.parametrize("name", ["", "sha256:", "sha256:../../etc/passwd", "sha256:" + "A" * 64, "x" * 64, "\0"])
def test_a_name_that_is_no_hash_reaches_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(BlobMissing, match="is not the name of a blob"):
        Blobs(tmp_path).get(BlobId(name))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_text("in the way", encoding="ascii")
    with pytest.raises(LogUnwritable, match=r"cannot write .*: Not a directory; free some space"):
        Blobs(tmp_path / "blobs").put(b"x")
