"""Completion of commands, arguments and files after an @, without waiting for a disk; and the history of all chats."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

FILES = 5000
SHOWN = 50
_LOOK_S = 0.5
_FRESH_S = 5.0
_PATTERNS = 200
_WORD = re.compile(r"(?:^|\s)@([^\s@]*)$")
_NEVER = ("node_modules", "__pycache__", ".git", ".venv", "venv")


class ChatCompleter(Completer):
    def __init__(self) -> None:
        self.commands: Callable[[], Iterable[tuple[str, str]]] = tuple
        """Returns each command's name and description."""
        self.arguments: Callable[[str, str], Iterable[str]] = lambda _name, _rest: ()
        self.workspace: Path | None = None
        self._files: list[str] = []
        self._looked_at = -_FRESH_S

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Complete from the files that are known so far."""
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            yield from self._complete_command(text)
        elif match := _WORD.search(text):
            for path in rank_paths(match[1], self._files):
                yield Completion(path, start_position=-len(match[1]))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion]:
        if _WORD.search(document.text_before_cursor) and time.monotonic() - self._looked_at > _FRESH_S:
            self._looked_at = time.monotonic()
            root = self.workspace or Path()
            self._files = await asyncio.to_thread(files_below, root)
        for completion in self.get_completions(document, complete_event):
            yield completion

    def _complete_command(self, text: str) -> Iterable[Completion]:
        name, space, rest = text[1:].partition(" ")
        if not space:
            for known, words in self.commands():
                if known.startswith(name):
                    yield Completion(known, start_position=-len(name), display=f"/{known}", display_meta=words)
            return
        for argument in list(self.arguments(name, rest))[:SHOWN]:
            yield Completion(argument, start_position=-len(rest))


def rank_paths(typed: str, paths: Iterable[str]) -> list[str]:
    """Return paths that begin with `typed`, then those whose name does, then those that contain it."""
    wanted = typed.lower()

    def rank(path: str) -> tuple[bool, bool]:
        return not path.lower().startswith(wanted), not path.lower().rpartition("/")[2].startswith(wanted)

    return sorted((path for path in paths if wanted in path.lower()), key=rank)[:SHOWN]


def files_below(root: Path) -> list[str]:
    """Return the paths below `root` found in half a second, nearest first, without those that git ignores."""
    until = time.monotonic() + _LOOK_S
    found: list[str] = []
    folders = [("", _read_ignore_patterns(root, ()))]
    while folders and len(found) < FILES and time.monotonic() < until:
        folder, ignored = folders.pop(0)
        try:
            with os.scandir(root / folder) as entries:
                listed = sorted(islice(entries, FILES), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in listed:
            if time.monotonic() > until:
                break
            path = f"{folder}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name in _NEVER or not entry.name.isprintable():
                continue
            if _is_ignored(path, entry.name, ignored, is_folder=is_folder):
                continue
            if is_folder:
                found.append(f"{path}/")
                folders.append((f"{path}/", _read_ignore_patterns(root / path, ignored)))
            else:
                found.append(path)
    return found[:FILES]


def _read_ignore_patterns(folder: Path, above: tuple[str, ...]) -> tuple[str, ...]:
    try:
        # Do not wait for a pipe, nor follow a link.
        fd = os.open(folder / ".gitignore", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            data = file.read(10_000) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return above
    patterns = [line.strip()[:200] for line in data.decode("utf-8", "replace").splitlines()[:_PATTERNS]]
    return (*above[:_PATTERNS], *(line for line in patterns if line and not line.startswith(("#", "!"))))


def _is_ignored(path: str, name: str, patterns: tuple[str, ...], *, is_folder: bool) -> bool:
    bare = (pattern.strip("/") for pattern in patterns if is_folder or not pattern.endswith("/"))
    return any(fnmatch(path if "/" in pattern else name, pattern) for pattern in bare)


_READ = 1 << 20
_LONGEST = 10_000
_TRIMMED_AT = 4 << 20


def history_path() -> Path | None:
    """Return the file of the history; None if there is no home folder."""
    base = os.environ.get("XDG_STATE_HOME", "")
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises without a home
    if not base.startswith("/"):
        if not home.startswith("/"):
            return None
        base = f"{home}/.local/state"
    return Path(base) / "pinfold" / "history"


class FileHistory(History):
    """Input history in a file. Errors of reading and writing are ignored."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Yield entries, latest first."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _READ))
                lines = file.read().splitlines()[1 if size > _READ else 0 :]
        except OSError:
            return
        last = None
        for line in reversed(lines):
            try:
                text = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(text, str) and text and text != last:
                yield text
                last = text

    def store_string(self, string: str) -> None:
        if self._path is None or len(string) > _LONGEST:
            return
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _TRIMMED_AT:
                fresh = self._path.with_name(f"{self._path.name}.{os.getpid()}")
                _append(fresh, self._path.read_bytes()[-_READ:].partition(b"\n")[2])
                fresh.replace(self._path)
            _append(self._path, json.dumps(string).encode("ascii") + b"\n")


def _append(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
