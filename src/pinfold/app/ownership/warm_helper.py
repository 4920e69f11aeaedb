"""Start, find and stop the warm helper, which makes later commands start faster. It holds no session.

Its process group has two parts: a Python with Pinfold loaded, from which commands are forked (`front/cli/helper.py`), and
a sandbox launcher like that of `pinfold up` (`keep_launcher`). See docs/design/0005-one-owner.md.
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
"""The helper exits after this long without a command."""
POOL = 1
PROGRAM = "pinfold.front.cli.helper"
PRELOADED = (
    *("pinfold.front.cli.main", "pinfold.front.cli.commands.exec", "pinfold.app.session.operator_log"),
    *("pinfold.net.proxy", "pinfold.sandbox.providers.namespaces", "pinfold.tools.builtin"),
    *("pinfold.tools.registry", "anyio._backends._asyncio", "concurrent.futures.thread", "difflib"),
)
"""Modules that `pinfold exec` imports until its first cell has run."""
_PASSED = (
    *("HOME", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PYENV_ROOT"),
    *("PINFOLD_SANDBOX_PROVIDER", "PINFOLD_SANDBOX_PYTHON"),
)
_PASSED_STARTS = ("XDG_", "LC_", "PYTHON", "UV_", "LD_", "MALLOC_", "GLIBC_")
_ENDING_S = 5.0


class Helper(msgspec.Struct, frozen=True, kw_only=True):
    """A running warm helper."""

    pid: int
    mb: int
    """Memory in MB; shared pages are counted once."""


def start_helper(idle_s: float = IDLE_S) -> None:
    """Start a helper, unless one runs or the configuration forbids it. Ignores errors: it only saves time."""
    with suppress(PinfoldError, OSError):
        sandbox = load_config().config.sandbox
        if sys.platform != "linux" or sandbox.warm == "off" or not is_built_in(sandbox.provider):
            return
        if holder_of(private_dir(private_dir(state_dir()) / warm_dir().name)) is not None:
            return
        # The helper keeps nothing of this process: no terminal, working folder, file descriptor or key.
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
    """End the helper and wait for its end; False if none runs."""
    return end_holder(warm_dir(), "the warm helper", _ENDING_S)


def can_rehearse() -> bool:
    """True if a rehearsal, which ignores the user's settings, would use the kept launcher."""
    sandbox = load_config().config.sandbox
    return sandbox.provider in ("auto", "namespaces") and not sandbox.python and not sandbox.packages


def rehearsal_folder() -> AbstractContextManager[Path]:
    """Return an empty temporary folder. If the process is killed, `pinfold cleanup` removes it."""
    return folder("workspace")


def list_watched_files() -> list[str]:
    """Return the files whose change makes the helper outdated: its modules, user settings, cell environments."""
    loaded = [str(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    return [*loaded, str(config_dir() / "config.toml"), str(data_dir() / "environments")]


async def keep_launcher(on_ready: Callable[[], Awaitable[None]]) -> None:
    """Keep a launcher warm until cancelled. Returns if that is impossible or `pinfold up` keeps one."""
    name = load_config().config.sandbox.provider
    provider = provider_named("namespaces" if name == "auto" else name)
    if isinstance(provider, Warmable) and holder_of(up_dir()) is None:
        with suppress(SandboxUnavailable):
            await provider.keep_warm(warm_dir(), POOL, on_ready)


def _kilobytes(pid: int) -> int:
    """Return memory without library files, which the kernel can drop; all resident memory if smaps is unreadable."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 10
    return 0
