"""What goes into an environment, and the key that stands for it. Builds nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from pinfold.sandbox.environment.errors import EnvironmentFailed
from pinfold.sandbox.environment.interpreter import Interpreter, choose_python

PACKAGES = (
    "numpy",
    "pandas",
    "scikit-learn",
    "matplotlib",
    "scipy",
    "pyarrow",
    "duckdb",
    "polars",
    "seaborn",
    "statsmodels",
    "openpyxl",
    "python-calamine",
    "pillow",
    "tabulate",
    "ipython",
    "requests",
    "httpx",
    "jinja2",
)
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
