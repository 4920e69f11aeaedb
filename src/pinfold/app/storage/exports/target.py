"""A file that is written for the user where code may have been at work: whole or not at all, and through no link of that code's."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import IO, Self

from pinfold.app.errors import ConfigError
from pinfold.app.trust.untrusted_files import mark_host_write

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ELSEWHERE = "name another place with -o"


class Target:
    """Its folder is held from now on, so that what code does later cannot send the file elsewhere.

    `writable` are the folders code may change: below them no link is followed. Raises ConfigError.
    """

    def __init__(self, path: Path, writable: Iterable[Path] = (), *, make_folder: bool = False) -> None:
        self.path = path
        whole = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        self._name = whole.name
        self._is_device = _is_device(whole)
        with self._explain_errors():
            self._folder = _open_folder(whole.parent, [*writable], make_folder=make_folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)

    def check(self) -> None:
        """Raises ConfigError if something is there that `file` would refuse to replace."""
        with contextlib.suppress(FileNotFoundError):
            if not self._is_device:
                os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
                raise ConfigError(f"{self.path} is there already: --force writes over it, or {_ELSEWHERE}")

    def write(self, data: bytes, *, force: bool = False, outside: str = "") -> None:
        with self.file(force=force, outside=outside) as file:
            file.write(data)

    @contextlib.contextmanager
    def file(self, *, force: bool = False, outside: str = "") -> Generator[IO[bytes]]:
        """To write into; it takes its place at the end. Raises ConfigError.

        `force`: in place of what is there. `outside`: the session whose outside text may be in it.
        """
        with self._explain_errors():
            if self._is_device:
                with self.path.open("wb") as file:
                    yield file
                return
            partial = f".pinfold-{secrets.token_hex(8)}"
            fd = os.open(partial, _NEW, 0o666, dir_fd=self._folder)
            try:
                with os.fdopen(fd, "wb") as file:
                    yield file
                if not force:
                    self.check()
                with mark_host_write(outside, self.path) if outside else contextlib.nullcontext():
                    os.rename(partial, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial, dir_fd=self._folder)

    @contextlib.contextmanager
    def _explain_errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}; {_ELSEWHERE}") from error


def _is_device(whole: Path) -> bool:
    """`/dev/stdout`, or a pipe the shell made: meant as they are. One that lies elsewhere is a file in the way."""
    text = str(whole)
    return text.startswith(("/dev/", "/proc/")) and not text.startswith("/dev/shm/") and not whole.is_file()  # noqa: S108


def _open_folder(folder: Path, writable: list[Path], *, make_folder: bool) -> int:
    top = next((one for one in reversed((folder, *folder.parents)) if _is_any(one, writable)), folder)
    if make_folder and top == folder and not writable:
        top = folder.parent
    fd = os.open(top, _FOLDER)
    parts = folder.relative_to(top).parts
    for depth, part in enumerate(parts, 1):
        try:
            if make_folder and depth == len(parts):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
        except NotADirectoryError:
            here = top.joinpath(*parts[:depth])
            raise ConfigError(f"{here} is a link: name the place it leads to, or {_ELSEWHERE}") from None
        finally:
            os.close(fd)
        fd = below
    return fd


def _is_any(folder: Path, others: list[Path]) -> bool:
    return any(folder.exists() and other.exists() and folder.samefile(other) for other in others)
