"""List, read and write files of a session's workspace for the user, from the host, never through a link.

Masked files, which the session's code cannot see, are not available here either.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

from msgspec import Struct

from pinfold.events import PinfoldError
from pinfold.sandbox.guards.named_files import is_masked
from pinfold.sandbox.kernel.safe_files import SafeFolder, Stamp, names_in

_MOST = 10_000
"""Maximum entries listed of a folder."""
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
_BLOCK = 1 << 20


class FileRefused(PinfoldError):
    """A path that may not be used."""

    exit_code = 2


class NoSuchFile(PinfoldError):
    exit_code = 2


class FileEntry(Struct, frozen=True, kw_only=True):
    name: str
    type: Literal["file", "folder"]
    size: int
    changed: str


def list_files(workspace: Path, path: str) -> list[FileEntry]:
    """List a folder: folders first, then by name. Raises NoSuchFile, FileRefused."""
    found: list[FileEntry] = []
    inner = _checked(path)
    with _open_below(workspace, path, os.O_RDONLY | os.O_DIRECTORY) as fd:
        for name in names_in(fd)[:_MOST]:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            is_folder = stat.S_ISDIR(status.st_mode)
            if (is_folder or stat.S_ISREG(status.st_mode)) and not is_masked(f"{inner}/{name}" if inner else name):
                changed = datetime.fromtimestamp(status.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                kind = "folder" if is_folder else "file"
                found.append(FileEntry(name=name, type=kind, size=status.st_size, changed=changed))
    return sorted(found, key=lambda one: (one.type == "file", one.name))


@contextmanager
def open_file(workspace: Path, path: str) -> Generator[IO[bytes]]:
    """Raises NoSuchFile, FileRefused."""
    with _open_below(workspace, path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileRefused(f"{path} is not a file")
        with os.fdopen(os.dup(fd), "rb") as file:
            yield file


def write_file(workspace: Path, path: str, source: IO[bytes]) -> None:
    """Write a file, replacing an existing one. Raises NoSuchFile, FileRefused."""
    inner = _checked(path)
    if not inner or inner.split("/")[0] == ".git":
        raise FileRefused(f"{path or 'the workspace'} cannot be uploaded to; name a file outside .git")
    status = workspace.stat()
    owner = (status.st_uid, status.st_gid)
    with _explained(path), closing(SafeFolder(workspace)) as top:
        folders = inner.split("/")[:-1]
        for folder in ("/".join(folders[:depth]) for depth in range(1, len(folders) + 1)):
            if top.status(folder) is None:
                top.make_folder(folder)
                top.give(folder, _FOLDER_MODE, owner, is_folder=True)
        now = top.status(inner)
        if now and not stat.S_ISREG(now.st_mode):
            raise FileRefused(f"{path} exists already and is not a file")

        def copy(fd: int) -> None:
            with open(fd, "wb", closefd=False) as file:
                shutil.copyfileobj(source, file, _BLOCK)

        was = Stamp.of(now) if now else None
        top.put_file(inner, copy, mode=_FILE_MODE, owner=owner, mtime_ns=time.time_ns(), was=was)
        top.finish()


@contextmanager
def _open_below(workspace: Path, path: str, flags: int) -> Generator[int]:
    inner = _checked(path)
    with _explained(path), closing(SafeFolder(workspace)) as top, top.open_below(inner, flags) as fd:
        yield fd


def _checked(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise FileRefused(f"{path!r} does not lie in the workspace; give a path relative to it")
    inner = "/".join(parts)
    if inner and is_masked(inner):
        raise FileRefused(f"{path} has the name of a secrets file and cannot be opened")
    return inner


@contextmanager
def _explained(path: str) -> Generator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoSuchFile(f"there is no {path or 'workspace any more'}") from error
    except OSError as error:
        raise FileRefused(f"{path or 'the workspace'} cannot be used: {error.strerror}") from error
