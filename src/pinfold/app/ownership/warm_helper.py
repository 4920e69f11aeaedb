"""The warm helper, as other commands see it: started after the first one, asked for, ended. It holds no session.

It is two things in one group of processes: Python with Pinfold loaded, from which a command is forked (`front/cli/helper.py`),
and the launcher that `pinfold up` keeps as well, kept by `keep_launcher`. See docs/design/0005-one-owner.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec

from pinfold.app.config.layers import load_config
from pinfold.app.paths import config_dir, data_dir, private_dir, state_dir, up_dir, warm_dir
from pinfold.app.storage.session_store import end_holder, holder_of
from pinfold.events import PinfoldError
from pinfold.sandbox import SandboxUnavailable, is_built_in, provider_named
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.kernel.processes import descendants
from pinfold.sandbox.providers.launcher import Warmable

IDLE_S = 15 * 60.0
"""Without a command, after which it leaves."""
POOL = 1
PROGRAM = "pinfold.front.cli.helper"
PRELOADED = (
    *("pinfold.front.cli.main", "pinfold.front.cli.commands.exec", "pinfold.app.session.operator_log"),
    *("pinfold.net.proxy", "pinfold.sandbox.providers.namespaces", "pinfold.tools.builtin"),
    *("pinfold.tools.registry", "anyio._backends._asyncio", "concurrent.futures.thread", "difflib"),
)
"""What `pinfold exec` imports until its first cell has run."""
_PASSED = (
    *("HOME", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PYENV_ROOT"),
    *("PINFOLD_SANDBOX_PROVIDER", "PINFOLD_SANDBOX_PYTHON"),
)
_PASSED_STARTS = ("XDG_", "LC_", "PYTHON", "UV_", "LD_", "MALLOC_", "GLIBC_")
_ENDING_S = 5.0


class Helper(msgspec.Struct, frozen=True, kw_only=True):
    """One that runs."""

    pid: int
    mb: int
    """Of memory, shared pages counted once."""


def start_helper(idle_s: float = IDLE_S) -> None:
    """Unless one runs or the configuration says no. Never fails: without it commands only start slower."""
    with suppress(PinfoldError, OSError):
        sandbox = load_config().config.sandbox
        if sys.platform != "linux" or sandbox.warm == "off" or not is_built_in(sandbox.provider):
            return
        if holder_of(private_dir(private_dir(state_dir()) / warm_dir().name)) is not None:
            return
        # Nothing of ours is held: not the terminal, not the folder, no descriptor, none of the user's keys.
        subprocess.Popen(
            [sys.executable, "-P", "-m", PROGRAM, str(idle_s)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in os.environ if name in _PASSED or name.startswith(_PASSED_STARTS)},
            start_new_session=True,
        )


def running_helper() -> Helper | None:
    pid = holder_of(warm_dir())
    return Helper(pid=pid, mb=sum(map(_kilobytes, descendants(pid))) >> 10) if pid else None


def stop_helper() -> bool:
    """End it and wait until it has; False if none ran."""
    return end_holder(warm_dir(), "the warm helper", _ENDING_S)


def can_rehearse() -> bool:
    """Whether a session without the user's settings comes from the launcher that is kept."""
    sandbox = load_config().config.sandbox
    return sandbox.provider in ("auto", "namespaces") and not sandbox.python and not sandbox.packages


def rehearsal_folder() -> AbstractContextManager[Path]:
    """Empty, and removed at the end; should that not come, `pinfold cleanup` finds it."""
    return folder("workspace")


def list_watched_files() -> list[str]:
    """If any of these was changed, the helper is out of date: its program, the user's settings, the environments of cells."""
    loaded = [str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    return [*loaded, str(config_dir() / "config.toml"), str(data_dir() / "environments")]


async def keep_launcher(on_ready: Callable[[], Awaitable[None]]) -> None:
    """Until cancelled. Returns where none can be kept, or `pinfold up` keeps one."""
    name = load_config().config.sandbox.provider
    provider = provider_named("namespaces" if name == "auto" else name)
    if isinstance(provider, Warmable) and holder_of(up_dir()) is None:
        with suppress(SandboxUnavailable):
            await provider.keep_warm(warm_dir(), POOL, on_ready)


def _kilobytes(pid: int) -> int:
    """Without the files of libraries, which the kernel may drop; all it has mapped where we may not look closely."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 10
    return 0
