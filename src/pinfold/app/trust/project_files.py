"""Files of a workspace that steer the agent. Each is read once, so the bytes judged, shown and used are the same.

Paths are opened one name at a time below an open folder. A link is followed only to a file of the same workspace that is
not a secret. Of the folders above, up to the repository's root, only instructions are read; their names begin with `../`.

Instructions are AGENTS.md, or CLAUDE.md if there is none. The user's own are always used, a project's only if trusted.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, is_too_wide
from pinfold.app.trust.project_formats import keys_of, summarize_effects
from pinfold.sandbox.guards.named_files import is_masked

INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
"""The first that exists in a folder is used."""
TOLD_BYTES = 32 << 10
"""Bytes of all instructions together that a model gets."""
SMALL_BYTES = 4 << 10
"""The same for a small model, which needs room for the task."""
_DEEPEST = 32
"""Maximum folders above a workspace that are searched."""
_USER_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    text: str


def folders_above(workspace: Path) -> tuple[Path, ...]:
    """Return the folders above a workspace up to and including its repository's root, nearest first.

    Empty outside a repository, or if one of them is a home folder or belongs to another user, who could write there.
    """
    found: list[Path] = []
    with suppress(OSError):
        owners = {workspace.stat().st_uid, os.geteuid(), 0}
        if _is_root(workspace):
            return ()
        for folder in workspace.parents[:_DEEPEST]:
            if is_too_wide(folder) or folder.stat().st_uid not in owners:
                return ()
            found.append(folder)
            if _is_root(folder):
                return tuple(found)
    return ()


def _is_root(folder: Path) -> bool:
    try:
        mode = (folder / ".git").lstat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)  # it is a file in a worktree


def instructions(
    workspace: Path | None, obeyed: Mapping[str, bytes]
) -> tuple[tuple[Instruction, ...], tuple[str, ...]]:
    """Return the user's instructions, then those among the trusted files `obeyed`, outermost first; and notices."""
    notices: list[str] = []
    found: list[Instruction] = []
    try:
        found += _read_user_instructions()
    except ConfigError as error:
        notices.append(str(error))
    if workspace is not None:
        found += _read_project_instructions(workspace, obeyed)
    size = sum(len(one.text.encode()) for one in found)
    if size > TOLD_BYTES:
        last = found[-1].path
        notices.append(
            f"the instructions are {size >> 10} KB in all, and the model gets only the first {TOLD_BYTES >> 10} KB; "
            f"shorten them, starting with {last}"
        )
    return tuple(found), tuple(notices)


def format_instructions(found: tuple[Instruction, ...], most: int = TOLD_BYTES) -> str:
    """Format instructions for the model, cut at `most` bytes with a note; empty if there are none."""
    lines: list[str] = []
    for one in found:
        data = one.text.encode()
        kept = data[: max(0, most)].decode("utf-8", "ignore")
        most -= len(data)
        lines.append(f"--- {one.path}\n{kept}")
        if len(kept) < len(one.text):
            lines.append("[the rest is left out: it is too long]")
            break
    if not lines:
        return ""
    return "\n".join(
        ["The user's instructions, from files; where they differ, the later one holds.", *lines, "---", ""]
    )


def _read_user_instructions() -> Iterator[Instruction]:
    """Raises ConfigError if others could have written the file."""
    path = config_dir() / INSTRUCTIONS[0]
    try:
        fd = os.open(path, _USER_FILE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path} is ignored: it cannot be read: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is ignored: it is not a regular file")
        if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"{path} is ignored: others can write it; fix it: chmod 600 {path}")
        data = file.read(TOLD_BYTES + 1)
    yield from _instruction(path, data)


def _read_project_instructions(workspace: Path, obeyed: Mapping[str, bytes]) -> Iterator[Instruction]:
    ups = max((name.count("../") for name in obeyed), default=0)
    for up in range(ups, -1, -1):
        for name in INSTRUCTIONS:
            if (data := obeyed.get(f"{'../' * up}{name}")) is not None:
                folder = workspace.parents[up - 1] if up else workspace
                yield from _instruction(folder / name, data)
                break


def _instruction(path: Path, data: bytes) -> Iterator[Instruction]:
    if text := data.decode("utf-8", "replace").strip():
        yield Instruction(path=str(path), text=text)


SETTINGS = "pinfold.toml"
SERVERS = ".mcp.json"
VARIABLES = ".env"
_FILES = (*INSTRUCTIONS, SETTINGS, SERVERS, VARIABLES)
_AGENTS = ".agents"
SKILLS = ".agents/skills"
TOOLS = "tools"
FILE_BYTES = 256 << 10
ALL_BYTES = 4 << 20
MOST = 500
"""Maximum files below `.agents`, and below `tools`."""
_DEEP = 8
_LINKS = 8
_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _TOP | os.O_NOFOLLOW
# Nonblocking, so that opening a pipe does not wait for its other end.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class UnsafeFile(Exception):
    """The file may not be used; the message says why."""


class ProjectFile(Struct, frozen=True, kw_only=True):
    name: str
    """Path relative to the workspace."""
    data: bytes

    def __repr__(self) -> str:
        return f"ProjectFile({self.name!r})"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def is_idle(self) -> bool:
        """True if it has no effect: a `.env` without keys of model providers."""
        return self.name == VARIABLES and not keys_of(self.data)


class ProjectFiles(Struct, frozen=True, kw_only=True):
    """All project files of a workspace, as read at one moment."""

    workspace: Path
    files: tuple[ProjectFile, ...] = ()
    odd: dict[str, str] = {}
    """Project files that exist but may not or cannot be read, with the reason."""

    @property
    def digests(self) -> dict[str, str]:
        return {file.name: file.digest for file in self.files}

    @property
    def digest(self) -> str:
        """Digest of all names and contents."""
        whole = hashlib.sha256()
        for name, digest in sorted(self.digests.items()):
            data = name.encode("utf-8", "surrogateescape")
            whole.update(len(data).to_bytes(8, "big") + data + bytes.fromhex(digest))
        return whole.hexdigest()

    def describe_effects(self, file: ProjectFile) -> tuple[str, ...]:
        """Describe what the file would do, without secrets and including everything it would start."""
        return summarize_effects(file.name, file.data, self.workspace)

    def get(self, name: str) -> bytes | None:
        return next((file.data for file in self.files if file.name == name), None)


def read_project_files(workspace: Path) -> ProjectFiles:
    """Read the project files as they are now. A home folder or `/` never has any."""
    with suppress(OSError, RuntimeError):
        workspace = workspace.resolve()
    if is_too_wide(workspace):
        return ProjectFiles(workspace=workspace)
    collector = _FileCollector()
    with suppress(OSError), _open(workspace) as top:
        for name in _names(top, collector.odd):
            collector.add_file(top, name)
        for up, above in enumerate(folders_above(workspace), 1):
            with suppress(OSError), _open(above) as folder:  # only the first that exists
                any(collector.add_file(folder, name, "../" * up) for name in INSTRUCTIONS)
    return ProjectFiles(workspace=workspace, files=tuple(collector.files), odd=collector.odd)


def read_folder(folder: Path) -> ProjectFiles:
    """Read every file below a folder, such as a skill's. Names are relative to it; links may not leave it."""
    collector = _FileCollector()
    try:
        with _open(folder.parent) as top:
            found = list(islice(_files_below(top, folder.name, _DEEP, ("",)), MOST + 1))
        with _open(folder) as inside:
            for name in found[:MOST]:
                collector.add_file(inside, name.partition("/")[2])
        if len(found) > MOST:
            collector.odd[folder.name] = f"there are more than {MOST} files"
    except UnsafeFile as error:
        collector.odd[folder.name] = str(error)
    except OSError as error:
        collector.odd[folder.name] = f"it cannot be read: {error.strerror}"
    return ProjectFiles(workspace=folder, files=tuple(collector.files), odd=collector.odd)


@contextmanager
def _open(folder: Path | str, flags: int = _TOP, parent: int | None = None) -> Generator[int]:
    opened = os.open(folder, flags, dir_fd=parent)
    try:
        yield opened
    finally:
        os.close(opened)


class _FileCollector:
    def __init__(self) -> None:
        self.files: list[ProjectFile] = []
        self.odd: dict[str, str] = {}
        self._left = ALL_BYTES

    def add_file(self, top: int, name: str, prefix: str = "") -> bool:
        """Add a file, or the reason it cannot be read. Return whether the name exists."""
        try:
            data = _read(top, name, self._left)
        except UnsafeFile as error:
            self.odd[prefix + name] = str(error)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.odd[prefix + name] = f"it cannot be read: {error.strerror}"
        else:
            self._left -= len(data)
            self.files.append(ProjectFile(name=prefix + name, data=data))
        return True


def _names(top: int, odd: dict[str, str]) -> Iterator[str]:
    yield from _FILES
    for folder, deep, endings in ((_AGENTS, _DEEP, ("",)), (TOOLS, 0, (".yaml", ".yml"))):
        try:
            found = _files_below(top, folder, deep, endings)
            yield from islice(found, MOST)
            if any(found):
                odd[folder] = f"there are more than {MOST} files"
        except FileNotFoundError:
            continue
        except UnsafeFile as error:
            odd[folder] = str(error)
        except NotADirectoryError:
            # A file or a link. Only the name `.agents` is certainly meant for Pinfold.
            if folder == _AGENTS:
                odd[folder] = "it is not a folder"
        except OSError as error:
            odd[folder] = f"it cannot be read: {error.strerror}"


def _files_below(parent: int, path: str, deep: int, endings: tuple[str, ...]) -> Iterator[str]:
    """Yield files below a folder without following links to folders. Raises UnsafeFile, OSError."""
    with _open(path.rpartition("/")[2], _FOLDER, parent) as folder:
        with os.scandir(folder) as inside:
            entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in inside)
        for entry, is_folder in entries:
            if not is_folder and entry.endswith(endings):
                yield f"{path}/{entry}"
            elif is_folder and deep:
                if path.count("/") == deep:
                    raise UnsafeFile(f"it is more than {deep} folders deep")
                yield from _files_below(folder, f"{path}/{entry}", deep, endings)


def _read(top: int, path: str, most: int) -> bytes:
    """Raises UnsafeFile, OSError."""
    parts = path.split("/")
    for _ in range(_LINKS + 1):
        fd, target = _open_file(top, parts)
        if fd is None:
            parts = _resolve_link(parts[:-1], target)
            continue
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise FileNotFoundError  # a virtual environment may be called `.env` too
            if not stat.S_ISREG(mode):
                raise UnsafeFile("it is not a regular file")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES + 1)
        finally:
            os.close(fd)
        if len(data) > FILE_BYTES:
            raise UnsafeFile(f"it is larger than {FILE_BYTES >> 10} kB")
        if len(data) > most:
            raise UnsafeFile(f"the project files together are more than {ALL_BYTES >> 20} MB")
        return data
    raise UnsafeFile("it has too many levels of links")


def _open_file(top: int, parts: list[str]) -> tuple[int | None, str]:
    """Open the file; if it is a link, return its target instead."""
    here = os.dup(top)
    try:
        for folder in parts[:-1]:
            try:
                below = os.open(folder, _FOLDER, dir_fd=here)
            except NotADirectoryError as error:
                raise UnsafeFile("a folder on its path is a link or a file") from error
            os.close(here)
            here = below
        with suppress(OSError):
            return None, os.readlink(parts[-1], dir_fd=here)
        return os.open(parts[-1], _FILE, dir_fd=here), ""
    finally:
        os.close(here)


def _resolve_link(folder: list[str], target: str) -> list[str]:
    parts = list(folder)
    if target.startswith("/"):
        raise UnsafeFile("it is a link with an absolute path; links must stay in the workspace")
    for part in target.split("/"):
        if part == ".." and not parts:
            raise UnsafeFile("it is a link that leads out of the workspace")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts or _is_closed(parts):
        raise UnsafeFile(f"it is a link to {'/'.join(parts) or 'a folder'}, which may not be read")
    return parts


def _is_closed(parts: list[str]) -> bool:
    return is_masked("/".join(parts)) or any(part.lower() == ".git" for part in parts)


def read_below(workspace: Path, path: str) -> bytes:
    """Read a workspace file that the user names, up to FILE_BYTES. Raises UnsafeFile, OSError."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise UnsafeFile("it is not in the workspace; give its path from there")
    if not parts:
        raise IsADirectoryError
    if _is_closed(parts):
        raise UnsafeFile("it may not be read")
    with _open(workspace) as top:
        return _read(top, "/".join(parts), FILE_BYTES)
