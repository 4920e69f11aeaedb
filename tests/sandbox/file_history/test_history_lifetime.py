"""A history that ends with its session: everything comes back, and nothing of it is left for another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinfold.sandbox.file_history.versions import Versions

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("is_lasting", [True, False])
def test_only_a_history_that_lasts_is_gone_on_with(tmp_path: Path, *, is_lasting: bool) -> None:
    workspace, store = tmp_path / "workspace", tmp_path / "store"
    workspace.mkdir()
    store.mkdir()
    versions = Versions(workspace, store, is_lasting=is_lasting)
    versions.begin()
    versions.fill()
    versions.before(1)
    (workspace / "note").write_text("made")
    versions.after(1)
    versions.restore(0)
    assert not (workspace / "note").exists()
    versions.restore(1)
    assert (workspace / "note").read_text() == "made"
    versions.close()
    assert (store / "journal").exists() == is_lasting


def test_a_step_is_quiet_only_where_nothing_has_happened(tmp_path: Path) -> None:
    workspace, store = tmp_path / "workspace", tmp_path / "store"
    workspace.mkdir()
    store.mkdir()
    versions = Versions(workspace, store)
    versions.begin()
    versions.fill()
    assert versions.is_quiet
    versions.before(1)
    assert versions.is_quiet
    versions.after(1)
    versions.before(2)
    (workspace / "by-the-cell").write_text("made")
    assert not versions.is_quiet
    assert versions.after(2).made == ("by-the-cell",)
    (workspace / "by-the-user").write_text("made")
    assert not versions.is_quiet
    versions.before(3)
    assert versions.is_quiet
    versions.after(3)
    assert versions.restore(1).left == ("by-the-user",)
    assert not (workspace / "by-the-cell").exists()
    versions.close()
