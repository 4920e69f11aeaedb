"""Where the wheel that runs weights comes from: our own environment, or a folder made once for this user.

Wheels only, and only those whose hash is named beside this file. It is imported by the model's own process, never here.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess

import anyio

from pinfold.model.errors import RuntimeMissing
from pinfold.model.local.files import hold_lock, make_private
from pinfold.text import first_line

REQUIREMENTS = Path(__file__).with_name("xllamacpp.txt")
VERSION = REQUIREMENTS.read_text(encoding="utf-8").partition("==")[2].split()[0]
LIMIT_S = 900.0
_UNFINISHED = ".new-"
# What would lead uv elsewhere, or make it build.
_MISLEADING = (
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_CONSTRAINT",
    "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE",
    "UV_OVERRIDE",
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "VIRTUAL_ENV",
)


def place(folder: Path) -> Path:
    """Where it is, once it has been made; its name says for whom it is."""
    kind = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return folder / f"xllamacpp-{VERSION}-{os.uname().machine}{kind}"


async def runtime(folder: Path, uv: Path | None, notice: Callable[[str], None]) -> Path | None:
    """The folder to import it from, made if need be; None where ours has it. Raises RuntimeMissing."""
    if find_spec("xllamacpp") is not None:  # the extra `local` is installed beside us
        return None
    if (ready := place(folder)).exists():
        return ready
    if uv is None:
        raise RuntimeMissing("what runs local models is missing; install it: pinfold extras add local")
    try:
        make_private(folder)
        async with hold_lock(folder / ".lock") as held:
            if not ready.exists():
                notice("fetching llama.cpp (35 MB), once")
                await _install(uv, ready, held)
    except OSError as error:
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise RuntimeMissing(f"{error.filename or folder} cannot be used: {why}") from error
    return ready


async def _install(uv: Path, ready: Path, held: int) -> None:
    for stale in ready.parent.glob(f"{_UNFINISHED}*"):  # left by a process that was killed: we hold the lock
        shutil.rmtree(stale, ignore_errors=True)
    beside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=ready.parent))
    try:
        wheels_only = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirements", REQUIREMENTS]
        into = ["--python", sys.executable, "--target", beside / "site"]
        done = await _run([uv, "pip", "install", "--quiet", "--no-config", *wheels_only, *into], held)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").replace("error:", "").strip()
            raise RuntimeMissing(
                f"what runs local models could not be installed: {first_line(' '.join(said.split()), 300)}; "
                "or install it beside Pinfold: pinfold extras add local"
            )
        (beside / "site").rename(ready)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


async def _run(argv: list[str | Path], held: int) -> CompletedProcess[bytes]:
    """The lock is given along: it stays taken until the last of them is gone, also if we are killed."""
    try:
        with anyio.fail_after(LIMIT_S):
            return await anyio.run_process(
                [str(word) for word in argv],
                check=False,
                env=_environment(),
                cwd="/",  # no project's settings steer it
                pass_fds=[held],
                start_new_session=True,
            )
    except TimeoutError as error:
        raise RuntimeMissing(f"{argv[0]} did not end within {LIMIT_S:g} s; try again") from error


def _environment() -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    given["NO_COLOR"] = "1"
    if "PIP_CERT" in given:
        given.setdefault("SSL_CERT_FILE", given["PIP_CERT"])
    if "PIP_INDEX_URL" in given and "UV_INDEX_URL" not in given:
        given.setdefault("UV_DEFAULT_INDEX", given["PIP_INDEX_URL"])
    return given
