"""A history that nobody else goes on with, in a large workspace: most files are only listed when the first cell runs."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import let_settle, tree

from pinfold.sandbox.file_history.entries import Missed
from pinfold.sandbox.file_history.versions import Versions
from pinfold.sandbox.guards.guarded_paths import Listings, find_guarded_paths

pytestmark = pytest.mark.integration
UNREAD = "changed before it was read"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """With one file more than is looked at before the first cell, and packages."""
    top = tmp_path / "large"
    for name in ("src/own.py", "node_modules/one/a.js", "node_modules/one/b.js", "node_modules/two/c.js"):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"was {name}", encoding="utf-8")
    let_settle(top)
    return top


@pytest.fixture
def versions(large: Path) -> Generator[Versions]:
    versions = Versions(large, large.parent / "store", is_lasting=False, measured_at_start=1)
    coverage = versions.begin()
    assert coverage.has_unmeasured
    assert coverage.not_covered == ()
    yield versions
    versions.close()


def test_own_files_are_looked_at_before_those_of_packages(large: Path, versions: Versions) -> None:
    versions.before(1)
    (large / "src").rename(large / "moved")  # of what was looked at it is known that it is the same
    versions.after(1)
    assert versions.restore(0).missed == ()
    assert (large / "src" / "own.py").read_text() == "was src/own.py"


def test_what_is_new_is_removed_and_what_was_only_listed_is_left_and_named(large: Path, versions: Versions) -> None:
    versions.before(1)
    one = large / "node_modules" / "one"
    (one / "new.js").write_text("new")
    (one / "a.js").write_text("changed")
    (one / "b.js").unlink()
    versions.after(1)
    restored = versions.restore(0)
    assert not (one / "new.js").exists()
    assert (one / "a.js").read_text() == "changed"
    assert set(restored.missed) == {
        Missed(path="node_modules/one/a.js", why=UNREAD),
        Missed(path="node_modules/one/b.js", why=UNREAD),
    }


@pytest.mark.parametrize("what", ["node_modules", "node_modules/one", "node_modules/one/a.js"])
def test_what_was_only_listed_is_never_lost_by_being_renamed(large: Path, versions: Versions, what: str) -> None:
    before = contents(large)
    versions.before(1)
    (large / what).rename(large / "moved")
    versions.after(1)
    versions.restore(0)
    assert contents(large) == before


def contents(top: Path) -> list[str]:
    return sorted(path.read_text() for path in top.rglob("*") if path.is_file())


def test_what_was_looked_at_and_read_comes_back(large: Path, versions: Versions) -> None:
    assert versions.fill().unread == 0
    before = tree(large)
    versions.before(1)
    (large / "node_modules" / "one" / "a.js").write_text("changed")
    (large / "node_modules" / "two").rename(large / "moved")
    versions.after(1)
    assert versions.restore(0).missed == ()
    assert tree(large) == before


def test_a_file_changed_before_it_was_looked_at_is_not_taken_for_what_it_was(large: Path, versions: Versions) -> None:
    versions.before(1)
    changed = large / "node_modules" / "one" / "a.js"
    changed.write_text("changed")
    versions.fill()  # while the cell runs
    changed.write_text("changed again")
    versions.after(1)
    restored = versions.restore(0)
    assert restored.missed == (Missed(path="node_modules/one/a.js", why=UNREAD),)
    assert changed.read_text() == "changed again"


def test_folders_are_listed_once_and_again_only_if_they_changed_since(large: Path) -> None:
    listings: Listings = {}
    find_guarded_paths(large, "/w", steers=True, on_listed=listings.update)
    assert set(listings) == {"", "src", "node_modules", "node_modules/one", "node_modules/two"}
    listings["node_modules/two"][1].clear()  # what is seen there now was taken from the listing
    (large / "src" / "late.py").touch()
    versions = Versions(large, large.parent / "store", is_lasting=False)
    assert versions.begin(listings).files == 4  # own.py, late.py, a.js, b.js
    assert listings == {}
    versions.before(1)
    (large / "src" / "late.py").write_text("changed")
    assert versions.after(1).changed == ("src/late.py",)
    versions.close()
