"""Finds set-uid and set-gid files: a session could rewrite one through a shared map, and it would keep these bits.

No folder's stamp shows the modes of its files, so each file is checked. For many files `find` is faster, and it runs
alongside the walk.
"""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import monotonic

FIND = "/usr/bin/find"
_FEW = 100
"""Up to this many files, a walk is faster than starting `find`."""
_EARLY_S = 2.0
"""How old an early search may be when a session uses it."""
_early: dict[str, tuple[float, subprocess.Popen[bytes]]] = {}
"""Early searches by folder, with their start times."""


def begin_search(top: Path) -> None:
    """Start the search for a session that is opened next, because this is what its opening waits for longest."""
    folder = str(top)
    if top != top.parent and _needs_find(folder) and folder not in _early:
        _early[folder] = monotonic(), (search := _start(folder))
        atexit.register(search.kill)  # the session may never be opened


@contextmanager
def search_set_id(top: str, walk: Callable[[], list[str]]) -> Generator[Callable[[], list[str]]]:
    """Yield a function that returns the paths of these files. It calls `walk` where `find` fails or is not needed."""
    if not _may_have_any(top):
        yield list
        return
    if not _needs_find(top):
        yield walk
        return
    began, early = _early.pop(top, (0.0, None))
    if early and monotonic() - began >= _EARLY_S:
        early.kill()
        early.communicate()
        early = None
    with early or _start(top) as search:

        def read() -> list[str]:
            found, _ = search.communicate()
            return walk() if search.returncode else os.fsdecode(found).split("\0")[:-1]

        try:
            yield read
        finally:
            search.kill()


def _may_have_any(top: str) -> bool:
    # A session writes as the owner of its workspace, so it can rewrite only that user's files. Set-id bits matter only
    # if that is root.
    return os.stat(top).st_uid == 0 and not os.statvfs(top).f_flag & os.ST_NOSUID


def _needs_find(top: str) -> bool:
    return _may_have_any(top) and os.path.exists(FIND) and not _is_small(top)


def _is_small(top: str) -> bool:
    """Return True for a folder with few files and no folders."""
    try:
        with os.scandir(top) as inside:
            first = list(islice(inside, _FEW + 1))
    except OSError:
        return False
    return len(first) <= _FEW and not any(entry.is_dir(follow_symlinks=False) for entry in first)


def _start(top: str) -> subprocess.Popen[bytes]:
    argv = [FIND, top, "-ignore_readdir_race", "-type", "f", "-perm", "/6000", "-print0"]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
