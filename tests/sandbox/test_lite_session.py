"""What a lite session has of the host's besides its workspace, and what is put back in it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinfold.sandbox import Mount, SandboxUnavailable, Session, Spec
from pinfold.sandbox.kernel.folders import find_abandoned, hold_lock
from pinfold.sandbox.providers.landlock import Landlock, landlock_abi

pytestmark = [pytest.mark.safety, pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")]
LITE = Landlock()
WRITTEN = """
def written(path):
    try:
        open(path, 'w').write('x')
    except OSError as error:
        return type(error).__name__
    return 'written'
"""


@asynccontextmanager
async def opened(spec: Spec, provider: Landlock = LITE) -> AsyncGenerator[Session]:
    session = await provider.open(spec)
    try:
        yield session
    finally:
        await session.close()


async def test_mounts_are_read_at_their_own_path_and_written_only_where_allowed(
    workspace: Path, tmp_path: Path
) -> None:
    kinds = {"closed": None, "shown": False, "changed": True}
    for name in kinds:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    mounts = tuple(Mount(path=tmp_path / name, writable=yes) for name, yes in kinds.items() if yes is not None)
    async with opened(Spec(workspace=workspace, mounts=mounts)) as session:
        await session.run(WRITTEN)
        reading = f"open('{tmp_path}/{{}}/file').read()"
        assert (await session.run(reading.format("shown"))).value == "'shown'"
        assert (await session.run(reading.format("changed"))).value == "'changed'"
        refused = await session.run(reading.format("closed"))
        assert "PermissionError" in (refused.error or "")
        assert (await session.run(f"written('{tmp_path}/shown/file')")).value == "'PermissionError'"
        assert (await session.run(f"written('{tmp_path}/changed/file')")).value == "'written'"
        mode = f"import os; os.chmod('{tmp_path}/{{}}/file', 0o600)"
        assert (await session.run(mode.format("changed"))).status == "ok"
        assert (await session.run(mode.format("shown"))).status == "error"
    assert (tmp_path / "shown" / "file").read_text() == "shown"
    assert (tmp_path / "changed" / "file").read_text() == "x"


async def test_a_mount_of_the_systems_or_with_secrets_is_refused(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="cannot be mounted: it belongs to the system"):
        await LITE.open(Spec(workspace=workspace, mounts=(Mount(path=Path("/etc")),)))
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "id_rsa").write_text("secret")
    mounted = Spec(workspace=workspace, mounts=(Mount(path=tmp_path / "given"),))
    with pytest.raises(SandboxUnavailable, match="id_rsa would be readable"):
        await LITE.open(mounted)
    async with opened(mounted, Landlock(allow_unmasked=True)) as session:
        assert (await session.run(f"open('{tmp_path}/given/id_rsa').read()")).value == "'secret'"


async def test_packages_put_beside_a_live_session_can_be_imported_and_not_changed(
    workspace: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    async with opened(Spec(workspace=workspace, site=site)) as session:
        assert "ModuleNotFoundError" in ((await session.run("import brought_along")).error or "")
        package = site / "1"
        package.mkdir()
        (package / "brought_along.py").write_text("VALUE = 7")
        assert (await session.run("import brought_along; brought_along.VALUE")).value == "7"
        await session.run(WRITTEN)
        assert (await session.run(f"written('{package}/brought_along.py')")).value == "'PermissionError'"


@pytest.mark.parametrize("place", ["workspace", "mount"])
async def test_what_git_obeys_is_put_back_after_the_cell(place: str, workspace: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    top = workspace if place == "workspace" else given
    hooks = top / ".git" / "hooks"
    hooks.mkdir(parents=True)
    given.mkdir(exist_ok=True)
    (top / ".git" / "config").write_text("[core]\n")
    (top / "plain").write_text("before")
    async with opened(Spec(workspace=workspace, mounts=(Mount(path=given, writable=True),))) as session:
        code = (
            f"open('{hooks}/pre-commit', 'w').write('echo')\n"
            f"open('{top}/.git/config', 'a').write('fsmonitor = x')\n"
            f"open('{top}/plain', 'w').write('after')"
        )
        outcome = await session.run(code)
    shown = "" if place == "workspace" else f"{given}/"
    assert sorted(outcome.notices) == [
        f"{shown}.git/config was changed and has been put back",
        f"{shown}.git/hooks was changed and has been put back",
    ]
    assert list(hooks.iterdir()) == []
    assert (top / ".git" / "config").read_text() == "[core]\n"
    assert (top / "plain").read_text() == "after"


async def test_instructions_for_the_agent_are_removed_if_a_cell_made_them(workspace: Path) -> None:
    async with opened(Spec(workspace=workspace)) as session:
        outcome = await session.run("open('AGENTS.md', 'w').write('obey'); open('other.md', 'w').write('')")
    assert outcome.notices == ("AGENTS.md was made and has been removed",)
    assert {path.name for path in workspace.iterdir()} == {"other.md"}  # noqa: ASYNC240 - a small folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's programs are dangerous with the bit")
async def test_a_program_with_a_set_id_bit_is_not_let_be_written(workspace: Path) -> None:
    program = workspace / "program"
    program.write_text("")
    program.chmod(0o4755)
    with pytest.raises(SandboxUnavailable, match=r"program runs as its owner, .*chmod ug-s"):
        await LITE.open(Spec(workspace=workspace))
    async with opened(Spec(workspace=workspace, writable=False)) as session:
        assert (await session.run("open('program').read()")).value == "''"


async def test_a_sessions_private_folder_is_kept_while_it_lives_and_left_to_cleanup_after_a_kill(
    workspace: Path,
) -> None:
    async with opened(Spec(workspace=workspace)) as session:
        outcome = await session.run("import os; print(os.path.dirname(os.environ['TMPDIR']))")
        assert is_left_behind(Path(outcome.stdout.strip())) is False
    left = workspace / "pinfold-lite.0123abcd"
    left.mkdir()
    lock = hold_lock(left)
    assert is_left_behind(left) is False
    os.close(lock)  # as the kernel does when its maker is killed
    assert is_left_behind(left) is True


def is_left_behind(folder: Path) -> bool:
    return folder in find_abandoned(folder.parent)


async def test_data_libraries_work_that_ask_for_the_limits_of_their_control_group(
    data_python: Path, workspace: Path
) -> None:
    async with opened(Spec(workspace=workspace), Landlock(data_python)) as session:
        asked = await session.run("import duckdb; duckdb.connect().execute('select 41 + 1').fetchall()")
        assert (asked.status, asked.value) == ("ok", "[(42,)]"), asked
        counted = await session.run("import polars; polars.DataFrame({'a': [1, 1]})['a'].sum()")
        assert (counted.status, counted.value) == ("ok", "2"), counted
