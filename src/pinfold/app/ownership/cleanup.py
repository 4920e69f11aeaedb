"""Leftovers of killed processes, which `pinfold cleanup` removes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pinfold.app.paths import cache_dir, up_dir, warm_dir
from pinfold.app.storage.session_store import SessionStore, holder_of
from pinfold.events import SessionId
from pinfold.sandbox.environment import find_unfinished
from pinfold.sandbox.kernel.folders import in_use, remove_folder
from pinfold.sandbox.kernel.processes import sweep_leftovers


def clean_up(*, dry_run: bool) -> Iterator[tuple[str, str]]:
    """Remove leftovers that no live process uses. Yield kind and name of each that was removed, or would be."""
    yield from sweep_leftovers(dry_run=dry_run)
    for kind, path in _find_leftovers(SessionStore()):
        if not dry_run:
            if kind == "socket":
                path.unlink(missing_ok=True)
            else:
                remove_folder(path)
        yield kind, str(path)


def _find_leftovers(store: SessionStore) -> Iterator[tuple[str, Path]]:
    sockets = [*store.root.glob("s_*/owner.sock"), *up_dir().glob("*.sock"), *warm_dir().glob("*.sock")]
    for socket in sorted(sockets):
        if holder_of(socket.parent) is None:
            yield "socket", socket
    for folder in store.find_unfinished():
        yield "unfinished session", folder
    for folder in sorted((cache_dir() / "scratch").glob("s_*")):
        # The scratch folder of an existing session is its workspace; it is removed with the session.
        if not store.folder_of(SessionId(folder.name)).exists() and not in_use(folder):
            yield "scratch folder", folder
    for folder in find_unfinished():
        yield "unfinished environment", folder
