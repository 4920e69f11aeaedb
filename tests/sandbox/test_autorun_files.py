"""Nothing is planted that a program of the user's would obey by itself. Every attack is run without the guard too, as control.

What is planted is a harmless `touch` of a file in the test's own folder; git is run by the test, as the user would.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.sandbox.test_file_guard import QUIET, git, keeping, repository

from pinfold.sandbox import Mount, Outcome, Session, Spec, provider_named
from pinfold.sandbox.guards import named_files
from pinfold.sandbox.guards.named_files import read_environment
from pinfold.sandbox.guards.new_names import Names
from pinfold.sandbox.guards.ports import Mounts
from pinfold.sandbox.providers.landlock import landlock_abi

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is what obeys"),
]
LEVELS = [
    "namespaces",
    pytest.param("landlock", marks=pytest.mark.skipif(landlock_abi() == 0, reason="no Landlock here")),
]


@asynccontextmanager
async def opened(level: str, workspace: Path) -> AsyncGenerator[Session]:
    session = await provider_named(level).open(Spec(workspace=workspace))
    try:
        yield session
    finally:
        await session.close()


async def ran(session: Session, code: str) -> Outcome:
    outcome = await session.run(code, timeout_s=20)
    assert outcome.status == "ok", outcome
    return outcome


def user_runs_git(folder: Path) -> None:
    subprocess.run(["git", "status"], cwd=folder, env=QUIET, capture_output=True, check=False)


def nested(canary: Path) -> str:
    """A repository in a folder, whose config runs a command, known to the one above it as a gitlink."""
    return (
        "import os, subprocess\n"
        f"os.environ.update({ {k: v for k, v in QUIET.items() if k != 'PATH'}!r})\n"
        "run = lambda *a, d='.': subprocess.run(['git', *a], cwd=d, check=True, capture_output=True)\n"
        "os.makedirs('deep/sub'); run('init', '-q', d='deep/sub')\n"
        "run('commit', '-q', '--allow-empty', '-m', 'x', d='deep/sub')\n"
        "run('-c', 'advice.addEmbeddedRepo=false', 'add', 'deep/sub')\n"
        f"run('config', 'core.fsmonitor', 'touch {canary}; false', d='deep/sub')\n"
        "open('result.txt', 'w').write('42')\n"
    )


def bare(canary: Path) -> str:
    """The shape of a git folder at the top of the workspace."""
    return (
        "import os\nos.makedirs('objects'); os.makedirs('refs/heads')\n"
        "open('HEAD', 'w').write('ref: refs/heads/main\\n')\n"
        "open('config', 'w').write(f'[core]\\n\\tbare = false\\n\\trepositoryformatversion = 0\\n\\tworktree = {os.getcwd()}\\n')\n"
        f"open('config', 'a').write('\\tfsmonitor = touch {canary}; false\\n')\n"
    )


def unguarded(code: str, workspace: Path) -> None:
    subprocess.run([sys.executable, "-c", code], cwd=workspace, check=True, capture_output=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("attack", [nested, bare])
async def test_git_runs_nothing_of_a_repository_that_a_cell_made(
    attack: Callable[[Path], str], level: str, workspace: Path, tmp_path: Path
) -> None:
    canary, code = tmp_path / "canary", attack(tmp_path / "canary")
    if attack is nested:
        repository(workspace)
    control = tmp_path / "control"
    shutil.copytree(workspace, control)
    unguarded(code, control)
    user_runs_git(control)
    assert canary.exists(), "the attack itself does not work"
    canary.unlink()
    async with opened(level, workspace) as session:
        outcome = await ran(session, code)
        user_runs_git(workspace)
        assert not canary.exists()
        gitdir = "deep/sub/.git/" if attack is nested else ""
        assert any(line.startswith(f"{gitdir}config ") for line in outcome.notices), outcome
        again = await ran(session, f"open('{gitdir}config', 'a').write('[core]\\n\\tfsmonitor = x\\n')")
        assert again.notices == (f"{gitdir}config held what git would run; that has been taken out",)
    user_runs_git(workspace)
    assert not canary.exists()
    if attack is nested:
        assert git(workspace / "deep" / "sub", "log", "--format=%s") == "x\n"


FIGHT = """
import os, time
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                open(f'.git/c{n}', 'w').write('../evil')
                os.rename(f'.git/c{n}', '.git/commondir')
            except OSError: pass
"""


@pytest.mark.parametrize("level", LEVELS)
async def test_processes_that_fight_over_a_guarded_file_are_ended_and_lose(
    level: str, workspace: Path, tmp_path: Path
) -> None:
    repository(workspace)
    canary = tmp_path / "canary"
    evil = repository(workspace / "evil") / ".git"
    git(workspace / "evil", "config", "core.fsmonitor", f"touch {canary}; false")
    shutil.copytree(evil, tmp_path / "control" / "evil")
    git(tmp_path / "control", "init", "-q")
    (tmp_path / "control" / ".git" / "commondir").write_text("../evil")
    user_runs_git(tmp_path / "control")
    assert canary.exists(), "the attack itself does not work"
    canary.unlink()
    async with opened(level, workspace) as session:
        outcome = await session.run(FIGHT, timeout_s=20)
        with anyio.fail_after(60):  # at the latest when the watch has seen enough of it
            while not any("guarded" in line for line in (*outcome.notices, outcome.error or "")):
                await anyio.sleep(0.05)
                outcome = await session.run("1", timeout_s=20)
        assert not (workspace / ".git" / "commondir").exists()
        assert (await ran(session, "print('still here')")).stdout == "still here\n"
    assert not (workspace / ".git" / "commondir").exists()
    user_runs_git(workspace)
    assert not canary.exists()


@pytest.mark.parametrize("level", LEVELS)
async def test_what_is_left_running_when_the_session_ends_plants_nothing(level: str, workspace: Path) -> None:
    repository(workspace)
    session = await provider_named(level).open(Spec(workspace=workspace))
    try:
        await session.run(FIGHT, timeout_s=20)
    finally:
        await session.close()
    assert not (workspace / ".git" / "commondir").exists()
    assert session.lost_files == ()  # type: ignore[attr-defined]
    with keeping(workspace):  # nothing is left to plant it again
        assert not (workspace / ".git" / "commondir").exists()


PLANT = """
import os
for name in NAMES:
    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
    open(name, 'a').write('planted')
"""
OBEYED = [
    ".vscode/tasks.json",
    "sub/.vscode/settings.json",
    "a.code-workspace",
    ".idea/workspace.xml",
    ".devcontainer/devcontainer.json",
    "x/.exrc",
    ".dir-locals.el",
    ".gdbinit",
    "pkg/.cargo/config.toml",
    "sitecustomize.py",
    ".venv/bin/python3",
    ".venv/lib/python3.11/site-packages/evil.pth",
    ".venv/lib/python3.11/site-packages/sitecustomize.py",
]
TOLD = {
    ".github/workflows/x.yml": "GitHub Actions",
    ".envrc": "direnv",
    "web/.husky/pre-commit": "husky",
    ".gitmodules": "git",
}


@pytest.mark.parametrize("level", LEVELS)
async def test_what_a_program_would_obey_is_gone_after_the_cell_or_told(level: str, workspace: Path) -> None:
    home = workspace / ".venv"
    (home / "bin").mkdir(parents=True)
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (home / "bin" / "activate").write_text("mine")
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode" / "settings.json").write_text("{}")
    code = PLANT.replace("NAMES", repr([*OBEYED, *TOLD, "notes/.envy"]))
    session = await provider_named(level).open(Spec(workspace=workspace))
    try:
        # The folder is there already; in `namespaces` it is read-only, so what is in it cannot be tried with the others.
        outcome = await session.run(code.replace("open(", "try: open(") + "    except OSError: pass\n")
        assert [name for name in OBEYED if (workspace / name).exists()] == []
        assert (workspace / ".vscode" / "settings.json").read_text() == "{}"
        assert (workspace / "notes" / ".envy").exists()
        said = "\n".join(outcome.notices)
        missing = [name for name in OBEYED if name.partition("/")[0] not in said and level == "landlock"]
        assert missing == []
        assert ".gdbinit was made and has been removed: the debugger would obey it" in outcome.notices
        for name, program in TOLD.items():
            assert (workspace / name).exists()
            assert f"{program} obeys it" in said
    finally:
        await session.close()
    (last,) = [line for line in session.parting if "other programs act on" in line]  # type: ignore[attr-defined]
    assert all(program in last for program in TOLD.values())
    assert (home / "bin" / "activate").read_text() == "mine"


def environment(workspace: Path) -> Path:
    """The user's: its path files import a module, one that is not there, and one of the project's."""
    home = workspace / ".venv"
    site = home / "lib" / "python3.11" / "site-packages"
    (site / "__pycache__").mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "lib64").symlink_to("lib")
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (home / "bin" / "black").write_text("mine")
    (site / "start.pth").write_text("import os, start_hook; start_hook.go()\nimport absent\n")
    (site / "project.pth").write_text(f"# a comment\n{workspace / 'src'}\n")
    (site / "start_hook.py").write_text("mine")
    return site


ENVIRONMENT = """
import os, shutil
site = '.venv/lib/python3.11/site-packages'
def put(path, text='planted'):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, 'w').write(text)
    except OSError: pass  # read-only, in namespaces
put(f'{site}/start_hook.py'); put(f'{site}/__pycache__/start_hook.cpython-311.pyc')
put(f'{site}/absent/__init__.py'); put('src/start_hook.py'); put('src/other.py'); put(f'{site}/os.py')
put('.venv/bin/ls'); put('.venv/bin/black'); put('.venv/bin/mine')
"""
PLANTED = [
    "lib/python3.11/site-packages/__pycache__/start_hook.cpython-311.pyc",
    "lib/python3.11/site-packages/absent",
    "bin/ls",
    "../src/start_hook.py",
]


@pytest.mark.parametrize("level", LEVELS)
async def test_what_path_files_import_and_what_stands_in_for_a_command_is_not_planted(
    level: str, workspace: Path
) -> None:
    site = environment(workspace)
    async with opened(level, workspace) as session:
        said = "\n".join((await ran(session, ENVIRONMENT)).notices)
    assert [name for name in PLANTED if (workspace / ".venv" / name).exists()] == []
    assert (site / "start_hook.py").read_text() == "mine"
    assert "bin/ls was made and has been removed: the shell would obey it" in said
    assert ".venv/bin/black was made or changed" in said
    assert ".venv/bin/mine was made or changed" in said
    assert all(path.exists() for path in (workspace / "src" / "other.py", site / "os.py"))


def test_a_link_to_what_no_path_can_be_hides_nothing_of_an_environment(workspace: Path) -> None:
    site = environment(workspace)
    with keeping(workspace) as keeper:
        keeper.before()
        (workspace / ".venv" / "lib" / "python").symlink_to("a" * 300)
        (workspace / ".venv" / "library").symlink_to("a" * 300)
        (site / "start_hook.py").write_text("planted")
        (site / "absent.py").write_text("planted")
        keeper.settle(Names(is_lost=True))
        assert not (site / "absent.py").exists()
    assert read_environment(str(workspace), ".venv").imported[".venv/lib/python3.11/site-packages"] >= {"start_hook"}


def test_an_environments_library_is_not_led_elsewhere(workspace: Path) -> None:
    for path_file in environment(workspace).glob("*.pth"):
        path_file.unlink()
    library = workspace / ".venv" / "lib"
    for is_seen in (True, False):
        with keeping(workspace) as keeper:
            keeper.before()
            library.rename(workspace / ".venv" / "old")
            (workspace / "cache").mkdir()
            library.symlink_to("../cache")
            said = keeper.after() if is_seen else keeper.settle(Names(is_lost=True))
            assert ".venv/lib was made and has been removed: Python would obey it" in said
            assert (workspace / ".venv" / "lib64").is_symlink()
        (workspace / ".venv" / "old").rename(library)
        (workspace / "cache").rmdir()


def test_bytecode_that_a_session_wrote_is_removed_when_it_ends(workspace: Path) -> None:
    cache = workspace / "pkg" / "__pycache__"
    cache.mkdir(parents=True)
    for name in ("mine", "changed"):
        (cache / f"{name}.cpython-311.pyc").write_text(name)
    with keeping(workspace) as keeper:
        keeper.before()
        (cache / "changed.cpython-311.pyc").write_text("planted")
        (cache / "new.cpython-311.pyc").write_text("planted")
        assert keeper.after() == ()
        assert len(list(cache.iterdir())) == 3
        assert keeper.settle() == ()
    assert [path.name for path in cache.iterdir()] == ["mine.cpython-311.pyc"]


def test_what_is_obeyed_behind_a_link_is_not_planted(workspace: Path) -> None:
    (workspace / "own").mkdir()
    (workspace / ".cargo").symlink_to("own")
    with keeping(workspace) as keeper:
        keeper.before()
        (workspace / "own" / "config.toml").write_text("planted")
        (workspace / "own" / "notes").write_text("fine")
        (workspace / "cache").mkdir()
        (workspace / ".hg").symlink_to("cache")
        assert keeper.after() == (
            "own/config.toml was made and has been removed",
            ".hg was made and has been removed: Mercurial would obey it",
        )
        assert keeper.settle() == ()
    assert [path.name for path in (workspace / "own").iterdir()] == ["notes"]
    assert (workspace / ".cargo").is_symlink()


def test_what_gits_config_names_is_not_planted_though_it_was_not_there(workspace: Path) -> None:
    repository(workspace)
    git(workspace, "config", "filter.x.clean", "sh tools/clean --fast=1/2")
    git(workspace, "config", "alias.x", "!./go.sh")
    git(workspace, "config", "include.path", "../team.gitconfig")
    with keeping(workspace) as keeper:
        keeper.before()
        (workspace / "tools").mkdir()
        for name in ("tools/clean", "tools/other", "go.sh", "team.gitconfig", "sh"):
            (workspace / name).write_text("planted")
        assert len(keeper.after()) == 3
    assert sorted(path.name for path in workspace.iterdir()) == [".git", "notes.txt", "sh", "tools"]
    assert [path.name for path in (workspace / "tools").iterdir()] == ["other"]


def test_a_command_added_to_a_rebase_left_half_done_is_told(workspace: Path) -> None:
    repository(workspace)
    todo = workspace / ".git" / "rebase-merge" / "git-rebase-todo"
    todo.parent.mkdir()
    todo.write_text("pick 1234 x\nexec make test\n")
    for line, is_told in (("drop 1235 exec is a word\n", False), ("  x touch ran\n", True)):
        with keeping(workspace) as keeper:
            keeper.before()
            todo.write_text(todo.read_text() + line)
            keeper.after()
            keeper.settle()
            assert ("git-rebase-todo (git)" in "".join(keeper.final_notices())) is is_told


async def test_an_empty_table_plants_everything(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above: it is the table that holds."""
    monkeypatch.setattr(named_files, "TABLE", ())
    site = environment(workspace)
    async with opened("namespaces", workspace) as session:
        await ran(session, PLANT.replace("NAMES", repr(OBEYED)) + ENVIRONMENT)
    assert all((workspace / name).exists() for name in OBEYED)
    assert all((workspace / ".venv" / name).exists() for name in PLANTED)
    assert (site / "start_hook.py").read_text() == "planted"


def test_between_cells_a_change_is_the_users_if_nothing_of_the_session_runs(workspace: Path) -> None:
    for has_leftovers in (True, False):
        with keeping(workspace, leftovers=lambda answer=has_leftovers: answer) as keeper:
            keeper.before()
            keeper.after()
            (workspace / ".vscode").mkdir()
            (workspace / ".vscode" / "tasks.json").write_text("{}")
            keeper.on_names_changed()
            assert (workspace / ".vscode").exists() is not has_leftovers
            keeper.before()
            (said,) = keeper.after() or ("",)
            assert ("between cells" in said) is has_leftovers
            assert bool(keeper.final_notices()) is not has_leftovers


@pytest.mark.parametrize("names", [None, Names(is_partial=True)])
def test_what_nobody_saw_is_looked_for_when_the_session_ends(names: Names | None, workspace: Path) -> None:
    for number in range(300):  # more folders than are watched
        (workspace / "many" / str(number)).mkdir(parents=True)
    with keeping(workspace) as keeper:
        keeper.before(names)
        (workspace / "many" / "200" / ".vscode").mkdir()
        (workspace / "many" / "200" / ".vscode" / "tasks.json").write_text("{}")
        assert keeper.after(names) == ()
        assert (workspace / "many" / "200" / ".vscode").exists()
        assert keeper.settle(names) == ("many/200/.vscode was made and has been removed: VS Code would obey it",)
    assert not (workspace / "many" / "200" / ".vscode").exists()


async def test_in_a_large_workspace_the_history_of_the_files_tells_names(workspace: Path) -> None:
    for number in range(300):
        (workspace / "many" / str(number)).mkdir(parents=True)
    async with opened("namespaces", workspace) as session:
        await ran(session, "1")
        outcome = await ran(
            session,
            "import os; os.makedirs('many/7/.vscode'); open('many/7/.vscode/tasks.json', 'w').close()\n"
            "open('many/8/.env', 'w').write('a secret')",
        )
        assert outcome.notices == ("many/7/.vscode was made and has been removed: VS Code would obey it",)
        (workspace / "many" / "9" / "new").write_text("mine")
        (workspace / "many" / "9" / "new").rename(workspace / "many" / "9" / ".env")
        outcome = await ran(session, "print([open(f'many/{n}/.env').read() for n in (8, 9)])")
        assert outcome.stdout == "['', '']\n"
    assert (workspace / "many" / "9" / ".env").read_text() == "mine"


async def test_in_landlock_no_cell_changes_where_a_push_goes(workspace: Path) -> None:
    if landlock_abi() == 0:
        pytest.skip("no Landlock here")
    repository(workspace)
    git(workspace, "remote", "add", "origin", "https://example.org/mine.git")
    git(workspace, "config", "branch.main.remote", "origin")
    mine = (workspace / ".git" / "config").read_text()
    attacks = [
        ("remote", "set-url", "origin", "https://example.net/theirs"),
        ("remote", "set-url", "--add", "origin", "https://example.net/theirs"),
        ("remote", "set-url", "--push", "origin", "https://example.net/theirs"),
        ("config", "url.https://example.net/.insteadOf", "https://example.org/"),
        ("config", "branch.main.pushRemote", "https://example.net/theirs"),
    ]
    async with opened("landlock", workspace) as session:
        for attack in attacks:
            outcome = await ran(session, f"import subprocess; subprocess.run(['git', *{attack!r}], check=True)")
            assert outcome.notices == (".git/config was changed and has been put back",), attack
            assert (workspace / ".git" / "config").read_text() == mine
        outcome = await ran(session, "subprocess.run('git branch -q --track topic origin/main || git branch topic; "
                            "git config branch.topic.remote origin', shell=True, check=True)")  # fmt: skip
        assert outcome.notices == ()
        git(workspace, "remote", "set-url", "origin", "https://example.org/moved")  # the user, between cells
        assert (await ran(session, "1")).notices == ()
    assert git(workspace, "remote", "get-url", "origin") == "https://example.org/moved\n"


def test_a_cell_that_is_still_writing_meets_no_error_and_its_files_are_gone_when_it_has_ended(workspace: Path) -> None:
    with keeping(workspace) as keeper:
        keeper.before()
        (workspace / ".vscode").mkdir()
        keeper.on_names_changed()
        (workspace / ".vscode" / "tasks.json").write_text("{}")
        keeper.on_names_changed()
        assert keeper.after() == (".vscode was made and has been removed: VS Code would obey it",)
    assert not (workspace / ".vscode").exists()


def test_git_may_go_on_making_a_repository_or_a_submodule_until_the_cell_ends(workspace: Path) -> None:
    """What git obeys is judged at once, and made read-only when the cell has ended."""
    mounted: list[Mounts] = []
    repository(workspace)
    with keeping(workspace, sent=mounted) as keeper:
        keeper.before()
        (workspace / "dep").mkdir()
        pointer = workspace / "dep" / ".git"
        for _ in range(2):
            pointer.write_text("gitdir: ../.git\n")
            keeper.on_names_changed()
            assert mounted == []
        keeper.after()
    assert [path for one in mounted for path in one.protected] == [str(pointer)]
    other = workspace.parent / "other"
    mounted.clear()
    other.mkdir()
    with keeping(other, sent=mounted) as keeper:
        keeper.before()
        hooks = other / ".git" / "hooks"
        hooks.mkdir(parents=True)
        (other / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        keeper.on_names_changed()
        assert mounted == []
        (hooks / "pre-commit").write_text("#!/bin/sh\n")
        keeper.on_names_changed()
        assert not (hooks / "pre-commit").exists()
        keeper.after()
    assert str(other / ".git") in [path for one in mounted for path in one.pinned]


async def test_no_undo_and_no_redo_brings_back_what_was_planted(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = "open('.gdbinit', 'w').write('planted'); open('kept', 'w').write('1')"
    remove = "import os; os.remove('.gdbinit'); os.remove('kept')"
    async with opened("namespaces", workspace) as session:
        await ran(session, "1")
        with monkeypatch.context() as without_the_table:
            without_the_table.setattr(named_files, "TABLE", ())
            await ran(session, plant)  # so a version of the files holds it
            await ran(session, remove)
            await session.undo()
            assert (workspace / ".gdbinit").exists()
            await session.redo()
        await session.undo()
        assert (workspace / "kept").exists()
        assert not (workspace / ".gdbinit").exists()
        await session.undo()
        await session.redo()
        assert (workspace / "kept").exists()
        assert not (workspace / ".gdbinit").exists()
        await ran(session, "1")
    assert not (workspace / ".gdbinit").exists()


@pytest.mark.parametrize("level", LEVELS)
async def test_nothing_is_planted_in_another_folder_that_a_session_may_change(
    level: str, workspace: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    spec = Spec(workspace=workspace, mounts=(Mount(path=other, writable=True),))
    session = await provider_named(level).open(spec)
    try:
        code = f"open({str(other / '.gdbinit')!r}, 'w').close(); open({str(other / 'mine')!r}, 'w').close()"
        outcome = await ran(session, code)
    finally:
        await session.close()
    assert [path.name for path in other.iterdir()] == ["mine"]
    assert f"{other}/.gdbinit was made and has been removed: the debugger would obey it" in outcome.notices


async def test_what_is_closed_around_is_found_and_removed(workspace: Path) -> None:
    code = (
        "import os\nos.makedirs('shut/in/.vscode'); open('shut/in/.vscode/tasks.json', 'w').close()\n"
        "os.chmod('shut/in', 0); os.chmod('shut', 0o500)"
    )
    async with opened("namespaces", workspace) as session:
        await ran(session, code)
    assert not (workspace / "shut" / "in" / ".vscode").exists()


async def test_secrets_in_the_objects_of_git_are_said(workspace: Path) -> None:
    repository(workspace)
    (workspace / ".env").write_text("secret")
    async with opened("namespaces", workspace) as session:
        assert not any("Git keeps" in line for line in (await ran(session, "1")).notices)
    git(workspace, "add", "-f", ".env")
    async with opened("namespaces", workspace) as session:
        assert any("Git keeps" in line and ".env" in line for line in (await ran(session, "1")).notices)
