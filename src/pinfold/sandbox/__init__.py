"""Where code runs. `open_session` is the sandbox alone, as a library; the rest is the contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path

from pinfold.sandbox.auto import Auto, Probed
from pinfold.sandbox.contract import (
    Capabilities,
    Display,
    FileRefused,
    Limits,
    NotSupported,
    OnOutput,
    Outcome,
    Provider,
    SandboxError,
    SandboxUnavailable,
    Session,
    Spec,
    Status,
    Stream,
    Variable,
    What,
)

__all__ = [
    "Auto",
    "Capabilities",
    "Display",
    "FileRefused",
    "Limits",
    "NotSupported",
    "OnOutput",
    "Outcome",
    "Provider",
    "SandboxError",
    "SandboxUnavailable",
    "Session",
    "Spec",
    "Status",
    "Stream",
    "Variable",
    "What",
    "named_paths",
    "open_session",
    "provider_named",
]

ENTRY_POINTS = "pinfold.sandboxes"


def _unsafe_local() -> Provider:
    from pinfold.sandbox.unsafe_local import UnsafeLocal

    return UnsafeLocal()


def _namespaces() -> Probed:
    from pinfold.sandbox.namespaces import Namespaces

    return Namespaces()


def _landlock() -> Probed:
    from pinfold.sandbox.landlock import Landlock

    return Landlock()


def _landlock_with_secrets() -> Probed:
    from pinfold.sandbox.landlock import Landlock

    return Landlock(allow_unmasked=True)


_BUILT_IN: dict[str, Callable[[], Provider]] = {
    "auto": lambda: _AUTO,
    "landlock": _landlock,
    "namespaces": _namespaces,
    "unsafe-local": _unsafe_local,
}
_UNMASKED: dict[str, Callable[[], Provider]] = {
    "auto": lambda: _AUTO_UNMASKED,
    "landlock": _landlock_with_secrets,
}
# One for the process: what was found out once holds.
_AUTO = Auto(_namespaces, _landlock)
_AUTO_UNMASKED = Auto(_namespaces, _landlock_with_secrets)


def provider_named(name: str, *, allow_unmasked: bool = False) -> Provider:
    """The provider of this name, built in or registered. Raises SandboxUnavailable.

    `allow_unmasked`: one that cannot hide secrets of the workspace may show them.
    """
    if allow_unmasked and name in _UNMASKED:
        return _UNMASKED[name]()
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    from importlib.metadata import entry_points

    registered = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in registered:
        raise SandboxUnavailable(_unknown(name, sorted({*_BUILT_IN, *registered})))
    try:
        make: Callable[[], Provider] = registered[name].load()
        return make()
    except Exception as error:
        raise SandboxUnavailable(
            f"the sandbox {name!r} is registered but does not load: {error!r}"
        ) from error


@asynccontextmanager
async def open_session(
    workspace: str | PathLike[str] | None = None,
    provider: str | Provider = "auto",
    data: Iterable[str | PathLike[str]] = (),
    limits: Limits | None = None,
) -> AsyncGenerator[Session]:
    """A session, closed at the end with every process it started.

    Without a workspace it gets a private temporary folder, removed at the end. Each of `data` is
    `PATH` or `NAME=PATH`; where the provider has no mounts, it is read at its own path. Raises SandboxUnavailable.
    """
    chosen = provider_named(provider) if isinstance(provider, str) else provider
    sources = named_paths(data)
    async with _folder(None if workspace is None else Path(workspace).absolute()) as folder:  # noqa: ASYNC240 - looks at nothing
        session = await chosen.open(Spec(workspace=folder, data=sources, limits=limits or Limits()))
        try:
            yield session
        finally:
            await session.close()


@asynccontextmanager
async def _folder(workspace: Path | None) -> AsyncGenerator[Path]:
    if workspace is not None:
        yield workspace
        return
    import functools
    import shutil
    import tempfile

    from anyio import CancelScope, to_thread

    folder = tempfile.mkdtemp(prefix="pinfold-workspace-")
    try:
        yield Path(folder)
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(functools.partial(shutil.rmtree, folder, ignore_errors=True))


def named_paths(items: Iterable[str | PathLike[str]]) -> dict[str, Path]:
    """Each item is PATH or NAME=PATH; a path without a name goes by its last part. Raises SandboxUnavailable."""
    paths: dict[str, Path] = {}
    for name, path in map(_named, items):
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise SandboxUnavailable(f"{name!r} cannot be the name of data; give one: NAME={path}")
        if name in paths:
            raise SandboxUnavailable(
                f"two data mounts are called {name!r}; give one another name: NAME={path}"
            )
        paths[name] = path
    return paths


def _named(item: str | PathLike[str]) -> tuple[str, Path]:
    if isinstance(item, str):
        name, equals, path = item.partition("=")
        if equals and name and "/" not in name:
            return name, Path(path).absolute()
    path = Path(item).absolute()
    return path.name, path


def _unknown(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"there is no sandbox {name!r}{hint} Known: {', '.join(known)}"
