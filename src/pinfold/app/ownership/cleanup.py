"""Finding what a killed Pinfold left behind, and putting it away: what `pinfold cleanup` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pinfold.app.paths import cache_dir, up_dir, warm_dir
from pinfold.app.storage.lock import holder_of
from pinfold.app.storage.session_store import SessionStore
from pinfold.events import SessionId
from pinfold.sandbox.environment import find_unfinished
from pinfold.sandbox.kernel.folders import in_use, remove_folder
from pinfold.sandbox.kernel.processes import sweep_leftovers

_SOCKET = "socket"


def clean_up(*, dry_run: bool) -> Iterator[tuple[str, str]]:
    """The kind and the name of each thing that was ended or removed, or would be. What anyone alive uses stays."""
    yield from sweep_leftovers(dry_run=dry_run)
    for kind, path in _find_leftovers(SessionStore()):
        if not dry_run:
            if kind == _SOCKET:
                path.unlink(missing_ok=True)
            else:
                remove_folder(path)
        yield kind, str(path)


def _find_leftovers(shelf: SessionStore) -> Iterator[tuple[str, Path]]:
    for socket in shelf.find_stale_sockets():
        yield _SOCKET, socket
    for folder in shelf.find_unfinished():
        yield "unfinished session", folder
    for place in (up_dir(), warm_dir()):
        for socket in sorted(place.glob("*.sock")) if holder_of(place) is None else ():
            yield _SOCKET, socket
    for folder in sorted((cache_dir() / "scratch").glob("s_*")):
        # A kept session's scratch folder is its workspace, and goes with the session.
        if not shelf.folder_of(SessionId(folder.name)).exists() and not in_use(folder):
            yield "scratch folder", folder
    for folder in find_unfinished():
        yield "unfinished environment", folder
