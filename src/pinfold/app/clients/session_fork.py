"""Fork a session: copy its log, its saved variables and its file history to a new session."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing, suppress
from pathlib import Path

from pinfold.app.errors import OwnerGone, SessionBusy
from pinfold.app.ownership.owner import RemoteSession
from pinfold.app.session.options import IMPORTED, is_imported
from pinfold.app.storage.session_store import SessionStore, holder_of, read_session
from pinfold.engine import CommandRefused
from pinfold.events import SessionChanged, SessionForked, SessionId, new_session_id
from pinfold.log import Damage, Log, export_bundle, import_file
from pinfold.sandbox.file_history.shared_contents import keep_for_copy

_KEPT = ("state", "site", "input")
_DIGEST = re.compile("[0-9a-f]{64}")


async def fork(store: SessionStore, session: SessionId, title: str | None = None) -> tuple[SessionId, Damage]:
    """Create the fork, completely or not at all; return its id and the damage found. The source may be live."""
    folder, new = store.folder_of(session), new_session_id()
    if holder_of(folder) is not None:
        with suppress(OwnerGone, SessionBusy, CommandRefused):  # then the fork gets what was saved last
            await RemoteSession(session, folder).save()
    with store.stage_session(new) as partial:
        with read_session(folder, session) as (log, damage):
            last, bundle = log.seq, partial / "bundle"
            with bundle.open("xb") as file:
                export_bundle(log, file, damage)
        import_file(bundle, partial, new)
        bundle.unlink()
        for name in _KEPT:
            if (folder / name).is_dir():
                shutil.copytree(folder / name, partial / name, symlinks=True, copy_function=_copy_file)
        if is_imported(folder):  # a copy of an imported log is no more trusted than the original
            (partial / IMPORTED).touch()
        with closing(Log(partial, new)) as forked:
            await forked.append(SessionForked(source=session, last=last))
            if title:
                await forked.append(SessionChanged(title=title))
        partial.rename(store.folder_of(new))
    with suppress(OSError):
        keep_for_copy(folder / "state/files", store.folder_of(new) / "state/files")
    return new, damage


def _copy_file(source: str, target: str) -> None:
    """Hard-link files that never change (named by digest, or piped input); copy those still written to."""
    with suppress(OSError):  # hard links fail across file systems
        if _DIGEST.fullmatch(Path(source).name) or Path(source).parent.name == "input":
            os.link(source, target)
            return
    with suppress(FileNotFoundError):  # the live session has just dropped it
        shutil.copy2(source, target)
