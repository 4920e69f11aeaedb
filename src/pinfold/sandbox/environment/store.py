"""Environments on disk: where they are and what is there. Finding one needs no network and no other program."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from pinfold.events import decode_json
from pinfold.sandbox.environment.interpreter import EnvironmentFailed, Interpreter, choose_python

_PACKAGES = """
numpy pandas scikit-learn matplotlib scipy pyarrow duckdb polars seaborn statsmodels openpyxl python-calamine pillow
tabulate ipython requests httpx jinja2
"""
PACKAGES = tuple(_PACKAGES.split())
"""What every environment has; `scripts/lock_environment.py` makes the lock from them."""
SIZE = "about 250 MB to fetch, 1 GB on disk"
_MODULES = {"scikit-learn": "sklearn", "pillow": "PIL", "ipython": "IPython"}
LOCK = Path(__file__).with_name("lock.txt")
LAYOUT = 1
"""Raised when environments are built differently, so that old ones are not taken for new."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ASKED = (
    rf"(?P<name>{_NAME})\s*(?P<extras>\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?\s*"
    r"(?P<versions>(?:[<>=!~]=?=?\s*[A-Za-z0-9.*+!_-]+\s*,?\s*)*)"
)


class Recipe(Struct, frozen=True, kw_only=True):
    lock: str
    """The text of a requirements file with a hash for every file."""
    packages: tuple[str, ...]
    """What is added, normalised and sorted."""
    python: Interpreter

    @classmethod
    def of(cls, packages: Iterable[str] = (), *, lock: str | None = None, python: Interpreter | None = None) -> Recipe:
        """Raises EnvironmentFailed for what is no package."""
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
    """A package as `name[extras]versions`; addresses, paths and options are refused: they name no package."""
    found = re.fullmatch(_ASKED, package.strip())
    if found is None:
        raise EnvironmentFailed(
            f"{package!r} is no package: give its name, and versions if need be, such as 'polars' or 'polars>=1'"
        )
    extras = sorted(canonical(extra) for extra in re.findall(_NAME, found["extras"] or ""))
    versions = sorted(filter(None, re.sub(r"\s", "", found["versions"]).split(",")))
    return canonical(found["name"]) + (f"[{','.join(extras)}]" if extras else "") + ",".join(versions)


def modules(packages: Iterable[str]) -> set[str]:
    """What code imports to use them, as far as a name tells."""
    names = (canonical(package.partition("[")[0]) for package in (*PACKAGES, *packages))
    return {_MODULES.get(name) or re.split(r"[^a-z0-9-]", name)[0].replace("-", "_") for name in names}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


MARKER = "pinfold.json"
"""In every complete environment, and in no other: it is written last, and the folder gets its name after that."""
INFO = ".dist-info"


class _Marked(Struct, frozen=True, kw_only=True):
    key: str
    version: str
    """Of its Python."""
    asked: tuple[str, ...]
    """What was added to the packages every environment has."""
    packages: Mapping[str, str]
    """All of them, with their versions."""
    built_at: datetime
    size: int
    """Bytes on disk."""


class Environment(_Marked, frozen=True, kw_only=True):
    folder: Path
    python: Path


def environments() -> Path:
    """The folder of all environments: `$XDG_DATA_HOME/pinfold/environments`. Raises EnvironmentFailed."""
    given = os.environ.get("XDG_DATA_HOME", "")
    try:
        # The convention says to ignore relative paths.
        base = Path(given) if given.startswith("/") else Path.home() / ".local/share"
    except RuntimeError as error:
        raise EnvironmentFailed("there is no home folder; set HOME or XDG_DATA_HOME") from error
    return base / "pinfold" / "environments"


def find(
    packages: Iterable[str] = (), *, lock: str | None = None, python: Interpreter | None = None
) -> Environment | None:
    """The environment with these packages if it has been built. Raises EnvironmentFailed for what is no package."""
    return find_built(Recipe.of(packages, lock=lock, python=python))


def find_built(recipe: Recipe) -> Environment | None:
    folder = environments() / recipe.key
    try:
        said = decode_json((folder / MARKER).read_bytes(), _Marked)
    except (OSError, ValueError):
        return None
    environment = Environment(folder=folder, python=folder / "bin" / "python", **structs.asdict(said))
    # Its Python is a link to the one it was made from, which may be gone.
    return environment if environment.key == recipe.key and environment.python.exists() else None


def default_python() -> Path | None:
    """The Python of the environment without additions, None until that is built."""
    try:
        environment = find()
    except EnvironmentFailed:
        return None
    return environment.python if environment else None


def mark(folder: Path, recipe: Recipe) -> None:
    """Say what is in this folder, as the last thing written to it."""
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
    """The packages installed in a folder, by name, from the names of their records alone."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(INFO))
    except OSError:
        return {}
    pairs = (name.removesuffix(INFO).partition("-") for name in names)
    return {canonical(name): version for name, _, version in pairs}


def make_readable(folder: Path) -> int:
    """Let everyone read all of it, whatever the wheels or our umask say, and return its size on disk.

    A session of root's runs under an id of its own.
    """
    total = 0
    for place, folders, names in os.walk(folder):
        for name in names:
            path = f"{place}/{name}"
            found = os.lstat(path)
            total += found.st_blocks * 512
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o444 != 0o444:
                os.chmod(path, stat.S_IMODE(found.st_mode) | 0o444)  # noqa: PTH101 - strings, thousands of them
        for name in folders:
            os.chmod(f"{place}/{name}", 0o755)  # noqa: PTH101, S103 - read-only inside
    return total
