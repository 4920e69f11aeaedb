"""Git checkpoints, with the real sandbox and real git: what they hold, what they never touch, and the way back."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pinfold import Agent
from pinfold.app import (
    CheckpointError,
    LiveSession,
    Options,
    RemoteSession,
    SessionStore,
    acquire,
    configure,
    open_session,
)
from pinfold.app.session.checkpoints import checkpoints_in, parse_changes
from pinfold.engine import CommandRefused, fold
from pinfold.events import ActionFinished, Configure, Entry, Execute, Interrupt, Noticed, new_action_id, new_session_id
from pinfold.sandbox import Mount

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=User", "-c", "user.email=user@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *args], cwd=folder, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.fixture
def repository(workspace: Path) -> Path:
    git(workspace, "init", "-q")
    (workspace / "a.txt").write_text("one\n")
    (workspace / ".gitignore").write_text("*.tmp\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "first")
    return workspace


@asynccontextmanager
async def opened(workspace: Path, **more: Any) -> AsyncGenerator[LiveSession]:
    options = Options(workspace=workspace, sandbox="namespaces", git_checkpoints=True)
    async with open_session(None, new_session_id(), replace(options, **more)) as live:
        yield live


async def ran(live: LiveSession, code: str) -> ActionFinished:
    execute = Execute(id=new_action_id(), code=code)
    with anyio.fail_after(60):
        async with live.subscribe(live.log.seq) as feed:
            await live.submit(execute)
            async for item in feed:
                if isinstance(item, Entry) and isinstance(item.event, ActionFinished):
                    await live.idle()
                    assert item.event.outcome == "ok", item.event
                    return item.event
    raise AssertionError("the feed ended")


def made(live: LiveSession) -> list[str]:
    return [one.message for one in checkpoints_in(live.log.read())]


def commit(live: LiveSession, number: int) -> str:
    return checkpoints_in(live.log.read())[number - 1].commit


def notices(live: LiveSession) -> list[str]:
    return [entry.event.text for entry in live.log.read() if isinstance(entry.event, Noticed)]


def files(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts]
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(found) if path.is_file()}


def users_own(gitdir: Path) -> dict[str, str]:
    """Hashes of what is the user's in a git folder."""
    places = [gitdir / "index", gitdir / "HEAD", gitdir / "config", gitdir / "packed-refs"]
    places += [path for name in ("refs/heads", "refs/tags", "logs") for path in (gitdir / name).rglob("*")]
    return {
        str(path.relative_to(gitdir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in places
        if path.is_file()
    }


async def test_a_cell_that_changed_files_is_followed_by_a_commit_and_another_one_by_none(repository: Path) -> None:
    async with opened(repository) as live:
        await ran(live, "x = 1")
        await ran(live, "open('b.txt', 'w').write('two')")
        await ran(live, "y = 2")
        await ran(live, "\nimport os\nos.remove('a.txt')")
        assert made(live) == ["Before cell 1", "Cell 2: open('b.txt', 'w').write('two')", "Cell 4: import os"]
        ref = f"refs/pinfold/checkpoints/{live.session}"
        first, second, third = (commit(live, number) for number in (1, 2, 3))
        assert git(repository, "rev-parse", ref).strip() == third
        parents = git(repository, "log", "--format=%H %an <%ae> %s", ref).splitlines()
        assert parents[:3] == [
            f"{third} Pinfold <pinfold@localhost> Cell 4: import os",
            f"{second} Pinfold <pinfold@localhost> Cell 2: open('b.txt', 'w').write('two')",
            f"{first} Pinfold <pinfold@localhost> Before cell 1",
        ]
        assert parents[3].endswith("User <user@example.org> first")
        assert f"Pinfold-Session: {live.session}" in git(repository, "log", "-1", "--format=%b", ref)
        assert git(repository, "diff", "--name-status", first, third) == "D\ta.txt\nA\tb.txt\n"
        assert git(repository, "fsck", "--strict") == ""


def staged(folder: Path) -> Path:
    (folder / "staged.txt").write_text("in the index\n")
    git(folder, "add", "staged.txt")
    (folder / "staged.txt").write_text("and changed again\n")
    (folder / "a.txt").write_text("not in the index\n")
    return folder / ".git"


def detached(folder: Path) -> Path:
    git(folder, "checkout", "-q", "--detach")
    return folder / ".git"


def without_commits(folder: Path) -> Path:
    git(folder, "checkout", "-q", "--orphan", "fresh")
    git(folder, "branch", "-D", "main")
    return folder / ".git"


def packed(folder: Path) -> Path:
    git(folder, "tag", "v1")
    git(folder, "pack-refs", "--all")
    git(folder, "gc", "-q")
    return folder / ".git"


@pytest.mark.parametrize("prepare", [staged, detached, without_commits, packed])
async def test_index_head_and_branches_stay_byte_for_byte(repository: Path, prepare: Callable[[Path], Path]) -> None:
    gitdir = prepare(repository)
    before, status = users_own(gitdir), git(repository, "status", "--porcelain")
    assert "index" in before
    before = users_own(gitdir)  # `status` may have refreshed the index
    present = files(repository)
    async with opened(repository) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        assert users_own(gitdir) == before
        await live.restore(1)
        assert users_own(gitdir) == before
    assert files(repository) == present
    assert git(repository, "status", "--porcelain") == status


async def test_a_worktree_has_its_checkpoints_in_the_repository_it_belongs_to(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", "-b", "side", str(other))
    gitdir = repository / ".git"
    before = users_own(gitdir), users_own(gitdir / "worktrees" / "other")
    async with opened(other, mounts=(Mount(path=gitdir, writable=True),)) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        assert len(made(live)) == 2, notices(live)
        assert git(repository, "show", f"{commit(live, 2)}:b.txt") == "two"
    assert (users_own(gitdir), users_own(gitdir / "worktrees" / "other")) == before


async def test_nothing_that_a_hostile_config_names_is_run(repository: Path) -> None:
    trap = repository / "trap.sh"
    trap.write_text('#!/bin/sh\necho "$0 $*" >> "$(dirname "$0")/sprung.tmp"\ncat\n')
    trap.chmod(0o755)
    hooks = repository / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-index-change", "pre-commit", "post-checkout"):
        (hooks / name).write_text(trap.read_text().replace("$0", str(trap)))
        (hooks / name).chmod(0o755)
    (repository / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    included = repository / "included"
    included.write_text(f"[core]\n\tfsmonitor = {trap}\n\tpager = {trap}\n\teditor = {trap}\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "hostile")
    for key, value in {
        "include.path": str(included),
        "core.hooksPath": str(hooks),
        "filter.evil.clean": str(trap),
        "filter.evil.smudge": str(trap),
        "filter.evil.required": "true",
        "diff.external": str(trap),
        "diff.evil.textconv": str(trap),
        "commit.gpgSign": "true",
        "gpg.program": str(trap),
        "core.worktree": "/tmp",
    }.items():
        git(repository, "config", key, value)
    async with opened(repository) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        assert "checkpoint 1" in await live.restore(1)
        assert len(made(live)) == 3, notices(live)
    assert not (repository / "sprung.tmp").exists()
    assert not (repository / "b.txt").exists()


async def test_masked_and_protected_files_are_in_no_checkpoint_and_no_restore_writes_them(repository: Path) -> None:
    (repository / "sub dir").mkdir()
    secrets = {".env": "KEY=1\n", "sub dir/key.pem": "pem\n", "sub dir/.env.local": "KEY=2\n", "AGENTS.md": "obey\n"}
    for name, text in secrets.items():
        (repository / name).write_text(text)
    os.link(repository / ".env", repository / "another name.txt")
    git(repository, "add", "-f", ".env")
    git(repository, "commit", "-qm", "a secret, as happens")
    async with opened(repository) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        listed = git(repository, "ls-tree", "-r", "--name-only", commit(live, 2)).splitlines()
        assert set(listed) == {".env", ".gitignore", "a.txt", "b.txt"}
        assert git(repository, "show", f"{commit(live, 2)}:.env") == "KEY=1\n"
        (repository / ".env").write_text("KEY=changed since\n")
        await live.restore(1)
    kept = {**secrets, ".env": "KEY=changed since\n", "another name.txt": "KEY=changed since\n"}
    assert files(repository) == {**kept, ".gitignore": "*.tmp\n", "a.txt": "one\n"}


async def test_restore_brings_files_modes_and_links_back_and_keeps_what_was_there(repository: Path) -> None:
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("a.txt")
    (repository / "deep" / "er").mkdir(parents=True)
    (repository / "deep" / "er" / "-odd\nna'me").write_text("odd\n")
    (repository / "kept.tmp").write_text("ignored\n")
    before = files(repository)
    change = """
import os, shutil
shutil.rmtree('deep'); os.remove('link'); os.chmod('run.sh', 0o644)
open('deep', 'w').write('a file now'); os.mkdir('link'); open('link/in', 'w').write('x')
os.makedirs('new/folder'); open('new/folder/f', 'w').write('x'); open('a.txt', 'w').write('changed')
"""
    async with opened(repository) as live:
        await ran(live, change)
        after = files(repository)
        await ran(live, "open('late.txt', 'w').write('late')")
        (repository / "a.txt").write_text("the user's own, in no checkpoint yet\n")
        words = await live.restore(1)
        assert files(repository) == before
        assert os.access(repository / "run.sh", os.X_OK)
        assert (repository / "link").readlink() == Path("a.txt")
        assert not (repository / "new").exists()
        assert words == "checkpoint 1 is restored, files changed: 8; what was there before is checkpoint 4"
        assert made(live)[3:] == ["Before checkpoint 1 was restored", "Checkpoint 1 restored"]
        await live.restore(4)
        assert files(repository) == {**after, "late.txt": "late", "a.txt": "the user's own, in no checkpoint yet\n"}
        assert await live.restore(4) == "the files are those of checkpoint 4 already"
        with pytest.raises(CheckpointError, match=r"there is no checkpoint 9 of .*; there are 1 to 6"):
            await live.restore(9)
        assert (await ran(live, "1 + 1")).value == "2"


async def test_what_no_checkpoint_holds_is_left_and_said(repository: Path) -> None:
    (repository / "data").write_text("small\n")
    async with opened(repository) as live:
        await ran(
            live, "import os\nos.remove('data'); os.remove('a.txt'); open('.gitignore', 'a').write('data\\na.txt\\n')"
        )
        await ran(live, "os.truncate(os.open('large', os.O_RDWR | os.O_CREAT), 200 << 20)")
        assert len(made(live)) == 2, "a file that large is in no checkpoint"
        (repository / "data").write_text("ignored now, and in no checkpoint\n")
        (repository / "a.txt").mkdir()
        (repository / "a.txt" / "inside").write_text("ignored as well\n")
        words = await live.restore(1)
        assert words.endswith("Left as they are, because no checkpoint holds what is there: a.txt, data")
    assert (repository / "data").read_text() == "ignored now, and in no checkpoint\n"
    assert (repository / "a.txt" / "inside").read_text() == "ignored as well\n"
    assert (repository / ".gitignore").read_text() == "*.tmp\n"
    assert (repository / "large").stat().st_size == 200 << 20


async def test_off_makes_no_more_and_on_goes_on(repository: Path) -> None:
    async with opened(repository) as live:
        await ran(live, "open('b.txt', 'w').write('1')")
        await live.submit(Configure(checkpoints=False))
        await ran(live, "open('b.txt', 'w').write('2')")
        assert len(made(live)) == 2
        await live.submit(Configure(checkpoints=True))
        await ran(live, "open('b.txt', 'w').write('3')")
        assert made(live)[2:] == ["Before cell 3", "Cell 3: open('b.txt', 'w').write('3')"]
        assert git(repository, "show", f"{commit(live, 3)}:b.txt") == "2"


async def test_without_a_repository_it_is_said_once_and_cells_run(workspace: Path) -> None:
    async with opened(workspace) as live:
        await ran(live, "open('b.txt', 'w').write('1')")
        await ran(live, "open('b.txt', 'w').write('2')")
        said = [text for text in notices(live) if "checkpoint" in text]
        assert len(said) == 1
        assert said[0].startswith("Git checkpoints are on, but none are made: the session sees no git repository")
        assert made(live) == []


async def test_a_session_that_breaks_its_index_loses_no_checkpoint(repository: Path) -> None:
    broken = "import glob\nopen('/tmp/.pinfold-checkpoints/index', 'w').write('not one')\nopen('b.txt', 'w').write('2')"
    async with opened(repository) as live:
        await ran(live, "x = 1")
        await ran(live, broken)
        assert len(made(live)) == 2, notices(live)
        lock = repository / ".git" / "refs" / "pinfold" / "checkpoints" / f"{live.session}.lock"
        lock.touch()  # as a crash would leave it
        await ran(live, "open('b.txt', 'w').write('3')")
        assert len(made(live)) == 3, notices(live)


async def test_a_nested_repository_is_left_alone(repository: Path) -> None:
    nested = repository / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "file").write_text("its own\n")
    async with opened(repository) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        assert len(made(live)) == 2, notices(live)
        await live.restore(1)
    assert (nested / "file").read_text() == "its own\n"


async def test_a_secret_that_can_be_read_is_not_put_into_the_history(repository: Path) -> None:
    (repository / ".Env.Local").write_text("KEY=1\n")
    (repository / "id_rsa.d").mkdir()
    (repository / "id_rsa.d" / "inside").write_text("KEY=2\n")
    async with opened(repository, sandbox="unsafe-local") as live:
        await ran(live, "open('b.txt', 'w').write('two'); open('.env', 'w').write('KEY=3')")
        listed = git(repository, "ls-tree", "-r", "--name-only", commit(live, 2)).splitlines()
    assert listed == [".gitignore", "a.txt", "b.txt"]


@pytest.mark.parametrize("sandbox", ["landlock", "unsafe-local"])
async def test_the_other_sandboxes_make_them_too(repository: Path, sandbox: str) -> None:
    async with opened(repository, sandbox=sandbox) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        await live.restore(1)
        assert len(made(live)) == 3, notices(live)
    assert not (repository / "b.txt").exists()


async def test_an_agent_makes_them_when_told_to(
    repository: Path, script: Callable[..., str], cell: Callable[..., dict[str, Any]]
) -> None:
    model = script(cell("open('b.txt', 'w').write('two')"), {"text": "done"})
    async with Agent(model=model, workspace=repository, git_checkpoints=True) as agent:
        await agent.run("write")
    assert git(repository, "show", f"refs/pinfold/checkpoints/{agent.session_id}:b.txt") == "two"


def test_the_command_line_turns_on_lists_and_restores(repository: Path, pinfold: Callable[..., Any]) -> None:
    assert pinfold("exec", "-s", "job", "-c", "open('b.txt', 'w').write('1')").code == 0
    assert "has no checkpoints; turn them on" in pinfold("checkpoint", "list", "-s", "job").err
    assert pinfold("checkpoint", "on", "-s", "job").code == 0
    assert pinfold("exec", "-s", "job", "-c", "open('b.txt', 'w').write('2')").code == 0
    rows = pinfold("checkpoint", "list", "-s", "job", "--json").events
    assert [row["message"] for row in rows] == ["Before cell 2", "Cell 2: open('b.txt', 'w').write('2')"]
    done = pinfold("checkpoint", "restore", "1", "-s", "job")
    assert (done.code, (repository / "b.txt").read_text()) == (0, "1"), done.err
    assert pinfold("checkpoint", "restore", "7", "-s", "job").code == 1
    assert pinfold("checkpoint", "off", "-s", "job").code == 0
    assert pinfold("exec", "-s", "job", "-c", "open('b.txt', 'w').write('3')").code == 0
    assert len(pinfold("checkpoint", "list", "-s", "job").out.splitlines()) == 3


async def test_another_process_restores_through_the_owner_and_not_under_a_running_cell(repository: Path) -> None:
    session = new_session_id()
    folder = SessionStore().folder_of(session)
    options = Options(workspace=repository, sandbox="namespaces", git_checkpoints=True)
    async with acquire(folder, session, options) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        remote = RemoteSession(session, folder)
        assert (await remote.restore(1)).startswith("checkpoint 1 is restored, files changed: 1;")
        assert "b.txt" not in files(repository)
        with pytest.raises(CommandRefused, match="there is no checkpoint 8"):
            await remote.restore(8)
        running = Execute(id=new_action_id(), code="while True: pass")
        await live.submit(running)
        with pytest.raises(CommandRefused, match="a cell or a turn is running"):
            await remote.restore(2)
        await live.submit(Interrupt(target=running.id))
        await live.idle()
        await configure(folder, session, Configure(checkpoints=False))
        await ran(live, "open('c.txt', 'w').write('three')")
        assert made(live)[-1] == "Checkpoint 1 restored"


async def test_the_model_is_told_that_files_were_brought_back(repository: Path) -> None:
    async with opened(repository) as live:
        await ran(live, "open('b.txt', 'w').write('two')")
        await live.restore(1)
        state = fold(live.log.read())
    assert state.notes == ("[The user restored the workspace files to checkpoint 1. Variables are as they were.]",)


@given(st.binary(max_size=300))
def test_whatever_git_is_made_to_print_is_taken_apart(raw: bytes) -> None:
    parse_changes(raw)
