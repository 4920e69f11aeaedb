"""Which Python an environment is for. Asks an interpreter about itself, without any of its packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from pinfold.sandbox.contract import SandboxUnavailable


class EnvironmentFailed(SandboxUnavailable):
    """It cannot be built, added to, or used."""


OLDEST = (3, 11)
LEAN = (3, 12)
"""From here on sessions share what the zygote has loaded without counting references to it: half the memory each."""
_INSTALLED = re.compile(r"(?:cpython-)?3\.(12|13)\.(\d+)(?:-linux-.*)?")
"""How pyenv and uv name the folder of a Python."""
_NAME = re.compile(r"python[0-9.]*t?d?|pypy[0-9.]*")
ANSWER_S = 20.0
# Without `site`: a `.pth` file of its environment is not run, nor is any sitecustomize.
_QUESTION = """
import json, os, sys
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "implementation": sys.implementation.name,
    "flags": getattr(sys, "abiflags", ""),
    "machine": os.uname().machine,
    "base": getattr(sys, "_base_executable", None) or sys.executable,
}))
"""


class Interpreter(Struct, frozen=True, kw_only=True):
    """A Python, known by what decides which wheels fit it."""

    path: Path
    base: Path
    """What a virtual environment of it would be made from; itself if it is none."""
    version: tuple[int, int, int]
    implementation: str
    flags: str
    machine: str

    @property
    def number(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def packages(self) -> Path:
        """Where an environment of it has its packages, from the environment's folder on."""
        return Path("lib", f"python{self.version[0]}.{self.version[1]}{self.flags}", "site-packages")


def running_python() -> Interpreter:
    """This one; costs nothing."""
    base: str = getattr(sys, "_base_executable", None) or sys.executable
    return Interpreter(
        path=_at_its_place(Path(sys.executable)),
        base=Path(os.path.realpath(base)),
        version=sys.version_info[:3],
        implementation=sys.implementation.name,
        flags=getattr(sys, "abiflags", ""),
        machine=os.uname().machine,
    )


def _at_its_place(python: Path) -> Path:
    """Inside a session only real folders are, and no link to one. The program itself may be a link: that is an environment."""
    return Path(os.path.realpath(python.parent), python.name)


def choose_python() -> Interpreter:
    """This one, or a leaner one that pyenv or uv has installed. Looks at names only, and costs next to nothing."""
    running = running_python()
    if running.version >= LEAN or sys.platform != "linux":
        return running
    return max(_find_installed(running.machine), key=lambda found: found.version, default=running)


def _find_installed(machine: str) -> list[Interpreter]:
    home = os.environ.get("HOME", "")
    folders = (
        f"{os.environ.get('PYENV_ROOT') or f'{home}/.pyenv'}/versions",
        os.environ.get("UV_PYTHON_INSTALL_DIR") or f"{home}/.local/share/uv/python",
    )
    paths = (path for folder in folders for path in Path(folder).glob("*/bin/python3.1[23]"))
    found: list[Interpreter] = []
    for path in paths:
        match = _INSTALLED.fullmatch(path.parts[-3])
        if match and path.name == f"python3.{match[1]}" and os.access(path, os.X_OK):
            version = (3, int(match[1]), int(match[2]))
            fit = {"implementation": "cpython", "flags": "", "machine": machine}
            found.append(Interpreter(path=path, base=Path(os.path.realpath(path)), version=version, **fit))
    return found


def check_python(path: Path, *, writable: Iterable[Path] = ()) -> Interpreter:
    """The Python at `path`, fit to run cells. Raises EnvironmentFailed.

    It is run on this machine, so it may not lie in a folder that is `writable` for a session. An environment may: its
    Python is a link to one that lies elsewhere, and that one is run.
    """
    if not path.is_absolute():
        raise EnvironmentFailed(f"the Python {str(path)!r} must be named by its whole path, from / on")
    if path.is_dir():
        inside = path / "bin" / "python"
        hint = f"; did you mean {inside}?" if inside.exists() else "; name the program in it"
        raise EnvironmentFailed(f"the Python {path} is a folder{hint}")
    if not path.exists():
        raise EnvironmentFailed(f"the Python {path} does not exist; name one that does")
    real = Path(os.path.realpath(path))
    for folder in map(Path.resolve, writable):
        # The link can be changed from inside too, to any other program that is there.
        is_led_astray = path.parent.resolve().is_relative_to(folder) and not _NAME.fullmatch(real.name)
        if real.is_relative_to(folder) or is_led_astray:
            raise EnvironmentFailed(
                f"{path} is {real}, which code in {folder} could have put there, and is not run on this machine; "
                "make the environment anew (python -m venv), or name a Python elsewhere"
            )
    try:
        done = subprocess.run(
            [real, "-I", "-S", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
            check=True,
            env={},
        )
        said = json.loads(done.stdout)
        version = tuple(int(number) for number in said["version"])
        found = Interpreter(
            path=_at_its_place(path),
            base=Path(os.path.realpath(str(said["base"]))),
            version=(version[0], version[1], version[2]),
            implementation=str(said["implementation"]),
            flags=str(said["flags"]),
            machine=str(said["machine"]),
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, IndexError) as error:
        raise EnvironmentFailed(f"{path} does not run as Python 3: {_why(error)}; name another") from error
    if found.version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise EnvironmentFailed(f"{path} is Python {found.number}; cells need {oldest} or newer")
    return found


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, subprocess.CalledProcessError):
        said: bytes = error.stderr or b""
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"exit code {error.returncode}" + (f" ({last[:200]})" if last else "")
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {ANSWER_S:g} s"
    return "it answered nonsense"
