"""Guarded files: git works inside and clean outside, what would be obeyed later is as it was, whatever a cell does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from pinfold.app.session.observations import observation
from pinfold.sandbox import Outcome, Session, Spec, provider_named
from pinfold.sandbox.guards.file_guard import FileGuard
from pinfold.sandbox.guards.gitdir import read_tracked_paths
from pinfold.sandbox.guards.guarded_paths import find_guarded_paths
from pinfold.sandbox.guards.ports import Mounts

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is what is guarded"),
]
QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "PATH": os.environ["PATH"],
}


def git(folder: Path, *args: str) -> str:
    command = ["git", "-c", "protocol.file.allow=always", *args]
    return subprocess.run(command, cwd=folder, env=QUIET, check=True, capture_output=True, text=True).stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "notes.txt").write_text("one\n")
    git(folder, "add", "notes.txt")
    git(folder, "commit", "-q", "-m", "one")
    return folder


@contextmanager
def keeping(
    workspace: Path,
    *,
    mounted: bool = True,
    sent: list[Mounts] | None = None,
    leftovers: Callable[[], bool] = lambda: True,
) -> Generator[FileGuard]:
    guards = find_guarded_paths(workspace, str(workspace), steers=True)
    remount = sent.append if sent is not None else None
    keeper = FileGuard(str(workspace), guards, mounted=mounted, remount=remount, leftovers=leftovers)
    try:
        yield keeper
    finally:
        keeper.close()


@asynccontextmanager
async def opened(workspace: Path) -> AsyncGenerator[Session]:
    session = await provider_named("namespaces").open(Spec(workspace=workspace))
    try:
        yield session
    finally:
        await session.close()


ATTEMPT = (
    "import os, subprocess\n"
    "def attempt(f):\n    try: f()\n    except OSError as e: return e.strerror\n    return 'done'\n"
)
COMMIT = (
    "import os, subprocess\n"
    "os.environ.update({env!r})\n"
    "open('made.txt', 'w').write('x')\n"
    "done = subprocess.run('git add made.txt && git commit -q -m two && git log --oneline | wc -l && git status --porcelain',"
    " shell=True, capture_output=True, text=True)\nprint(done.stdout.strip(), done.stderr)"
)
INNER = {key: value for key, value in QUIET.items() if key != "PATH"}


async def test_a_session_commits_and_can_change_neither_hooks_nor_config(workspace: Path) -> None:
    repository(workspace)
    async with opened(workspace) as session:
        outcome = await session.run(COMMIT.format(env=INNER))
        assert outcome.stdout.strip() == "2", outcome
        assert git(workspace, "status", "--porcelain") == ""
        outcome = await session.run(
            ATTEMPT + "for n in ('config', 'hooks/pre-commit'): print(attempt(lambda: open('.git/' + n, 'w')))\n"
            "print(attempt(lambda: os.rename('.git/config', '.git/x')), attempt(lambda: os.rename('.git/hooks', '.git/y')))"
        )
        assert outcome.stdout.split("\n")[:3] == [
            "Read-only file system",
            "Read-only file system",
            "Device or resource busy Device or resource busy",
        ]
        assert outcome.notices == ()
    assert git(workspace, "log", "--format=%s") == "two\none\n"
    assert git(workspace, "status", "--porcelain") == ""
    assert git(workspace, "fsck", "--no-progress") == ""


async def test_what_a_cell_makes_to_be_obeyed_is_gone_after_it_and_said(workspace: Path) -> None:
    repository(workspace)
    code = (
        "import os\nopen('AGENTS.md', 'w').write('obey')\nos.mkdir('.agents')\n"
        "open('.git/commondir', 'w').write('../evil')\nos.symlink('/etc/passwd', '.git/COMMIT_EDITMSG.x')\n"
        "os.remove('.git/logs/HEAD'); os.symlink('/tmp/profile', '.git/logs/HEAD')\n"
        "open('result.txt', 'w').write('42')"
    )
    async with opened(workspace) as session:
        outcome = await session.run(code)
    assert outcome.status == "ok", outcome
    assert set(outcome.notices) == {
        "AGENTS.md was made and has been removed",
        ".agents was made and has been removed",
        ".git/commondir was made and has been removed",
        ".git/COMMIT_EDITMSG.x was made a link and has been removed",
        ".git/logs/HEAD was made a link and has been removed",
    }
    assert "[AGENTS.md was made and has been removed]" in observation(outcome)
    assert git(workspace, "status", "--porcelain") == "?? result.txt\n"


async def test_what_leads_git_astray_is_gone_while_the_cell_still_runs(workspace: Path) -> None:
    repository(workspace)
    code = "import os\nopen('.git/commondir', 'w').write('../evil')\nwhile os.path.exists('.git/commondir'): pass"
    async with opened(workspace) as session:
        outcome = await session.run(code, timeout_s=10)
    assert (outcome.status, outcome.notices) == ("ok", (".git/commondir was made and has been removed",))


async def test_the_git_folder_cannot_be_put_aside_for_another(workspace: Path) -> None:
    repository(workspace)
    code = (
        ATTEMPT + "print(attempt(lambda: os.rename('.git', 'aside')))\n"
        "attempt(lambda: os.makedirs('.git')); attempt(lambda: open('.git/config', 'w').write('[core]\\nfsmonitor = evil'))"
    )
    async with opened(workspace) as session:
        outcome = await session.run(code)
    assert outcome.stdout.strip() == "Device or resource busy"
    assert "evil" not in (workspace / ".git" / "config").read_text()
    assert git(workspace, "status", "--porcelain") == ""


async def test_another_name_of_a_guarded_file_is_no_way_to_it(workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("mine")
    (workspace / "CLAUDE.md").write_text("mine")
    (workspace / "other").hardlink_to(workspace / "AGENTS.md")
    async with opened(workspace) as session:
        outcome = await session.run("open('other', 'w').write('theirs')")
        assert outcome.notices[-1] == "AGENTS.md was changed and has been put back"
        (workspace / "CLAUDE.md").write_text("mine, later")  # in place, while its mount holds
        assert (await session.run("1")).notices == ()
    assert (workspace / "AGENTS.md").read_text() == "mine"
    assert (workspace / "CLAUDE.md").read_text() == "mine, later"


def made_worktree(workspace: Path, tmp_path: Path) -> None:
    repository(tmp_path / "main")
    git(tmp_path / "main", "worktree", "add", "-q", str(workspace / "tree"))


def made_inner_worktree(workspace: Path, tmp_path: Path) -> None:
    repository(workspace)
    (workspace / ".gitignore").write_text("tree\n")
    git(workspace, "worktree", "add", "-q", str(workspace / "tree"))


def made_linked_hooks(workspace: Path, tmp_path: Path) -> None:
    repository(workspace)
    shutil.rmtree(workspace / ".git" / "hooks")
    (workspace / "tools").mkdir()
    (workspace / "tools" / "pre-commit").write_text("#!/bin/sh\n")
    (workspace / ".git" / "hooks").symlink_to("../tools")


def made_hooks_path(workspace: Path, tmp_path: Path) -> None:
    repository(workspace)
    (workspace / "tools").mkdir()
    (workspace / "tools" / "pre-commit").write_text("#!/bin/sh\n")
    git(workspace, "config", "core.hooksPath", "tools")


def made_submodule(workspace: Path, tmp_path: Path) -> None:
    repository(tmp_path / "library")
    repository(workspace)
    git(workspace, "submodule", "--quiet", "add", str(tmp_path / "library"), "tree")


CASES = {
    "worktree": (made_worktree, ["tree/.git"]),
    "inner worktree": (
        made_inner_worktree,
        ["tree/.git", ".git/worktrees/tree/commondir", ".git/worktrees/tree/gitdir", ".git/config"],
    ),
    "linked hooks": (made_linked_hooks, ["tools/pre-commit", "tools/new", ".git/hooks/new"]),
    "hooksPath": (made_hooks_path, ["tools/pre-commit", "tools/new", ".git/config"]),
    "submodule": (made_submodule, ["tree/.git", ".git/modules/tree/config", ".git/modules/tree/hooks/pre-commit"]),
}


@pytest.mark.parametrize("case", CASES)
async def test_git_sees_nothing_of_us_and_obeys_only_the_user(case: str, workspace: Path, tmp_path: Path) -> None:
    make, shut = CASES[case]
    make(workspace, tmp_path)
    before, names = statuses(workspace), everything(workspace)
    async with opened(workspace) as session:
        assert await said(session, f"print([attempt(lambda: open(n, 'w')) for n in {shut!r}])") == str(
            ["Read-only file system"] * len(shut)
        )
        assert await said(session, "print(attempt(lambda: open('free', 'w')))\nos.remove('free')") == "done"
        assert statuses(workspace) == before
    assert statuses(workspace) == before
    assert everything(workspace) == names


def statuses(workspace: Path) -> list[str]:
    folders = [folder for folder in (workspace, workspace / "tree") if (folder / ".git").exists()]
    return [git(folder, "status", "--porcelain", "--ignored") for folder in folders]


def everything(workspace: Path) -> list[str]:
    return sorted(str(path) for path in workspace.rglob("*"))


async def said(session: Session, code: str) -> str:
    outcome: Outcome = await session.run(ATTEMPT + code)
    return (outcome.stdout + (outcome.error or "") + "".join(outcome.notices)).strip()


def crowd(workspace: Path) -> None:
    """More repositories than are watched."""
    for number in range(100):
        (workspace / f"r{number}" / ".git" / "refs").mkdir(parents=True)


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def deep(path: Path) -> None:
    here = path
    here.mkdir()
    at = os.open(path, os.O_RDONLY)
    for _ in range(450):  # deeper than any path can be long
        os.mkdir("d" * 10, dir_fd=at)
        below = os.open("d" * 10, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def closed(path: Path) -> None:
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "file").touch()
    (path / "inner").chmod(0)
    path.chmod(0)


def hard_link(path: Path) -> None:
    path.hardlink_to(path.parent / ".env")


@pytest.mark.parametrize("make", [link, deep, closed, hard_link, os.mkfifo, Path.touch, Path.mkdir])
@pytest.mark.parametrize("name", ["AGENTS.md", ".agents"])
def test_whatever_is_made_under_a_guarded_name_is_removed(name: str, make: object, workspace: Path) -> None:
    assert callable(make)
    (workspace / ".env").write_text("secret")
    with keeping(workspace) as keeper:
        keeper.before()
        make(workspace / name)
        assert keeper.after() == (f"{name} was made and has been removed",)
        assert [path.name for path in workspace.iterdir()] == [".env"]
        keeper.before()
        assert keeper.after() == ()
    assert (workspace / ".env").read_text() == "secret"


def pipe(path: Path) -> int:
    """With nothing in it, and someone who may write yet."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def zeros(path: Path) -> None:
    path.write_bytes(b"gitdir: a\0b\n[include]\n\tpath = a\0b\n[core]\n\thooksPath = c\0d\n")


def slow(path: Path) -> None:
    """For a pattern that tries every way to share out what is between two words."""
    path.write_bytes(b"\n" * (1 << 17) + b"[core]\n\tbare =" + b" " * (1 << 17) + b'"\n')


@pytest.mark.parametrize("make", [Path.mkdir, pipe, zeros, slow])
@pytest.mark.parametrize(
    "name", [".gitattributes", ".git", ".git/config", ".git/rebase-merge/git-rebase-todo", "bare/config.worktree"]
)
def test_no_shape_of_what_is_looked_into_keeps_the_guard_from_its_work(
    name: str, make: Callable[[Path], int | None], workspace: Path
) -> None:
    with keeping(workspace) as keeper, ExitStack() as at_end:

        def plant() -> None:
            if (held := make(workspace / name)) is not None:
                at_end.callback(os.close, held)

        keeper.before()
        for gitdir in [".git", "bare"] if name != ".git" else []:
            for part in ("objects", "refs", "rebase-merge"):
                (workspace / gitdir / part).mkdir(parents=True)
            (workspace / gitdir / "HEAD").write_text("ref: refs/heads/main\n")
        plant()
        (workspace / ".vscode").mkdir()
        assert ".vscode was made and has been removed: VS Code would obey it" in keeper.after()
        if not os.path.lexists(workspace / name):
            plant()
        keeper.settle()
    find_guarded_paths(workspace, str(workspace), steers=True)


def test_an_index_that_is_no_file_tells_of_no_secrets(tmp_path: Path) -> None:
    for make in (Path.mkdir, os.mkfifo):
        make(tmp_path / "index")
        assert read_tracked_paths(str(tmp_path)) == []
        (tmp_path / "index").rename(tmp_path / make.__name__)


@pytest.mark.parametrize("watched", [True, False])
def test_a_link_put_in_the_way_is_never_followed(watched: bool, workspace: Path, tmp_path: Path) -> None:
    repository(workspace)
    if not watched:
        crowd(workspace)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "alternates").write_text("the user's own")
    with keeping(workspace) as keeper:
        assert keeper.sees_all is watched
        keeper.before()
        shutil.rmtree(workspace / ".git" / "objects" / "info")
        (workspace / ".git" / "objects" / "info").symlink_to(elsewhere)
        assert ".git/objects/info/alternates was made and has been removed" in keeper.after()
    assert (elsewhere / "alternates").read_text() == "the user's own"
    assert not (workspace / ".git" / "objects" / "info").exists()


def test_without_mounts_every_change_of_a_cell_is_undone_and_the_users_between_cells_stay(workspace: Path) -> None:
    repository(workspace)
    (workspace / ".agents").mkdir()
    (workspace / ".agents" / "a.md").write_text("mine")
    (workspace / "AGENTS.md").write_text("mine")
    (workspace / "AGENTS.md").chmod(0o640)
    (workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    with keeping(workspace, mounted=False) as keeper:
        keeper.before()
        (workspace / "AGENTS.md").write_text("theirs")
        (workspace / "CLAUDE.md").unlink()
        shutil.rmtree(workspace / ".agents")
        (workspace / ".git" / "hooks" / "pre-commit").write_text("evil")
        assert set(keeper.after()) == {
            "AGENTS.md was changed and has been put back",
            "CLAUDE.md was removed and has been put back",
            ".agents was removed and has been put back",
            ".git/hooks was changed and has been put back",
        }
        assert (workspace / "AGENTS.md").read_text() == "mine"
        assert (workspace / "AGENTS.md").stat().st_mode & 0o777 == 0o640
        assert (workspace / "CLAUDE.md").readlink() == Path("AGENTS.md")
        assert (workspace / ".agents" / "a.md").read_text() == "mine"
        assert not (workspace / ".git" / "hooks" / "pre-commit").exists()
        (workspace / "AGENTS.md").write_text("mine, later")
        keeper.before()
        assert keeper.after() == ()
        assert (workspace / "AGENTS.md").read_text() == "mine, later"


def test_what_the_user_replaces_is_guarded_again_and_theirs_to_keep(workspace: Path) -> None:
    repository(workspace)
    (workspace / ".env").write_text("secret")
    sent: list[Mounts] = []
    with keeping(workspace, sent=sent) as keeper:
        (workspace / "new").write_text("another secret")
        (workspace / "new").rename(workspace / ".env")
        (workspace / "key.pem").write_text("a third")
        git(workspace, "config", "core.pager", "less")
        keeper.on_names_changed()
        mounts = sent.pop()
        files = {Path(path).name: inode for path, _, inode in mounts.masked}
        assert files == {name: (workspace / name).stat().st_ino for name in (".env", "key.pem")}
        assert str(workspace / ".git" / "config") in mounts.protected
        keeper.before()
        assert keeper.after() == ()
        assert sent == []
    assert git(workspace, "config", "core.pager") == "less\n"


def test_while_a_cell_runs_plain_git_settings_pass_and_programs_do_not(workspace: Path) -> None:
    repository(workspace)
    with keeping(workspace) as keeper:
        keeper.before()
        git(workspace, "remote", "add", "origin", "https://example.org/x.git")
        assert keeper.after() == ()
        keeper.before()
        git(workspace, "config", "core.fsmonitor", "evil")
        assert keeper.after() == (".git/config was changed and has been put back",)
    assert git(workspace, "remote") == "origin\n"
    assert "evil" not in (workspace / ".git" / "config").read_text()


def test_between_cells_the_user_may_steer_and_nobody_leads_git_astray(workspace: Path) -> None:
    repository(workspace)
    with keeping(workspace) as keeper:
        keeper.before()
        assert keeper.after() == ()
        (workspace / "AGENTS.md").write_text("the user's")
        (workspace / ".git" / "commondir").write_text("../evil")
        git_config = (workspace / ".git" / "config").read_text()
        keeper.before()
        assert keeper.after() == (".git/commondir was made and has been removed, between cells",)
        keeper.before()
        assert keeper.after() == ()
    assert (workspace / "AGENTS.md").read_text() == "the user's"
    assert (workspace / ".git" / "config").read_text() == git_config


def test_the_user_works_with_git_while_a_cell_runs_and_nothing_is_touched(workspace: Path, tmp_path: Path) -> None:
    repository(workspace)
    git(tmp_path, "clone", "-q", "--bare", str(workspace), "origin.git")
    with keeping(workspace) as keeper:
        keeper.before()
        git(workspace, "remote", "add", "origin", str(tmp_path / "origin.git"))
        git(workspace, "checkout", "-q", "-b", "topic/one")
        (workspace / "notes.txt").write_text("two\n")
        git(workspace, "stash", "-q")
        keeper.on_names_changed()
        git(workspace, "stash", "pop", "-q")
        git(workspace, "commit", "-q", "-a", "-m", "two")
        git(workspace, "push", "-q", "-u", "origin", "topic/one")
        git(workspace, "worktree", "add", "-q", str(tmp_path / "tree"))
        keeper.on_names_changed()
        git(workspace, "rebase", "-q", "main")
        git(workspace, "gc", "-q")
        assert keeper.after() == ()
        keeper.before()
        assert keeper.after() == ()
    assert git(workspace, "status", "--porcelain", "--branch") == "## topic/one...origin/topic/one\n"
    assert git(tmp_path / "tree", "status", "--porcelain") == ""


def test_more_than_can_be_told_at_once_hides_nothing(workspace: Path) -> None:
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queued > 1 << 16:
        pytest.skip("the queue takes too long to fill")
    with keeping(workspace) as keeper:
        keeper.before()
        for number in range(queued // 2 + 10):
            os.close(os.open(workspace / str(number), os.O_CREAT | os.O_WRONLY))
        (workspace / "AGENTS.md").touch()
        assert keeper.after() == ("AGENTS.md was made and has been removed",)


def test_a_repository_made_inside_stays_without_what_it_would_run(workspace: Path) -> None:
    sent: list[Mounts] = []
    with keeping(workspace, sent=sent) as keeper:
        keeper.before()
        repository(workspace)
        assert keeper.after() == ()
        assert sent[0].pinned == [f"{workspace}/.git"]
        assert f"{workspace}/.git/config" in sent[0].protected
        assert git(workspace, "status", "--porcelain") == ""
    shutil.rmtree(workspace / ".git")
    with keeping(workspace) as keeper:
        keeper.before()
        repository(workspace)
        (workspace / ".git" / "hooks" / "pre-commit").write_text("evil")
        git(workspace, "config", "core.sshCommand", "evil")
        assert set(keeper.after()) == {
            ".git/config held what git would run; that has been taken out",
            ".git/hooks was made and has been removed",
        }


def test_where_nothing_can_be_watched_cell_ends_are_still_looked_at(workspace: Path) -> None:
    repository(workspace)
    crowd(workspace)
    with keeping(workspace) as keeper:
        assert not keeper.sees_all
        keeper.before()
        (workspace / "AGENTS.md").write_text("obey")
        (workspace / ".git" / "logs" / "x").symlink_to("/etc/passwd")
        assert len(keeper.after()) == 2
