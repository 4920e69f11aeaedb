"""Private views: what a session sees and does through one, with the real sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from tests.sandbox.evaluation import as_user

from pinfold.guest.kernel.processes import pid_of
from pinfold.guest.startup.init import CAPABILITIES, WRITES_ANY
from pinfold.sandbox import NotSupported, SandboxUnavailable, Session, Spec, provider_named
from pinfold.sandbox.providers.canaries import find_holes
from pinfold.sandbox.providers.namespaces import NO_FILES, NO_VIEWS, Namespaces
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.views import Change, discard, merge_view

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
JAILED = Namespaces()
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")


@pytest.fixture
def view(tmp_path: Path) -> Path:
    folder = tmp_path / "view"
    folder.mkdir()
    return folder


@asynccontextmanager
async def opened(workspace: Path, view: Path, *, writable: bool = True) -> AsyncGenerator[Session]:
    session = await JAILED.open(Spec(workspace=workspace, view=view, writable=writable))
    try:
        yield session
    finally:
        await session.close()


async def said(session: Session, code: str) -> str:
    outcome = await session.run(code, timeout_s=30)
    return (outcome.stdout + (outcome.error or "")).strip()


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def owners(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_uid, path.stat().st_gid) for path in folder.rglob("*")}


def call(*words: str) -> None:
    subprocess.run(words, check=True)


async def test_what_a_session_writes_is_seen_by_it_and_by_no_one_in_the_workspace(workspace: Path, view: Path) -> None:
    (workspace / "kept").write_text("as it was")
    (workspace / "gone").write_text("as it was")
    code = (
        "import os\n"
        "open('kept', 'a').write(', and more'); open('made', 'w').write('x'); os.remove('gone')\n"
        "print(os.getcwd(), os.path.realpath('made'), sorted(os.listdir('.')), open('kept').read())"
    )
    async with opened(workspace, view) as session:
        told = await said(session, code)
        assert told == f"{workspace} {workspace}/made ['kept', 'made'] as it was, and more"
        assert contents(workspace) == {"kept": "as it was", "gone": "as it was"}
    applied = merge_view(workspace, view).applied
    assert applied == (Change("gone", "removed"), Change("kept", "changed"), Change("made", "added"))
    assert contents(workspace) == {"kept": "as it was, and more", "made": "x"}
    assert merge_view(workspace, view).applied == ()


async def test_two_sessions_side_by_side_see_their_own(workspace: Path, tmp_path: Path) -> None:
    (workspace / "answer").write_text("?")
    views = [tmp_path / name for name in ("one", "other")]
    for folder in views:
        folder.mkdir()
    code = "open('answer', 'w').write({0!r}); open({0!r}, 'w').close()"
    look = "import os\nprint(open('answer').read(), sorted(os.listdir('.')))"
    async with opened(workspace, views[0]) as one, opened(workspace, views[1]) as other:
        await one.run(code.format("one"))
        await other.run(code.format("other"))
        assert await said(one, look) == "one ['answer', 'one']"
        assert await said(other, look) == "other ['answer', 'other']"
    assert contents(workspace) == {"answer": "?"}
    assert merge_view(workspace, views[1]).conflicts == ()
    late = merge_view(workspace, views[0])
    assert (late.applied, late.conflicts) == ((Change("one", "added"),), ("answer",))
    assert contents(workspace) == {"answer": "other", "other": "", "one": ""}


async def test_a_later_session_goes_on_in_the_same_view(workspace: Path, view: Path) -> None:
    (workspace / "mine").write_text("1")
    async with opened(workspace, view) as session:
        await session.run("open('made', 'w').write('first')")
    (workspace / "mine").write_text("2")
    (workspace / "made.pem").write_text("secret")
    async with opened(workspace, view) as session:
        code = "print(open('made').read(), open('mine').read(), repr(open('made.pem').read()))"
        assert await said(session, code) == "first 2 ''"
        await session.run("open('mine', 'a').write(', seen')")
    assert merge_view(workspace, view).conflicts == ()
    assert contents(workspace) == {"made": "first", "mine": "2, seen", "made.pem": "secret"}


async def test_a_view_may_be_looked_at_without_being_changed(workspace: Path, view: Path) -> None:
    async with opened(workspace, view) as session:
        await session.run("open('made', 'w').write('first')")
    async with opened(workspace, view, writable=False) as session:
        code = "print(open('made').read())\ntry: open('made', 'w')\nexcept OSError as e: print(e.strerror)"
        assert await said(session, code) == "first\nRead-only file system"


async def test_secrets_read_as_empty_and_what_is_protected_cannot_be_written(workspace: Path, view: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / "deep").mkdir()
    for name in (".env", "deep/key.pem", "AGENTS.md", ".git/config"):
        (workspace / name).write_text("as it was")
    (workspace / "other").hardlink_to(workspace / ".env")
    before = contents(workspace)
    code = """
import os, shutil
def attempt(f, *given):
    try: f(*given)
    except OSError as e: return e.strerror
    return 'done'
print([open(n).read() for n in ('.env', 'deep/key.pem', 'other')])
for n in ('AGENTS.md', '.git/config', '.git/hooks/pre-commit'): print(attempt(open, n, 'w'))
for n in ('AGENTS.md', '.env', 'deep/key.pem'): print(attempt(os.remove, n), attempt(os.rename, n, 'x'))
print(attempt(os.rename, '.git', 'x'), attempt(os.rename, 'deep', 'deeper'), attempt(shutil.rmtree, 'deep'))
"""
    async with opened(workspace, view) as session:
        told = (await said(session, code)).split("\n")
    busy = "Device or resource busy"
    assert told == [
        "['', '', '']",
        *["Read-only file system"] * 3,
        *[f"{busy} {busy}"] * 3,
        f"{busy} Invalid cross-device link {busy}",
    ]
    assert merge_view(workspace, view).applied == ()
    assert contents(workspace) == before


async def test_a_session_with_a_view_is_as_shut_in_as_any(workspace: Path, view: Path) -> None:
    async with opened(workspace, view) as session:
        assert await find_holes(session) == []
        told = await said(session, "print(open('/proc/self/mountinfo').read())")
    (line,) = (line for line in told.splitlines() if " overlay " in line)
    assert {"rw", "nosuid", "nodev"} <= set(line.split()[5].split(","))
    assert str(view) not in told


@pytest.mark.parametrize("through_a_view", [True, False])
async def test_the_power_that_mounts_a_view_is_given_up_before_any_code_runs(
    workspace: Path, view: Path, through_a_view: bool
) -> None:
    session = await JAILED.open(Spec(workspace=workspace, view=view if through_a_view else None))
    try:
        guest = cast("GuestSession", session).slot.guest
        assert guest is not None
        usual = sum(1 << number for number in CAPABILITIES)
        init = capabilities(pid_of(cast("int", guest.body.fd)))
        # For the views of forks it can have that power again; nothing it starts can.
        assert init == {"CapEff": usual, "CapPrm": usual | 1 << WRITES_ANY, "CapBnd": usual}
    finally:
        await session.close()


async def test_a_session_that_may_write_nothing_cannot_have_that_power_again(workspace: Path) -> None:
    session = await JAILED.open(Spec(workspace=workspace, writable=False))
    try:
        guest = cast("GuestSession", session).slot.guest
        assert guest is not None
        assert len({*capabilities(pid_of(cast("int", guest.body.fd))).values()}) == 1
    finally:
        await session.close()


def capabilities(process: int) -> dict[str, int]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    sets = (line.split(":") for line in lines if line.startswith(("CapEff", "CapPrm", "CapBnd")))
    return {name: int(number, 16) for name, number in sets}


async def test_a_secret_that_is_added_meanwhile_is_hidden_at_once(workspace: Path, view: Path) -> None:
    (workspace / "deep").mkdir()
    (workspace / "deep" / "old.pem").write_text("secret")
    async with opened(workspace, view) as session:
        for name in (".env", "deep/new.pem"):
            (workspace / name).write_text("secret")
        assert await said(session, "print([open(n).read() for n in ('.env', 'deep/new.pem')])") == "['', '']"


async def test_what_the_user_adds_while_a_cell_runs_is_never_taken_for_the_sessions(
    workspace: Path, view: Path
) -> None:
    async with opened(workspace, view) as session:
        outcome = await session.run("open('AGENTS.md', 'w').write('obey me')")
        (workspace / "AGENTS.md").write_text("the user's")
        assert (await session.run("1 + 1")).notices == ()
    assert outcome.status == "ok"
    assert [left.path for left in merge_view(workspace, view).left_out] == ["AGENTS.md"]
    assert (workspace / "AGENTS.md").read_text() == "the user's"


async def test_git_works_inside_and_its_commits_can_be_brought_over(workspace: Path, view: Path) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=workspace, capture_output=True, text=True, check=True)
        return done.stdout

    (workspace / "file").write_text("1\n")
    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@example.org")
    git("config", "user.name", "A")
    git("add", ".")
    git("commit", "-qm", "one")
    code = """
import subprocess
def git(*words): print(subprocess.run(['git', *words], capture_output=True, text=True).stdout.strip())
git('status', '--short')
open('file', 'w').write('2\\n')
git('status', '--short')
git('commit', '-qam', 'two')
git('log', '--format=%s')
"""
    async with opened(workspace, view) as session:
        assert (await said(session, code)).split() == ["M", "file", "two", "one"]
        assert git("log", "--format=%s") == "one\n"
    brought = merge_view(workspace, view)
    assert (brought.conflicts, brought.left_out) == ((), ())
    assert git("log", "--format=%s") == "two\none\n"
    assert git("status", "--short") == ""
    assert git("fsck", "--strict") == ""


async def test_files_are_renamed_and_folders_of_the_workspace_are_moved_by_copying(workspace: Path, view: Path) -> None:
    (workspace / "folder" / "in").mkdir(parents=True)
    (workspace / "folder" / "in" / "file").write_text("x")
    (workspace / "old").write_text("old")
    code = """
import os, shutil
os.rename('old', 'new')
try: os.rename('folder', 'moved')
except OSError as e: print(e.strerror)
shutil.move('folder', 'moved')
os.mkdir('own'); os.rename('own', 'owned')
print(sorted(os.listdir('.')), os.listdir('moved/in'))
"""
    async with opened(workspace, view) as session:
        assert await said(session, code) == ("Invalid cross-device link\n['moved', 'new', 'owned'] ['file']")
    merge_view(workspace, view)
    assert contents(workspace) == {"moved/in/file": "x", "new": "old"}
    assert names(workspace) == ["moved", "new", "owned"]


async def test_a_folder_that_is_removed_and_made_again_is_a_new_one(workspace: Path, view: Path) -> None:
    (workspace / "folder" / "in").mkdir(parents=True)
    (workspace / "folder" / "in" / "old").write_text("old")
    (workspace / "folder" / "old").write_text("old")
    code = """
import os, shutil
shutil.rmtree('folder'); os.makedirs('folder/in'); open('folder/in/new', 'w').write('new')
try: os.setxattr('folder/in', 'user.overlay.opaque', b'y')
except OSError: pass
print(os.listdir('folder'), os.listdir('folder/in'))
"""
    async with opened(workspace, view) as session:
        assert await said(session, code) == "['in'] ['new']"
    assert merge_view(workspace, view).applied == (
        Change("folder/in/new", "added"),
        Change("folder/in/old", "removed"),
        Change("folder/old", "removed"),
    )
    assert contents(workspace) == {"folder/in/new": "new"}


async def test_part_of_a_large_file_is_written_and_mapped(workspace: Path, view: Path) -> None:
    (workspace / "large").write_bytes(b"a" * (32 << 20))
    code = """
import mmap
with open('large', 'r+b') as file:
    file.seek(1 << 20); file.write(b'B'); file.flush()
    held = mmap.mmap(file.fileno(), 0)
    held[2 << 20] = ord('C'); held.flush()
    print(held[(1 << 20) - 1:(1 << 20) + 2], len(held))
with open('holes', 'wb') as file:
    file.truncate(1 << 30); file.seek(1 << 29); file.write(b'x')
"""
    async with opened(workspace, view) as session:
        assert await said(session, code) == f"b'aBa' {32 << 20}"
        assert (workspace / "large").read_bytes() == b"a" * (32 << 20)
    merge_view(workspace, view)
    data = (workspace / "large").read_bytes()
    assert (len(data), data.count(b"a"), data[1 << 20], data[2 << 20]) == (32 << 20, (32 << 20) - 2, 66, 67)
    made = (workspace / "holes").stat()
    assert (made.st_size, made.st_blocks < 1000) == (1 << 30, True)


async def test_variables_are_undone_and_of_files_it_is_said_that_they_are_not(workspace: Path, view: Path) -> None:
    async with opened(workspace, view) as session:
        outcome = await session.run("x = [1]; open('made', 'w').write('1')")
        assert outcome.notices == (NO_FILES,)
        await session.run("x.append(2); open('made', 'w').write('2')")
        await session.undo()
        assert await said(session, "print(x, open('made').read())") == "[1] 2"
        await session.undo(to=0)  # a session begun anew, in the same view
        assert await said(session, "print('x' in globals(), open('made').read())") == "False 2"
        await session.run("open('made', 'w').write('3')")
    assert not (workspace / "made").exists()


async def test_what_was_undone_to_the_start_still_writes_when_it_is_redone(workspace: Path, view: Path) -> None:
    (workspace / "old").write_text("old")
    async with opened(workspace, view) as session:
        await session.run("x = [1]; open('made', 'w').write('1')")
        await session.undo(to=0)
        await session.redo()
        code = "open('old', 'a').write(', new'); open('made', 'a').write('2')\nprint(x, open('old').read(), open('made').read())"
        assert await said(session, code) == "[1] old, new 12"


async def test_a_session_knows_what_is_its_own_and_what_is_a_secret(workspace: Path, view: Path) -> None:
    look = "print([open(n).read() for n in ('.env', 'key.pem')])"
    async with opened(workspace, view) as session:
        await session.run("open('.env', 'w').write('its own')")
        for name in (".env", "key.pem"):
            (workspace / name).write_text("secret")
        assert await said(session, look) == "['its own', '']"
        await session.undo(to=0)
        assert await said(session, look) == "['its own', '']"


async def test_a_branch_of_a_session_with_a_view_shares_it(workspace: Path, view: Path) -> None:
    async with opened(workspace, view) as session:
        await session.run("x = [1]; open('made', 'w').write('1')")
        branch = await session.fork()
        code = "try: open('made', 'w')\nexcept OSError as e: print(x, e.strerror)"
        assert await said(branch, code) == "[1] Read-only file system"
        await branch.close()
        await session.run("open('made', 'w').write('2')")
    merge_view(workspace, view)
    assert contents(workspace) == {"made": "2"}


async def test_a_session_that_was_killed_leaves_its_view(workspace: Path, view: Path) -> None:
    async with opened(workspace, view) as session:
        outcome = await session.run("import os; open('made', 'w').write('x'); os._exit(1)")
        assert (outcome.status, outcome.rolled_back) == ("killed", True)
        assert await said(session, "print(open('made').read()); open('more', 'w').close()") == "x"
    assert [change.path for change in merge_view(workspace, view).applied] == ["made", "more"]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("workspace/in", "must lie outside of the workspace"),
        (".", "must lie outside of the workspace"),
        ("missing", "is not a folder; create it first"),
        ("full", "must be empty, or hold the view of an earlier session"),
        ("taken", "another session is using the view"),
    ],
)
async def test_a_folder_that_cannot_be_a_view_is_refused(
    workspace: Path, tmp_path: Path, where: str, words: str
) -> None:
    for name in ("workspace/in", "full/of", "taken"):
        (tmp_path / name).mkdir(parents=True)
    async with opened(workspace, tmp_path / "taken"):
        with pytest.raises(SandboxUnavailable, match=words):
            await JAILED.open(Spec(workspace=workspace, view=tmp_path / where))


@AS_ROOT
async def test_a_workspace_with_another_file_system_in_it_has_no_view(workspace: Path, view: Path) -> None:
    place = workspace / "an other"
    place.mkdir()
    call("mount", "-t", "tmpfs", "x", str(place))
    try:
        with pytest.raises(SandboxUnavailable, match="an other is a mount point"):
            await JAILED.open(Spec(workspace=workspace, view=view))
    finally:
        call("umount", str(place))


@AS_ROOT
async def test_a_file_system_that_cannot_hold_a_view_is_named(workspace: Path, tmp_path: Path) -> None:
    layers = [tmp_path / name for name in ("lower", "upper", "work", "merged")]
    for folder in layers:
        folder.mkdir()
    lower, upper, work, merged = layers
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    call("mount", "-t", "overlay", "-o", options, "x", str(merged))
    (merged / "view").mkdir()
    try:
        with pytest.raises(SandboxUnavailable, match="lies on overlayfs, which cannot hold one; choose"):
            await JAILED.open(Spec(workspace=workspace, view=merged / "view"))
    finally:
        call("umount", str(merged))


@pytest.mark.parametrize("name", ["landlock", "unsafe-local"])
async def test_who_has_no_views_says_so(workspace: Path, view: Path, name: str) -> None:
    provider = provider_named(name)
    assert not provider.capabilities.files_view
    with pytest.raises(NotSupported, match="cannot give a session a private view"):
        await provider.open(Spec(workspace=workspace, view=view))


async def test_where_the_kernel_has_none_it_is_said_in_one_line(workspace: Path, view: Path) -> None:
    provider = Namespaces(pool=0)
    await provider.probe()
    assert provider.capabilities.files_view
    provider._launcher().views = False  # pyright: ignore[reportPrivateUsage]
    assert not provider.capabilities.files_view
    with pytest.raises(SandboxUnavailable) as refused:
        await provider.open(Spec(workspace=workspace, view=view))
    assert str(refused.value) == NO_VIEWS


@AS_ROOT
async def test_what_is_brought_over_belongs_to_the_workspaces_owner(workspace: Path, view: Path) -> None:
    os.chown(workspace, 4321, 4322)
    (workspace / "roots").write_text("root's")
    (workspace / "closed").mkdir()
    (workspace / "closed" / "file").write_text("1")
    for path in ("closed", "closed/file"):
        os.chown(workspace / path, 4321, 4322)
    (workspace / "closed").chmod(0o555)
    code = """
open('made', 'w').write('x'); open('closed/file', 'w').write('2')
try: open('roots', 'a')
except OSError as e: print(e.strerror)
"""
    async with opened(workspace, view) as session:
        assert await said(session, code) == "Permission denied"
    merge_view(workspace, view)
    assert owners(workspace) == {"made": (4321, 4322), "roots": (0, 0), "closed": (4321, 4322), "file": (4321, 4322)}
    assert (workspace / "closed").stat().st_mode & 0o777 == 0o555


AS_USER = """
import anyio, json, os, tempfile
from pathlib import Path
from typing import cast
from pinfold.sandbox import Spec, views
from pinfold.sandbox.providers.namespaces import Namespaces
async def main():
    with tempfile.TemporaryDirectory() as folder:
        workspace, view = Path(folder, 'workspace'), Path(folder, 'view')
        (workspace / 'closed').mkdir(parents=True); view.mkdir()
        (workspace / 'closed' / 'old').write_text('old'); (workspace / 'closed').chmod(0o555)
        (workspace / '.env').write_text('secret')
        session = await Namespaces().open(Spec(workspace=workspace, view=view))
        outcome = await session.run('''
import os
open('closed/old', 'w').write('new'); os.mkdir('shut'); open('shut/in', 'w').write('in')
os.chmod('shut/in', 0); os.chmod('shut', 0); print(repr(open('.env').read()))
''')
        seen = sorted(os.listdir(workspace))
        await session.close()
        brought = views.merge_view(workspace, view)
        shut = os.stat(workspace / 'shut').st_mode & 0o777
        (workspace / 'shut').chmod(0o700)
        print(json.dumps([outcome.stdout, seen, [c.path for c in brought.applied], len(brought.left_out),
            (workspace / 'closed' / 'old').read_text(), shut, os.stat(workspace / 'shut' / 'in').st_mode & 0o777]))
        views.discard(view)
        print(view.exists())
        (workspace / 'closed').chmod(0o755)
anyio.run(main)
"""


@AS_ROOT
def test_an_ordinary_user_has_views_as_well() -> None:
    done = as_user(AS_USER)
    assert done.returncode == 0, done
    told, gone = done.stdout.splitlines()
    assert json.loads(told) == ["''\n", [".env", "closed"], ["closed/old", "shut", "shut/in"], 0, "new", 0, 0]
    assert gone == "False"


async def test_a_view_is_thrown_away_with_all_that_is_in_it(workspace: Path, view: Path) -> None:
    async with opened(workspace, view) as session:
        await session.run("import os; os.makedirs('a/b'); os.chmod('a', 0); open('c', 'w').close()")
    discard(view)
    assert "view" not in names(view.parent)
    assert names(workspace) == []
    with pytest.raises(SandboxUnavailable, match="does not hold a session"):
        merge_view(workspace, view)
