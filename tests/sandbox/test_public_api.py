"""What `pinfold.sandbox` offers: names, providers, sessions as a context."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pinfold.sandbox
from pinfold.sandbox import Limits, SandboxUnavailable, open_session, provider_named

pytestmark = [pytest.mark.integration, pytest.mark.installed]


def is_folder(path: Path | str) -> bool:
    return Path(path).is_dir()


def names_in(path: Path) -> list[str]:
    return [found.name for found in path.iterdir()]


def test_the_front_door_is_sorted_and_complete() -> None:
    names = pinfold.sandbox.__all__
    assert names == sorted(names)
    assert all(hasattr(pinfold.sandbox, name) for name in names)


def test_importing_the_room_loads_no_event_loop() -> None:
    program = "import sys, pinfold.sandbox; print([m for m in ('asyncio', 'anyio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is none to choose")
def test_auto_is_never_without_isolation() -> None:
    assert provider_named("auto").capabilities.isolated


def test_an_unknown_provider_is_named_with_the_nearest_known() -> None:
    with pytest.raises(SandboxUnavailable, match=r"no sandbox 'unsafe_local'; did you mean 'unsafe-local'\?.*auto"):
        provider_named("unsafe_local")


def test_unsafe_local_says_what_it_is() -> None:
    provider = provider_named("unsafe-local")
    assert not provider.capabilities.isolated
    assert provider.notice is not None
    assert "does not isolate" in provider.notice


async def test_a_session_without_a_workspace_gets_a_folder_that_is_gone_afterwards() -> None:
    async with open_session(sandbox="unsafe-local") as session:
        outcome = await session.run("import os; print(os.getcwd(), end='')")
        folder = Path(outcome.stdout)
        assert is_folder(folder)
    assert not is_folder(folder)


async def test_the_sandbox_is_also_taken_by_its_old_name() -> None:
    with pytest.raises(SandboxUnavailable, match="no-such-sandbox"):
        async with open_session(provider="no-such-sandbox"):
            pass


async def test_a_given_workspace_stays_and_holds_nothing_of_ours(tmp_path: Path) -> None:
    async with open_session(tmp_path, provider_named("unsafe-local")) as session:
        assert (await session.run("import os; os.getcwd()")).value == repr(str(tmp_path))
    assert names_in(tmp_path) == []


async def test_home_and_tmpdir_are_private_and_gone_afterwards(tmp_path: Path) -> None:
    async with open_session(tmp_path, "unsafe-local") as session:
        outcome = await session.run("import os; print(*sorted(os.environ), os.environ['HOME'])")
        *names, home = outcome.stdout.split()
        assert set(names) <= {"HOME", "LANG", "LC_CTYPE", "MPLBACKEND", "PATH", "TMPDIR"}
        assert is_folder(home)
        assert home != os.environ.get("HOME")
    assert not is_folder(home)


async def test_a_missing_workspace_is_said(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="missing' is not a folder; create it"):
        async with open_session(tmp_path / "missing", "unsafe-local"):
            pass


async def test_a_guest_that_cannot_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SandboxUnavailable, match="'/bin/false' did not start: it exited with code 1"):
        async with open_session(tmp_path, "unsafe-local"):
            pass


async def test_an_interpreter_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SandboxUnavailable, match="could not start '/nowhere/python'"):
        async with open_session(tmp_path, "unsafe-local"):
            pass


async def test_a_guest_that_never_says_hello_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    mute.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(mute))
    with pytest.raises(SandboxUnavailable, match=r"did not answer within 0.2 s"):
        async with open_session(tmp_path, "unsafe-local", limits=Limits(start_s=0.2)):
            pass
