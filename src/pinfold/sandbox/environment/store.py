"""Environments on disk: their Python, place and content. Finding one needs no network and no other program."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from pinfold.events import decode_json
from pinfold.sandbox.contract import SandboxUnavailable


class EnvironmentFailed(SandboxUnavailable):
    """The environment cannot be built, extended or used."""


OLDEST = (3, 11)
LEAN = (3, 13)
"""The first Python in which the zygote can exclude objects from reference counting: half the memory per session."""
_INSTALLED = r"(?:cpython-)?3\.13\.(\d+)(?:-linux-.*)?"
"""How pyenv and uv name a Python's folder."""
_PROGRAM = r"python[0-9.]*t?d?|pypy[0-9.]*"
ANSWER_S = 20.0
# Run without `site`, so that no `.pth` file or sitecustomize of its environment is run.
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
    """A Python, described by what decides which wheels fit it."""

    path: Path
    base: Path
    """The Python that its virtual environment was made from; itself if it is in none."""
    version: tuple[int, int, int]
    implementation: str
    flags: str
    machine: str

    @property
    def number(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def packages(self) -> Path:
        """The path of the packages within an environment of this Python."""
        return Path("lib", f"python{self.version[0]}.{self.version[1]}{self.flags}", "site-packages")


def running_python() -> Interpreter:
    """Return the running Python."""
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
    """Resolve links in the folder, which a session would lack, but keep the last name: an environment's is a link."""
    return Path(os.path.realpath(python.parent), python.name)


def choose_python() -> Interpreter:
    """Return the running Python, or a leaner one installed by pyenv or uv. Looks only at file names, so it is cheap."""
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
    paths = (path for folder in folders for path in Path(folder).glob("*/bin/python3.13"))
    found: list[Interpreter] = []
    for path in paths:
        match = re.fullmatch(_INSTALLED, path.parts[-3])
        if match and os.access(path, os.X_OK):
            version = (*LEAN, int(match[1]))
            fit = {"implementation": "cpython", "flags": "", "machine": machine}
            found.append(Interpreter(path=path, base=Path(os.path.realpath(path)), version=version, **fit))
    return found


def check_python(path: Path, *, writable: Iterable[Path] = ()) -> Interpreter:
    """Return the Python at `path`, if it can run cells. Raises EnvironmentFailed.

    It is run on this machine, so it may not lie in a folder that is `writable` for a session. An environment may lie
    there: its Python is a link, and the target elsewhere is run.
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
        # Code inside could also point the link at any other program on this machine.
        is_led_astray = path.parent.resolve().is_relative_to(folder) and not re.fullmatch(_PROGRAM, real.name)
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
    return "its answer was not understood"


_PACKAGES = """
numpy pandas scikit-learn matplotlib scipy pyarrow duckdb polars seaborn statsmodels openpyxl python-calamine pillow
tabulate ipython requests httpx jinja2
"""
PACKAGES = tuple(_PACKAGES.split())
"""The packages of every environment; `scripts/lock_environment.py` makes the lock file from them."""
SIZE = "about 250 MB to fetch, 1 GB on disk"
_MODULES = {"scikit-learn": "sklearn", "pillow": "PIL", "ipython": "IPython"}
LOCK = Path(__file__).with_name("lock.txt")
LAYOUT = 1
"""Increase this when environments are built differently, so that old ones are not used as new."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ASKED = (
    rf"(?P<name>{_NAME})\s*(?P<extras>\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?\s*"
    r"(?P<versions>(?:[<>=!~]=?=?\s*[A-Za-z0-9.*+!_-]+\s*,?\s*)*)"
)


class Recipe(Struct, frozen=True, kw_only=True):
    lock: str
    """The text of a requirements file with a hash for every wheel."""
    packages: tuple[str, ...]
    """Additional packages, normalised and sorted."""
    python: Interpreter

    @classmethod
    def of(cls, packages: Iterable[str] = (), *, lock: str | None = None, python: Interpreter | None = None) -> Recipe:
        """Make a recipe. Raises EnvironmentFailed for an invalid package."""
        return cls(
            lock=LOCK.read_text(encoding="utf-8") if lock is None else lock,
            packages=tuple(sorted({normalise_package(package) for package in packages})),
            python=python or choose_python(),
        )

    @property
    def key(self) -> str:
        python = self.python
        parts = [
            LAYOUT,
            self.lock,
            self.packages,
            [python.implementation, python.number, python.flags, python.machine, str(python.base)],
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def normalise_package(package: str) -> str:
    """Return a package as `name[extras]versions`. Refuses URLs, paths and options. Raises EnvironmentFailed."""
    found = re.fullmatch(_ASKED, package.strip())
    if found is None:
        raise EnvironmentFailed(
            f"{package!r} is not a package name; give its name, with versions if needed, such as 'polars' or 'polars>=1'"
        )
    extras = sorted(canonical(extra) for extra in re.findall(_NAME, found["extras"] or ""))
    versions = sorted(filter(None, re.sub(r"\s", "", found["versions"]).split(",")))
    return canonical(found["name"]) + (f"[{','.join(extras)}]" if extras else "") + ",".join(versions)


def modules(packages: Iterable[str]) -> set[str]:
    """Return the modules that code imports to use these packages, guessed from their names."""
    names = (canonical(package.partition("[")[0]) for package in (*PACKAGES, *packages))
    return {_MODULES.get(name) or re.split(r"[^a-z0-9-]", name)[0].replace("-", "_") for name in names}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


MARKER = "pinfold.json"
"""A file in every complete environment. It is written last, and only then is the folder moved to its place."""
INFO = ".dist-info"


class _Marked(Struct, frozen=True, kw_only=True):
    key: str
    version: str
    """The version of its Python."""
    asked: tuple[str, ...]
    """Packages requested besides those of every environment."""
    packages: Mapping[str, str]
    """All packages, with their versions."""
    built_at: datetime
    size: int
    """Bytes on disk."""


class Environment(_Marked, frozen=True, kw_only=True):
    folder: Path
    python: Path


def environments() -> Path:
    """Return the folder of all environments, `$XDG_DATA_HOME/pinfold/environments`. Raises EnvironmentFailed."""
    given = os.environ.get("XDG_DATA_HOME", "")
    try:
        # The convention says to ignore relative paths.
        base = Path(given) if given.startswith("/") else Path.home() / ".local/share"
    except RuntimeError as error:
        raise EnvironmentFailed("there is no home folder; set HOME or XDG_DATA_HOME") from error
    return base / "pinfold" / "environments"


def find(packages: Iterable[str] = (), *, lock: str | None = None) -> Environment | None:
    """Return the environment with these packages, if built. Raises EnvironmentFailed for an invalid package."""
    return find_built(Recipe.of(packages, lock=lock))


def find_built(recipe: Recipe) -> Environment | None:
    folder = environments() / recipe.key
    try:
        said = decode_json((folder / MARKER).read_bytes(), _Marked)
    except (OSError, ValueError):
        return None
    environment = Environment(folder=folder, python=folder / "bin" / "python", **structs.asdict(said))
    # Its Python is a link to the base Python, which may be gone.
    return environment if environment.key == recipe.key and environment.python.exists() else None


def default_python() -> Path | None:
    """Return the Python of the environment without additional packages; None until that is built."""
    try:
        environment = find()
    except EnvironmentFailed:
        return None
    return environment.python if environment else None


def mark(folder: Path, recipe: Recipe) -> None:
    """Write the marker that describes this environment. It must be the last file written."""
    said = _Marked(
        key=recipe.key,
        version=recipe.python.number,
        asked=recipe.packages,
        packages=distributions(folder / recipe.python.packages),
        built_at=datetime.now().astimezone().replace(microsecond=0),
        size=make_readable(folder),
    )
    with (folder / MARKER).open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(said), indent=1))
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())


def distributions(folder: Path) -> dict[str, str]:
    """Return the packages installed in a folder with their versions, read from the names of `.dist-info` folders."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(INFO))
    except OSError:
        return {}
    pairs = (name.removesuffix(INFO).partition("-") for name in names)
    return {canonical(name): version for name, _, version in pairs}


def make_readable(folder: Path) -> int:
    """Make all of it readable for everyone, whatever the wheels or the umask say, and return its size on disk.

    This is needed if the host is root, because sessions then run under other user ids.
    """
    total = 0
    for place, folders, names in os.walk(folder):
        for name in names:
            path = f"{place}/{name}"
            found = os.lstat(path)
            total += found.st_blocks * 512
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o444 != 0o444:
                os.chmod(path, stat.S_IMODE(found.st_mode) | 0o444)
        for name in folders:
            os.chmod(f"{place}/{name}", 0o755)  # noqa: S103 - read-only inside
    return total
