"""Which Python runs the cells, and the tool that adds packages to a live session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import current_folder, private_dir, state_dir
from pinfold.sandbox.environment import (
    Environment,
    EnvironmentFailed,
    Recipe,
    checked_python,
    default_python,
    environments,
    find,
    install,
    normalised,
    running_python,
)
from pinfold.sandbox.environment import (
    build as build_environment,
)
from pinfold.tools import BadCall, Tool

NOT_BUILT = "the data environment is not built: `pinfold env build` adds pandas and the rest"
INSTALL_S = 600.0


class Cells(Struct, frozen=True, kw_only=True):
    """What cells run in."""

    python: Path
    notice: str | None = None
    """What the user should know of it."""


async def python_for_cells(
    packages: Iterable[str], python: str, *, make: bool = False, writable: Iterable[Path] = ()
) -> Cells:
    """By configuration; with `make`, an environment that is missing is built first. Raises EnvironmentFailed.

    `writable`: folders that code of the session can change.
    """
    asked = tuple(packages)
    if make and python:
        raise ConfigError(
            f"sandbox.python is {python}, and nothing is added to that; install the packages there"
        )
    if make:
        built = await anyio.to_thread.run_sync(build_environment, asked, abandon_on_cancel=True)
        return Cells(python=built.python)
    return _configured(asked, python, writable)


def python_at(text: str, writable: Iterable[Path]) -> Path:
    """The Python that `[sandbox] python` names, or ConfigError."""
    try:
        return checked_python(Path(text).expanduser(), writable=writable).path
    except (EnvironmentFailed, RuntimeError) as error:
        raise ConfigError(f"sandbox.python: {error}") from error


def normalised_package(package: str) -> str:
    """As the key of an environment has it, or ConfigError."""
    try:
        return normalised(package)
    except EnvironmentFailed as error:
        raise ConfigError(str(error)) from error


class EnvironmentStanding(Struct, frozen=True, kw_only=True):
    """What is configured for cells, and what is there of it."""

    key: str
    folder: Path
    environment: Environment | None
    """None if it is not built."""
    used: Path
    """The Python that cells run in now."""


def environment_standing(packages: Iterable[str], python: str) -> EnvironmentStanding:
    asked = tuple(packages)
    recipe = Recipe.of(asked)
    environment = find(asked)
    here = (current_folder(),)  # as good as always the workspace
    used = python_at(python, here) if python else environment.python if environment else default_python()
    return EnvironmentStanding(
        key=recipe.key,
        folder=environments() / recipe.key,
        environment=environment,
        used=used or running_python().path,
    )


def _configured(packages: tuple[str, ...], python: str, writable: Iterable[Path]) -> Cells:
    if python:
        return Cells(python=python_at(python, writable))
    if environment := find(packages):
        return Cells(python=environment.python)
    if packages:
        missing = f"the environment with {', '.join(packages)} is not built: `pinfold env build` makes it"
        return Cells(python=default_python() or running_python().path, notice=missing)
    return Cells(python=running_python().path, notice=NOT_BUILT if is_news("no-environment") else None)


def is_news(what: str) -> bool:
    """Whether this user has not been told yet."""
    told = state_dir() / f"told-{what}"
    try:
        private_dir(told.parent)
        told.touch(exist_ok=False)
    except FileExistsError:
        return False
    except (OSError, ConfigError):
        return True
    return True


def install_tool(site: Path, python: Path, writable: Sequence[Path]) -> Tool[..., Any]:
    """Puts packages into `site` for the Python that runs the cells. Policy decides whether it may."""

    def install_package(package: str) -> str:
        try:
            added = install(package, site, python, writable=writable)
        except EnvironmentFailed as failure:
            raise BadCall(str(failure)) from failure
        if not added:
            return f"{package} is there already; import it"
        return "installed " + ", ".join(f"{name} {version}" for name, version in added.items())

    return Tool(
        function=install_package,
        name="install",
        server="system",
        description=(
            "Install a package from the package index for this session, such as 'shapely' or 'shapely>=2'. "
            "Wheels only. It can be imported from the next python call on."
        ),
        effect="keyed",
        timeout_s=INSTALL_S,
        reach="packages",
        goes=lambda args: ("packages", str(args.get("package", ""))),
        parallel_safe=False,
        parameters={
            "type": "object",
            "properties": {"package": {"type": "string"}},
            "required": ["package"],
            "additionalProperties": False,
        },
    )
