"""What in a workspace would be obeyed, read once: what is judged, shown and used are the same bytes.

Every step is one name below an open folder. A link is followed only to a file of the same workspace that is no secret.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pinfold.app.dotenv import keys_of
from pinfold.app.paths import is_too_wide
from pinfold.app.would_do import would_do
from pinfold.sandbox import is_masked

INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
SETTINGS = "pinfold.toml"
SERVERS = ".mcp.json"
VARIABLES = ".env"
_FILES = (*INSTRUCTIONS, SETTINGS, SERVERS, VARIABLES)
_SKILLS = ".agents"
_TOOLS = "tools"
FILE_BYTES = 256 << 10
ALL_BYTES = 4 << 20
MOST = 500
"""Files below `.agents`, and below `tools`."""
_DEEP = 8
_LINKS = 8
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Nonblocking: a pipe must not make us wait for its other end.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Odd(Exception):
    """It cannot be obeyed; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObeyedFile:
    name: str
    """Its path in the workspace."""
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def is_idle(self) -> bool:
        """Nothing in it would be taken."""
        return self.name == VARIABLES and not keys_of(self.data)

    @property
    def what(self) -> str:
        """What it would do, in one line that holds no secret."""
        return would_do(self.name, self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obeyed:
    """All of it, as it was at one moment."""

    workspace: Path
    files: tuple[ObeyedFile, ...] = ()
    odd: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is there under such a name and cannot be read, with the reason."""

    @property
    def digests(self) -> dict[str, str]:
        return {file.name: file.digest for file in self.files}

    @property
    def digest(self) -> str:
        """Of all names and contents: another name, another content or another file gives another one."""
        whole = hashlib.sha256()
        for name, digest in sorted(self.digests.items()):
            data = name.encode("utf-8", "surrogateescape")
            whole.update(len(data).to_bytes(8, "big") + data + bytes.fromhex(digest))
        return whole.hexdigest()

    def get(self, name: str) -> bytes | None:
        return next((file.data for file in self.files if file.name == name), None)


def obeyed(workspace: Path) -> Obeyed:
    """What is there now. Nothing in a home folder or the root ever is."""
    with suppress(OSError, RuntimeError):
        workspace = workspace.resolve()
    if is_too_wide(workspace):
        return Obeyed(workspace=workspace)
    try:
        top = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return Obeyed(workspace=workspace)
    files: list[ObeyedFile] = []
    odd: dict[str, str] = {}
    left = ALL_BYTES
    try:
        for name in _names(top, odd):
            try:
                data = _read(top, name, left)
            except Odd as error:
                odd[name] = str(error)
            except FileNotFoundError:
                continue
            except OSError as error:
                odd[name] = f"it cannot be read: {error.strerror}"
            else:
                left -= len(data)
                files.append(ObeyedFile(name=name, data=data))
    finally:
        os.close(top)
    return Obeyed(workspace=workspace, files=tuple(files), odd=odd)


def _names(top: int, odd: dict[str, str]) -> Iterator[str]:
    yield from _FILES
    for walk in (_Walk(_SKILLS, deep=_DEEP), _Walk(_TOOLS, endings=(".yaml", ".yml"))):
        try:
            yield from walk.files(top, walk.folder)
        except FileNotFoundError:
            continue
        except Odd as error:
            odd[walk.folder] = str(error)
        except NotADirectoryError:
            # A file or a link. Of that name, only `.agents` is surely meant for us.
            if walk.folder == _SKILLS:
                odd[walk.folder] = "it is no folder"
        except OSError as error:
            odd[walk.folder] = f"it cannot be read: {error.strerror}"


class _Walk:
    """Files below a folder, no link to a folder among the steps."""

    def __init__(self, folder: str, *, deep: int = 0, endings: tuple[str, ...] = ("",)) -> None:
        self.folder = folder
        self._deep = deep
        self._endings = endings
        self._left = MOST

    def files(self, parent: int, path: str) -> Iterator[str]:
        """Raises Odd, OSError."""
        folder = os.open(path.rpartition("/")[2], _FOLDER, dir_fd=parent)
        try:
            with os.scandir(folder) as inside:
                entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in inside)
            for entry, is_folder in entries:
                if not is_folder and entry.endswith(self._endings):
                    self._left -= 1
                    if self._left < 0:
                        raise Odd(f"there are more than {MOST} files")
                    yield f"{path}/{entry}"
                elif is_folder and self._deep:
                    if path.count("/") == self._deep:
                        raise Odd(f"it is more than {self._deep} folders deep")
                    yield from self.files(folder, f"{path}/{entry}")
        finally:
            os.close(folder)


def _read(top: int, path: str, most: int) -> bytes:
    """Raises Odd, OSError."""
    parts = path.split("/")
    for _ in range(_LINKS + 1):
        fd, target = _opened(top, parts)
        if fd is None:
            parts = _followed(parts[:-1], target)
            continue
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise FileNotFoundError  # `.env` is a name for virtual environments too
            if not stat.S_ISREG(mode):
                raise Odd("it is no regular file")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES + 1)
        finally:
            os.close(fd)
        if len(data) > FILE_BYTES:
            raise Odd(f"it is larger than {FILE_BYTES >> 10} kB")
        if len(data) > most:
            raise Odd(f"all of it together is more than {ALL_BYTES >> 20} MB")
        return data
    raise Odd("it is a link that leads on and on")


def _opened(top: int, parts: list[str]) -> tuple[int | None, str]:
    """The file, or where the link leads that is there instead."""
    here = os.dup(top)
    try:
        for folder in parts[:-1]:
            try:
                below = os.open(folder, _FOLDER, dir_fd=here)
            except NotADirectoryError as error:
                raise Odd("a link or a file is on the way to it") from error
            os.close(here)
            here = below
        with suppress(OSError):
            return None, os.readlink(parts[-1], dir_fd=here)
        return os.open(parts[-1], _FILE, dir_fd=here), ""
    finally:
        os.close(here)


def _followed(folder: list[str], target: str) -> list[str]:
    parts = list(folder)
    if target.startswith("/"):
        raise Odd("it is a link with an absolute path; links must stay in the workspace")
    for part in target.split("/"):
        if part == ".." and not parts:
            raise Odd("it is a link that leads out of the workspace")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts or any(is_masked(part) or part.lower() == ".git" for part in parts):
        raise Odd(f"it is a link to {'/'.join(parts) or 'a folder'}, which is not for reading")
    return parts
