"""Sandboxed Python sessions. `open_session` is the sandbox alone, as a library; the rest is the contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache
from os import PathLike
from pathlib import Path

from pinfold.sandbox.abilities import (
    ColumnSummary,
    Forkable,
    Freezable,
    GuardedSession,
    Paged,
    PageQuery,
    PageRefused,
    Savable,
    VariablePage,
)
from pinfold.sandbox.contract import (
    Answer,
    Capabilities,
    CommandOutcome,
    Display,
    FileRefused,
    Limits,
    Mount,
    NotSupported,
    OnCall,
    Outcome,
    Provider,
    Resumable,
    Resumed,
    SandboxError,
    SandboxUnavailable,
    Session,
    Spec,
    Stream,
    UndoRefused,
    Variable,
    data_places,
    default_memory,
)
from pinfold.sandbox.providers.auto import Auto, Probed

TYPE_CHECKING = False  # importlib.metadata is slow to import
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "Answer",
    "Capabilities",
    "ColumnSummary",
    "CommandOutcome",
    "Display",
    "FileRefused",
    "Forkable",
    "Freezable",
    "GuardedSession",
    "Limits",
    "Mount",
    "NotSupported",
    "OnCall",
    "Outcome",
    "PageQuery",
    "PageRefused",
    "Paged",
    "Provider",
    "Resumable",
    "Resumed",
    "SandboxError",
    "SandboxUnavailable",
    "Savable",
    "Session",
    "Spec",
    "Stream",
    "UndoRefused",
    "Variable",
    "VariablePage",
    "data_places",
    "default_memory",
    "is_built_in",
    "not_mountable",
    "open_session",
    "parse_named_paths",
    "provider_named",
    "provider_names",
]

ENTRY_POINTS = "pinfold.sandboxes"


BUILT_IN = ("namespaces", "landlock", "unsafe-local")


def _namespaces(python: Path | None) -> Probed:
    from pinfold.sandbox.environment import default_python
    from pinfold.sandbox.providers.namespaces import Namespaces

    return Namespaces(python or default_python())


def _landlock(python: Path | None, *, allow_unmasked: bool) -> Probed:
    from pinfold.sandbox.environment import default_python
    from pinfold.sandbox.providers.landlock import Landlock

    return Landlock(python or default_python(), allow_unmasked=allow_unmasked)


@cache  # the result of probing holds for the process
def _auto(python: Path | None, *, allow_unmasked: bool) -> Auto:
    return Auto(lambda: _namespaces(python), lambda: _landlock(python, allow_unmasked=allow_unmasked))


def is_built_in(name: str) -> bool:
    """Return True for a built-in provider, which takes `python`; `auto` chooses among them."""
    return name == "auto" or name in BUILT_IN


def provider_named(name: str, *, python: Path | None = None, allow_unmasked: bool = False) -> Provider:
    """Return the provider of this name, built in or registered. Raises SandboxUnavailable.

    `python` runs the cells of a built-in provider. Default: the Python of the data environment if built, else ours.
    `allow_unmasked`: a provider that cannot hide the workspace's secrets may show them.
    """
    match name:
        case "auto":
            return _auto(python, allow_unmasked=allow_unmasked)
        case "namespaces":
            return _namespaces(python)
        case "landlock":
            return _landlock(python, allow_unmasked=allow_unmasked)
        case "unsafe-local":
            from pinfold.sandbox.environment import default_python
            from pinfold.sandbox.guests import UnsafeLocal

            return UnsafeLocal(python or default_python())
        case _:
            return _registered(name)


def _registered(name: str) -> Provider:
    registered = _find_entry_points()
    if name not in registered:
        from difflib import get_close_matches

        known = sorted({"auto", *BUILT_IN, *registered})
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise SandboxUnavailable(f"there is no sandbox {name!r}{hint} Known: {', '.join(known)}")
    try:
        make: Callable[[], Provider] = registered[name].load()
        return make()
    except Exception as error:
        raise SandboxUnavailable(f"the sandbox {name!r} is registered but does not load: {error!r}") from error


def provider_names() -> tuple[str, ...]:
    """Return the names of all providers, built-in ones first."""
    return (*BUILT_IN, *sorted(_find_entry_points().keys() - set(BUILT_IN)))


def _find_entry_points() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def not_mountable(mount: Mount) -> str | None:
    """Return why no session may have this mount, or None if one may."""
    from pinfold.sandbox.guards.guarded_paths import why_not_mountable

    return why_not_mountable(mount)


@asynccontextmanager
async def open_session(
    workspace: str | PathLike[str] | None = None,
    sandbox: str | Provider = "auto",
    data: Iterable[str | PathLike[str]] = (),
    limits: Limits | None = None,
    *,
    provider: str | Provider | None = None,
) -> AsyncGenerator[Session]:
    """Open a session, and close it at the end with every process it started.

    Without a workspace it gets a private temporary folder, removed at the end. Each of `data` is
    `PATH` or `NAME=PATH`; if the sandbox has no mounts, it is read at its own path. `provider` is
    the old name of `sandbox`. Raises SandboxUnavailable.
    """
    sandbox = provider or sandbox
    chosen = provider_named(sandbox) if isinstance(sandbox, str) else sandbox
    sources, bounds = parse_named_paths(data), limits or Limits()
    folder = None
    if workspace is None:
        from pinfold.sandbox.kernel.folders import TemporaryFolder

        folder = TemporaryFolder("workspace")
        workspace = folder.path
    path = Path(workspace).absolute()  # noqa: ASYNC240 - looks at nothing
    try:
        session = await chosen.open(Spec(workspace=path, data=sources, limits=bounds))
        try:
            yield session
        finally:
            await session.close()
    finally:
        if folder is not None:
            from anyio import CancelScope, to_thread

            with CancelScope(shield=True):
                await to_thread.run_sync(folder.remove)


def parse_named_paths(items: Iterable[str | PathLike[str]]) -> dict[str, Path]:
    """Parse items of the form PATH or NAME=PATH; the default name is the last part. Raises SandboxUnavailable.

    A single FOLDER/ with a trailing slash gets the name "": the folder is all of the data.
    """
    paths: dict[str, Path] = {}
    given = list(items)
    for item in given:
        name, equals, rest = item.partition("=") if isinstance(item, str) else ("", "", "")
        is_named = bool(equals and name) and "/" not in name
        path = Path(rest if is_named else item).absolute()
        name = name if is_named else path.name
        if not name or name.startswith(".") or "\0" in name:
            raise SandboxUnavailable(f"{name!r} cannot be the name of data; give one: NAME={path}")
        if name in paths:
            raise SandboxUnavailable(f"two data mounts are called {name!r}; give one another name: NAME={path}")
        paths[name] = path
    if len(given) == 1 and str(given[0]).endswith("/"):
        (path,) = paths.values()
        if path == Path(given[0]).absolute() and path.is_dir():
            return {"": path}
    return paths
