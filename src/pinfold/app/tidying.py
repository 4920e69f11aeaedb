"""Finding what a killed Pinfold left behind, and putting it away: what `pinfold cleanup` does."""

from __future__ import annotations

from collections.abc import Iterator

from pinfold.app.lock import holder_of
from pinfold.app.paths import cache_dir, up_dir, warm_dir
from pinfold.app.shelf import Shelf
from pinfold.events import SessionId
from pinfold.sandbox.environment import unfinished
from pinfold.sandbox.leftovers import in_use, removed, swept


def tidied(*, dry_run: bool) -> Iterator[tuple[str, str]]:
    """The kind and the name of each thing that was ended or removed, or would be. What anyone alive uses stays."""
    yield from swept(dry_run=dry_run)
    shelf = Shelf()
    places = [place for place in (up_dir(), warm_dir()) if holder_of(place) is None]
    left = [socket for place in places for socket in sorted(place.glob("*.sock"))]
    for socket in (*shelf.unanswered(), *left):
        if not dry_run:
            socket.unlink(missing_ok=True)
        yield "socket", str(socket)
    for folder in shelf.unfinished():
        if not dry_run:
            removed(folder)
        yield "unfinished session", str(folder)
    scratch = cache_dir() / "scratch"
    for folder in sorted(scratch.glob("s_*")):
        # A kept session's scratch folder is its workspace, and goes with the session.
        if not shelf.place(SessionId(folder.name)).exists() and not in_use(folder):
            if not dry_run:
                removed(folder)
            yield "scratch folder", str(folder)
    for folder in unfinished():
        if not dry_run:
            removed(folder)
        yield "unfinished environment", str(folder)
