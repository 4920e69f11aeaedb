"""Which Python runs the cells, and the tool that adds packages to a live session."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import anyio.to_thread
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import current_folder, private_dir, state_dir
from pinfold.sandbox import is_built_in
from pinfold.sandbox.environment import (
    PACKAGES,
    SIZE,
    Environment,
    EnvironmentFailed,
    OnProgress,
    Recipe,
    check_python,
    default_python,
    environments,
    find,
    install,
    modules,
    normalise_package,
    running_python,
)
from pinfold.sandbox.environment import build as build_environment
from pinfold.tools import AnyTool, BadCall, Tool

NOT_BUILT = "the data environment is not built: `pinfold env build` adds pandas and the rest"
INSTALL_S = 600.0
_INSTALL = (
    "Install a package from the package index for this session, such as 'shapely' or 'shapely>=2'. "
    "Wheels only. It can be imported from the next python call on."
)
_PACKAGE = {"type": "object", "properties": {"package": {"type": "string"}}, "required": ["package"]}
BUILDING = (
    f"building the Python that code runs in, once: {', '.join(PACKAGES[:4])} and the rest ({SIZE}); "
    "Ctrl-C cancels, PINFOLD_SANDBOX_BUILD=off skips it"
)
_AGAIN_S = 3600.0
"""Pause after an automatic build that failed: an offline user waits once an hour, not each time."""
_IMPORTED = r"(?m)(?:^|[;:])[ \t]*(?:import|from)[ \t]+([^\n;]+)"


async def python_for_cells(
    packages: tuple[str, ...], python: str, *, make: bool = False, writable: Iterable[Path] = ()
) -> tuple[Path, str]:
    """Return the Python for cells, and a notice for the user. With `make`, a missing environment is built first.

    `writable`: folders that code of the session can change. Raises EnvironmentFailed, ConfigError.
    """
    if python:
        if make:
            raise ConfigError(f"packages cannot be added to {python} (sandbox.python); install them there yourself")
        return python_at(python, writable), ""
    if make:
        return (await anyio.to_thread.run_sync(build_environment, packages, abandon_on_cancel=True)).python, ""
    if environment := find(packages):
        return environment.python, ""
    if packages:
        missing = f"the environment with {', '.join(packages)} is not built: `pinfold env build` makes it"
        return default_python() or running_python().path, missing
    return running_python().path, NOT_BUILT if is_news("no-environment") else ""


def python_at(text: str, writable: Iterable[Path]) -> Path:
    """Return the Python that `[sandbox] python` names. Raises ConfigError."""
    try:
        return check_python(Path(text).expanduser(), writable=writable).path
    except (EnvironmentFailed, RuntimeError) as error:
        raise ConfigError(f"sandbox.python: {error}") from error


def normalise_package_name(package: str) -> str:
    """Return the name as it is in the key of an environment. Raises ConfigError."""
    try:
        return normalise_package(package)
    except EnvironmentFailed as error:
        raise ConfigError(str(error)) from error


def packages_to_build(
    workspace: Path, provider: str | None, *, model: str = "", code: str | None = None
) -> tuple[str, ...] | None:
    """Return the extra packages if an environment should be built before the session begins; else None.

    With `code`, the session runs only that. Scripted and recorded models work offline, so nothing is built for them.
    """
    # By regular expression, since code with magics cannot be parsed.
    lists = (match[1].split(" import ")[0].split(",") for match in re.finditer(_IMPORTED, code or ""))
    named = {words[0].partition(".")[0] for parts in lists for part in parts if (words := part.split())}
    if model.startswith(("scripted:", "replay:")) or (code is not None and not named):
        return None
    from pinfold.app.config.layers import load_config

    wanted = load_config(workspace, {"sandbox.provider": provider}).config.sandbox
    is_needed = code is None or bool(named & modules(wanted.packages))
    if not is_needed or wanted.build == "off" or wanted.python or not is_built_in(wanted.provider):
        return None
    return wanted.packages if find(wanted.packages) is None and not _has_failed_lately() else None


def _has_failed_lately() -> bool:
    with suppress(OSError):
        return time.time() - _failure_marker().stat().st_mtime < _AGAIN_S
    return False


def _failure_marker() -> Path:
    return state_dir() / "environment-failed"


def build_for_session(packages: Iterable[str], on_progress: OnProgress) -> str | None:
    """Build the environment, or return why the session goes on without it. Blocks."""
    try:
        build_environment(packages, on_progress)
    except EnvironmentFailed as failure:
        with suppress(OSError, ConfigError):
            private_dir(state_dir())
            _failure_marker().touch()
        return f"{failure}; going on with the standard library only, `pinfold env build` tries again"
    return None


class EnvironmentStatus(Struct, frozen=True, kw_only=True):
    """The environment configured for cells, and whether it is built."""

    key: str
    folder: Path
    environment: Environment | None
    """None if it is not built."""
    used: Path
    """The Python that cells run in now."""


def environment_status(packages: Iterable[str], python: str) -> EnvironmentStatus:
    asked = tuple(packages)
    recipe = Recipe.of(asked)
    environment = find(asked)
    here = (current_folder(),)  # nearly always the workspace
    used = python_at(python, here) if python else environment.python if environment else default_python()
    return EnvironmentStatus(
        key=recipe.key, folder=environments() / recipe.key, environment=environment, used=used or running_python().path
    )


def is_news(what: str) -> bool:
    """Return True if this user has not seen the notice `what` yet, and note that they see it now."""
    marker = state_dir() / f"told-{what}"
    if marker.exists():
        return False
    with suppress(OSError, ConfigError):
        private_dir(marker.parent)
        marker.touch()
    return True


def install_tool(site: Path, python: Path, writable: Sequence[Path]) -> AnyTool:
    """Return the tool that installs packages into `site` for the cells' Python. Policy decides whether it may run."""

    def install_package(package: str) -> str:
        try:
            added = install(package, site, python, writable=writable)
        except EnvironmentFailed as failure:
            raise BadCall(str(failure)) from failure
        if not added:
            return f"{package} is installed already; import it"
        return "installed " + ", ".join(f"{name} {version}" for name, version in added.items())

    return Tool(
        function=install_package,
        name="install",
        server="system",
        description=_INSTALL,
        effect="keyed",
        timeout_s=INSTALL_S,
        reach="packages",
        goes=lambda args: ("packages", str(args.get("package", ""))),
        parameters={**_PACKAGE, "additionalProperties": False},
    )
