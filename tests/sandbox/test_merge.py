"""Bringing a view over: laws, with views that real sessions made, and hostile ones that none would."""

from __future__ import annotations

import inspect
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sandbox.test_autorun_files import environment

from pinfold.sandbox import Spec
from pinfold.sandbox.kernel.safe_files import SafeFolder
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.views import Change, LeftOut, merge_view
from pinfold.sandbox.views.view_folder import ViewFolder

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="overlayfs is Linux's")]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make these")
JAILED = Namespaces(pool=2)
State: TypeAlias = dict[str, tuple[str, int, str]]
"""Kind, mode and content of each path."""


def do(top: str, operations: list[list[Any]]) -> None:
    """Runs inside as well. What cannot be done is not done."""
    import os
    import shutil

    for name, path, more in operations:
        here = os.path.join(top, path)  # noqa: PTH118 - also runs inside
        try:
            if name in ("w", "a"):
                with open(here, name) as file:  # noqa: PTH123
                    file.write(more)
            elif name == "folder":
                os.mkdir(here)  # noqa: PTH102
            elif name == "link":
                os.symlink(more, here)  # noqa: PTH211
            elif name == "chmod":
                if not os.path.islink(here):  # noqa: PTH114
                    os.chmod(here, (0o700 if os.path.isdir(here) else 0) | more)  # noqa: PTH101, PTH112
            elif name == "move":
                shutil.move(here, os.path.join(top, more))  # noqa: PTH118
            elif os.path.isdir(here) and not os.path.islink(here):  # noqa: PTH112, PTH114
                shutil.rmtree(here)
                if name == "again":
                    os.mkdir(here)  # noqa: PTH102
            else:
                os.unlink(here)  # noqa: PTH108
        except (OSError, shutil.Error):
            pass


def state(top: str) -> State:
    """Runs inside as well."""
    import os
    import stat

    found: State = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)  # noqa: PTH118 - also runs inside
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                entry = ("link", 0, os.readlink(path))  # noqa: PTH115
            elif stat.S_ISDIR(mode):
                entry = ("folder", stat.S_IMODE(mode), "")
            else:
                with open(path) as file:  # noqa: PTH123
                    entry = ("file", stat.S_IMODE(mode), file.read())
            found[os.path.relpath(path, top)] = entry
    return found


INSIDE = f"""
from __future__ import annotations
{inspect.getsource(do)}
{inspect.getsource(state)}
do(TOP, OPERATIONS)
print(state(TOP))
"""


PATHS = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x", "b/y", "a/x/q", "b/x/q", "a/x/q/r"])
TEXTS = st.text("xyz", max_size=3)
THERE: list[list[Any]] = [
    *(["folder", path, None] for path in ("a", "b", "a/x")),
    *(["w", path, "old"] for path in ("a/y", "b/x", "b/y", "a/x/q", "c")),
]
"""Before anything else, so that there is something to change."""
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["w", "a"]), PATHS, TEXTS),
        st.tuples(st.sampled_from(["remove", "folder"]), PATHS, st.none()),
        st.tuples(st.just("again"), st.sampled_from(["a", "b", "a/x"]), st.none()),
        st.tuples(st.just("link"), PATHS, st.sampled_from(["a", "b/x", "/etc/passwd", "../.."])),
        st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o600, 0o640, 0o755])),
        st.tuples(st.just("move"), PATHS, PATHS),
    ).map(list),
    max_size=12,
)
ONCE = settings(max_examples=60)


def a_folder() -> str:
    return tempfile.mkdtemp(prefix="pinfold-test-")


@contextmanager
def places(before: list[list[Any]]) -> Generator[tuple[Path, Path]]:
    """A workspace in which these were done, and a view of it."""
    top = Path(a_folder())
    try:
        workspace, view = top / "workspace", top / "view"
        workspace.mkdir()
        view.mkdir()
        do(str(workspace), [*THERE, *before])
        yield workspace, view
    finally:
        shutil.rmtree(top)


async def in_a_view(workspace: Path, view: Path, operations: list[list[Any]]) -> State:
    """What a session saw after these."""
    session = await JAILED.open(Spec(workspace=workspace, view=view))
    try:
        code = INSIDE.replace("TOP", repr(str(workspace))).replace("OPERATIONS", repr(operations))
        outcome = await session.run(code)
        assert outcome.error is None, outcome.error
        return eval(outcome.stdout)
    finally:
        await session.close()


@given(OPERATIONS, OPERATIONS, OPERATIONS)
@ONCE
def test_the_workspace_becomes_what_the_sessions_saw(
    before: list[list[Any]], first: list[list[Any]], then: list[list[Any]]
) -> None:
    with places(before) as (workspace, view):
        was = state(str(workspace))
        anyio.run(in_a_view, workspace, view, first)
        saw = anyio.run(in_a_view, workspace, view, then)
        assert state(str(workspace)) == was
        brought = merge_view(workspace, view)
        assert (brought.conflicts, brought.left_out) == ((), ())
        assert state(str(workspace)) == saw
        assert {change.path for change in brought.applied} == {
            path for path in {*was, *saw} if was.get(path) != saw.get(path)
        }
        assert merge_view(workspace, view).applied == ()


@given(OPERATIONS, OPERATIONS, OPERATIONS)
@ONCE
def test_what_the_user_changed_meanwhile_stays_and_the_rest_is_brought_over(
    before: list[list[Any]], by_session: list[list[Any]], by_user: list[list[Any]]
) -> None:
    with places(before) as (workspace, view):
        was = state(str(workspace))
        saw = anyio.run(in_a_view, workspace, view, by_session)
        do(str(workspace), by_user)
        users = state(str(workspace))
        brought = merge_view(workspace, view)
        now = state(str(workspace))
        assert brought.left_out == ()
        for path in {*was, *saw, *users, *now}:
            kinds = {one[path][0] for one in (was, saw, users, now) if path in one}
            if "folder" in kinds:
                continue  # there as long as something is in it
            if users.get(path) != was.get(path):
                assert now.get(path) == users.get(path), path
            elif not any(touches(path, conflict) for conflict in brought.conflicts):
                assert now.get(path) == saw.get(path), path
            else:
                assert now.get(path) in (saw.get(path), users.get(path)), path
        assert by_user or not brought.conflicts


def touches(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


@pytest.fixture
def view(tmp_path: Path, workspace: Path) -> Path:
    """Of a session that has changed nothing."""
    folder = tmp_path / "view"
    folder.mkdir()
    ViewFolder(workspace, folder).close()
    return folder


@AS_ROOT
def test_a_hostile_view_gains_nothing(workspace: Path, view: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (outside / "others").write_text("others")
    os.chown(outside / "others", 77, 77)
    files = view / "files"
    os.mknod(files / "disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0))
    os.mknod(files / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mkfifo(files / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(files / "socket"))
    (files / "tool").write_text("tool")
    (files / "tool").chmod(0o6755)
    (files / "shared").mkdir()
    (files / "shared").chmod(0o2777)
    (files / "others").hardlink_to(outside / "others")
    (files / "passwd").symlink_to("/etc/passwd")
    (files / "up").symlink_to(outside)
    (files / "empty").write_text("")
    os.setxattr(files / "empty", "user.overlay.metacopy", b"")
    (files / "elsewhere").mkdir()
    os.setxattr(files / "elsewhere", "user.overlay.redirect", b"/../outside")
    brought = merge_view(workspace, view)
    assert brought.left_out == (
        LeftOut("disk", "special file"),
        LeftOut("elsewhere", "its content is elsewhere"),
        LeftOut("empty", "its content is not there"),
        LeftOut("null", "special file"),
        LeftOut("others", "it belongs to someone else"),
        LeftOut("pipe", "special file"),
        LeftOut("socket", "special file"),
    )
    modes = {path.name: oct(path.lstat().st_mode) for path in workspace.iterdir()}
    assert modes == {"tool": "0o100755", "shared": "0o40777", "passwd": "0o120777", "up": "0o120777"}
    assert os.listxattr(workspace / "shared") == []


def test_nothing_is_written_through_a_link_that_the_user_has_put_in_the_way(
    workspace: Path, view: Path, tmp_path: Path
) -> None:
    (workspace / "folder").mkdir()
    (view / "since").unlink()
    shutil.rmtree(view / "files")
    shutil.rmtree(view / "work")
    ViewFolder(workspace, view).close()
    (view / "files" / "folder").mkdir()
    (view / "files" / "folder" / "made").write_text("made")
    (workspace / "folder").rmdir()
    (workspace / "folder").symlink_to(tmp_path)
    brought = merge_view(workspace, view)
    assert (brought.applied, brought.conflicts) == ((), ("folder", "folder/made"))
    assert not (tmp_path / "made").exists()


def test_what_is_guarded_is_never_brought_over(workspace: Path, view: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("[core]\n\thooksPath = tools/hooks\n")
    environment(workspace)
    own = {str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.is_file()}
    files = view / "files"
    hostile = (
        ".gdbinit",
        "deep/.vscode/tasks.json",
        ".venv/bin/ls",
        ".venv/lib/python3.11/site-packages/absent/__init__.py",
        "AGENTS.md",
        "CLAUDE.md",
        ".mcp.json",
        "pinfold.toml",
        ".agents/skill/SKILL.md",
        ".env",
        "deep/.env.local",
        "keys.pem/in",
        ".git/config",
        ".git/config.worktree",
        ".git/commondir",
        ".git/hooks/pre-commit",
        ".git/objects/info/alternates",
        ".git/modules/sub/config",
        ".git/modules/a/modules/b/hooks/x",
        "sub/.git/config",
        "worktree/.git",
        "tools/hooks/pre-commit",
    )
    harmless = (".git/objects/ab/cd", ".git/refs/heads/x.pem", ".git/logs/HEAD", "sub/.git/HEAD", "AGENTS.txt")
    for name in (*hostile, *harmless):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(name)
    (files / ".git" / "logs" / "refs").symlink_to("/root/.profile")
    (files / ".cargo").symlink_to("deep")
    brought = merge_view(workspace, view)
    left = {one.path for one in brought.left_out}
    assert set(hostile) <= left
    assert {".git/logs/refs", ".cargo"} <= left
    made = {str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.is_file()}
    assert made == {*harmless, *own}
    assert (workspace / ".git" / "config").read_text().startswith("[core]")
    assert brought.conflicts == ()


def test_a_link_on_the_way_to_what_git_obeys_is_never_brought_over(workspace: Path, view: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("[core]\n\thooksPath = tools/hooks\n")
    (view / "files" / "evil" / "hooks").mkdir(parents=True)
    (view / "files" / "evil" / "hooks" / "pre-commit").write_text("#!/bin/sh")
    (view / "files" / "tools").symlink_to("evil")
    assert [left.path for left in merge_view(workspace, view).left_out] == ["tools"]


def test_a_git_folder_is_brought_over_as_a_whole_or_not_at_all(workspace: Path, tmp_path: Path) -> None:
    git, view = workspace / ".git", tmp_path / "view"
    git.mkdir()
    view.mkdir()
    (git / "index").write_text("1")
    ViewFolder(workspace, view).close()
    for name in (".git/index", ".git/refs/heads/new", "file"):
        (view / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (view / "files" / name).write_text("the session's")
    (git / "index").write_text("the user's")
    brought = merge_view(workspace, view)
    assert (brought.applied, brought.conflicts) == ((Change("file", "added"),), (".git",))
    assert sorted(path.name for path in git.iterdir()) == ["index"]


def test_what_cannot_be_brought_over_is_named_and_the_rest_is(workspace: Path, view: Path) -> None:
    deep = view / "files"
    for _ in range(3):
        deep = deep / ("d" * 250)
        deep.mkdir()
    (deep / "file").write_text("deep")
    (view / "files" / "file\n\udcff").write_text("odd name")
    brought = merge_view(workspace, view)
    assert brought.left_out == ()
    assert (workspace / "file\n\udcff").read_text() == "odd name"
    assert merge_view(workspace, view).applied == ()


def test_the_kind_of_a_file_system_is_known(workspace: Path) -> None:
    top = SafeFolder(workspace)
    assert top.file_system > 0
    top.close()
