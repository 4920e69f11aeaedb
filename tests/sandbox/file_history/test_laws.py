"""The history of a workspace's files against a reference: any sequence of cells, the user's changes, undo and redo."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.sandbox.file_history.cells import Tree, let_settle, tree

from pinfold.sandbox.file_history.versions import Versions

pytestmark = pytest.mark.integration

NESTED = ("a", "b", "d", "d/x", "d/y", "d/e", "d/e/z", ".git", ".git/HEAD")
FLAT = ("a", "b", "c", "e")


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


def make_way(workspace: Path, name: str) -> Path:
    """Folders to it, whatever was there, and nothing at the name itself."""
    for folder in reversed((workspace / name).relative_to(workspace).parents[:-1]):
        if not (workspace / folder).is_dir() or (workspace / folder).is_symlink():
            clear(workspace / folder)
            (workspace / folder).mkdir()
    clear(workspace / name)
    return workspace / name


def act(workspace: Path, what: str, name: str, other: str, number: int) -> None:
    path = workspace / name
    is_there = path.is_symlink() or path.exists()
    match what:
        case "make":
            make_way(workspace, name).write_text(f"{number}")
        case "write" if path.is_file() and not path.is_symlink():
            with path.open("r+") as file:
                file.write(f"{number % 10}")
        case "touch" if is_there:
            os.utime(path, ns=(number, number), follow_symlinks=False)
        case "chmod" if is_there and not path.is_symlink():
            path.chmod((0o755, 0o700, 0o750)[number % 3] if path.is_dir() else (0o644, 0o755, 0o600)[number % 3])
        case "folder":
            make_way(workspace, name).mkdir()
        case "link":
            make_way(workspace, name).symlink_to(("a", "d", "/etc", "nowhere", "..")[number % 5])
        case "rename" if is_there and not other.startswith(f"{name}/") and not name.startswith(f"{other}/"):
            if name != other:
                path.rename(make_way(workspace, other))
        case "remove":
            clear(path)
        case _:
            pass


def acts(names: tuple[str, ...], whats: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str, str, str, int]]]:
    one = st.tuples(st.sampled_from(whats), st.sampled_from(names), st.sampled_from(names), st.integers(0, 99))
    return st.lists(one, min_size=1, max_size=4)


class Machine(RuleBasedStateMachine):
    """A workspace of its own, its history, and copies of it as the reference."""

    watches = 8192
    is_shared = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir()
        for number, name in enumerate(("a", "d/x", ".git/HEAD")):
            make_way(self.workspace, name).write_text(f"start {number}")
        if self.is_shared:
            let_settle(self.workspace)
        self.open()
        self.after: dict[int, Tree] = {0: tree(self.workspace)}
        self.cell = 0

    def open(self) -> None:
        shared = self.folder / "shared" if self.is_shared else None
        self.versions = Versions(
            self.workspace, self.folder / "store", watches=self.watches, shared=shared, settled_s=0
        )
        self.versions.begin()
        self.versions.fill()

    def run(self, doing: list[tuple[str, str, str, int]]) -> None:
        self.cell += 1
        self.versions.before(self.cell)
        before = tree(self.workspace)
        for one in doing:
            act(self.workspace, *one)
        changes = self.versions.after(self.cell)
        after = self.after[self.cell] = tree(self.workspace)
        assert set(changes.made) == after.keys() - before.keys()
        assert set(changes.removed) == before.keys() - after.keys()
        assert set(changes.changed) == {path for path in before.keys() & after.keys() if before[path] != after[path]}

    @rule()
    def is_taken_over(self) -> None:
        """By another process."""
        self.versions.close()
        self.open()
        assert self.versions.states == tuple(sorted(self.after))

    def teardown(self) -> None:
        self.versions.close()
        shutil.rmtree(self.folder)


class OnlyCells(Machine):
    """Whatever cells do, every state comes back exactly."""

    @rule(doing=acts(NESTED, ("make", "write", "touch", "chmod", "folder", "link", "rename", "remove")))
    def runs(self, doing: list[tuple[str, str, str, int]]) -> None:
        self.run(doing)

    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        to = data.draw(st.sampled_from(sorted(self.after)))
        restored = self.versions.restore(to)
        assert tree(self.workspace) == self.after[to]
        assert (restored.missed, restored.left, restored.aside) == ((), (), ())


class OnlyCellsWalked(OnlyCells):
    watches = 0
    is_shared = False


class WithUser(Machine):
    """Of one file alone: it is as after the cell, or as the user had it."""

    def __init__(self) -> None:
        super().__init__()
        self.left = tree(self.workspace)
        """As the last cell or restore left it."""
        self.users: dict[str, list[object]] = {name: [] for name in FLAT}
        """Every version the user ever made."""
        self.at = 0

    @rule(doing=acts(FLAT, ("make", "write", "link", "remove", "chmod")))
    def runs(self, doing: list[tuple[str, str, str, int]]) -> None:
        self.note_users()
        self.run(doing)
        self.at = self.cell
        self.left = tree(self.workspace)

    @rule(doing=acts(FLAT, ("make", "write", "link", "remove", "chmod")))
    def user_changes(self, doing: list[tuple[str, str, str, int]]) -> None:
        for one in doing:
            act(self.workspace, *one)

    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        to = data.draw(st.sampled_from(sorted(self.after)))
        fresh = self.note_users()
        before = tree(self.workspace)
        restored = self.versions.restore(to)
        assert restored.missed == ()
        now = tree(self.workspace)
        for name in FLAT:
            if name in fresh:
                assert now.get(name) == before.get(name)
            elif self.users[name]:
                assert now.get(name) in (self.after[to].get(name), *self.users[name])
            else:
                assert now.get(name) == self.after[to].get(name)
            assert (name in restored.left) == (now.get(name) != self.after[to].get(name))
        back = self.at
        self.at, self.left = to, now
        if data.draw(st.booleans()):
            self.versions.restore(back)
            self.at, self.left = back, tree(self.workspace)
            assert self.left == before

    def note_users(self) -> set[str]:
        now = tree(self.workspace)
        fresh = {name for name in FLAT if now.get(name) != self.left.get(name)}
        for name in fresh:
            self.users[name].append(now.get(name))
        return fresh


class WithUserWalked(WithUser):
    watches = 0
    is_shared = False


class WithUserNested(Machine):
    """With folders the user's and the cells' get into each other's way: going there and back still changes nothing."""

    @rule(doing=acts(NESTED, ("make", "write", "chmod", "folder", "link", "rename", "remove")))
    def runs(self, doing: list[tuple[str, str, str, int]]) -> None:
        self.run(doing)

    @rule(doing=acts(NESTED, ("make", "write", "chmod", "folder", "link", "rename", "remove")))
    def user_changes(self, doing: list[tuple[str, str, str, int]]) -> None:
        for one in doing:
            act(self.workspace, *one)

    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        back, to = self.versions.at, data.draw(st.sampled_from(sorted(self.after)))
        before = tree(self.workspace)
        assert self.versions.restore(to).missed == ()
        if data.draw(st.booleans()):
            assert self.versions.restore(back).missed == ()
            assert tree(self.workspace) == before


EXAMPLES = 25


@pytest.mark.parametrize("machine", [OnlyCells, pytest.param(OnlyCellsWalked, marks=pytest.mark.slow)])
def test_every_state_comes_back_whatever_cells_do(machine: type[Machine]) -> None:
    holds(machine)


@pytest.mark.parametrize(
    "machine",
    [
        WithUser,
        pytest.param(WithUserWalked, marks=pytest.mark.slow),
        pytest.param(WithUserNested, marks=pytest.mark.slow),
    ],
)
def test_what_the_user_changed_stays_and_there_and_back_is_as_before(machine: type[Machine]) -> None:
    holds(machine)


def holds(machine: type[Machine]) -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=15)
    )
