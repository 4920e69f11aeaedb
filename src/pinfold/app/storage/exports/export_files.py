"""Write a session, or one of its displays, to a file: format, name and place. Never replaces a file without `force`.

Files are written completely or not at all, and never through a link that code of a session made.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, Self, TypeAlias, assert_never

from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import explain_errors, private_dir
from pinfold.app.session.options import is_imported
from pinfold.app.storage.exports.html import display_page, to_html
from pinfold.app.storage.exports.md import to_md
from pinfold.app.storage.exports.programs import to_ipynb, to_py
from pinfold.app.storage.exports.transcript import (
    Form,
    ReadBlob,
    ShownDisplay,
    best_of,
    build_transcript,
    display_form,
    display_label,
    suffix_of,
)
from pinfold.app.trust.untrusted_files import mark_host_write
from pinfold.events import ActionFinished, DisplayRef, Entry, PinfoldError, SessionId, SessionOpened
from pinfold.log import Damage, Log, export_bundle, summarise
from pinfold.model import record
from pinfold.text import first_line, presentable_line

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ELSEWHERE = "name another place with -o"


class Target:
    """A file to write. Its folder is opened at once, so that code cannot redirect the file later.

    `writable` are the folders that code may change; no link is followed below them. Raises ConfigError.
    """

    def __init__(self, path: Path, writable: Iterable[Path] = (), *, make_folder: bool = False) -> None:
        self.path = path
        whole = Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links
        self._name = whole.name
        self._is_device = _is_device(whole)
        with explain_errors(f"{path} cannot be written", _ELSEWHERE):
            self._folder = _open_folder(whole.parent, [*writable], make_folder=make_folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)

    def check(self) -> None:
        """Raises ConfigError if a file is there that `file` would refuse to replace."""
        with contextlib.suppress(FileNotFoundError):
            if not self._is_device:
                os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
                raise ConfigError(f"{self.path} exists already: --force overwrites it, or {_ELSEWHERE}")

    def write(self, data: bytes, *, force: bool = False, outside: str = "") -> None:
        with self.file(force=force, outside=outside) as file:
            file.write(data)

    @contextlib.contextmanager
    def file(self, *, force: bool = False, outside: str = "") -> Generator[IO[bytes]]:
        """Open a temporary file that takes the target's place at the end. Raises ConfigError.

        `force`: replace an existing file. `outside`: the session whose outside text may be in the file.
        """
        with explain_errors(f"{self.path} cannot be written", _ELSEWHERE):
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


def _is_device(whole: Path) -> bool:
    """True for `/dev/stdout` or a pipe of the shell: these are opened directly. Devices elsewhere count as files."""
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


SessionExport: TypeAlias = Literal["ipynb", "md", "html", "py", "bundle", "json", "jsonl", "replay"]
_SUFFIXES = {"bundle": "pinfold", "replay": "jsonl"}
_NAME = 60


def export_name(folder: Path, session: SessionId, form: SessionExport) -> str:
    """Return a file name made from the session's title, or for a bundle from its id."""
    suffix = _SUFFIXES.get(form, form)
    summary = summarise(folder)
    if form == "bundle" or summary is None:
        return f"{session}.{suffix}"
    words = re.findall(r"\w+", presentable_line(first_line(summary.title, 200)).lower())
    return f"{'-'.join(words)[:_NAME].strip('-_') or session}.{suffix}"


def save(
    log: Log, form: SessionExport, target: Path, damage: Damage, *, force: bool = False, embed: bool = False
) -> tuple[Path, ...]:
    """Write a session; return the paths written. `damage` notes unreadable parts. Raises ConfigError, LogError."""
    writable, outside = writable_folders(log.read()), find_outside_source(log.session, log.read())
    if log.folder is not None and is_imported(log.folder):
        outside = log.session
    with Target(target, writable) as place:
        if not force:
            place.check()
        if form == "bundle":
            with place.file(force=force, outside=outside) as file:
                export_bundle(log, file, damage)
            return (target,)
        beside = None if embed else f"{target.stem}_files"
        rendered = session_bytes(log, form, damage, beside=beside)
        written = [target.parent / name for name in rendered.files]
        if written and not force and (taken := [path for path in written if os.path.lexists(path)]):
            raise ConfigError(f"{taken[0]} exists already: --force overwrites it, --embed puts pictures inside")
        for path, content in zip(written, rendered.files.values(), strict=True):
            with Target(path, writable, make_folder=True) as picture:
                picture.write(content, force=force, outside=outside)
        place.write(rendered.data, force=force, outside=outside)
    return (target, *written)


def writable_folders(entries: Iterable[Entry]) -> list[Path]:
    """Return the folders that a session's code could change: its workspace and writable mounts."""
    opened = [entry.event for entry in entries if isinstance(entry.event, SessionOpened)]
    mounts = [path for event in opened for path, writable in event.mounts.items() if writable]
    return [Path(path) for path in {*mounts, *(event.workspace for event in opened)}]


def find_outside_source(session: SessionId, entries: Iterable[Entry]) -> str:
    """Return the session's id if it may hold outside text, else an empty string."""
    for event in (entry.event for entry in entries):
        match event:
            case SessionOpened(imported=True) | SessionOpened(untrusted=True) | ActionFinished(untrusted=True):
                return session
            case _:
                pass
    return ""


def session_bytes(log: Log, form: SessionExport, damage: Damage, *, beside: str | None = None) -> RenderedSession:
    """Render a session in any form but a bundle, which may be larger than memory."""
    if form in EXPORT_FORMS:
        return render_session(form, [*log.read(damage=damage)], log.blobs.get, folder=beside)
    if form == "json":
        events = ",\n".join(log.lines(damage))
        return RenderedSession(data=f"[\n{events}\n]\n".encode())
    lines = log.lines(damage) if form == "jsonl" else record(log.read(damage=damage))
    return RenderedSession(data="".join(f"{line}\n" for line in lines).encode())


def form_for(target: Path) -> SessionExport:
    """Return the form for a file's suffix; a bundle if it has no known one."""
    suffix = target.suffix.lower().removeprefix(".")
    return suffix if suffix in (*EXPORT_FORMS, "json", "jsonl") else "bundle"


ExportForm: TypeAlias = Literal["ipynb", "md", "html", "py"]
EXPORT_FORMS: tuple[ExportForm, ...] = ("ipynb", "md", "html", "py")


class RenderedSession(Struct, frozen=True, kw_only=True):
    data: bytes
    files: Mapping[str, bytes] = {}
    """Further files by relative path."""


def render_session(
    form: ExportForm, entries: Sequence[Entry], blob: ReadBlob, *, folder: str | None = None
) -> RenderedSession:
    """Render a session. `folder` is where pictures of markdown go; None embeds them."""
    transcript = build_transcript(entries, blob)
    match form:
        case "ipynb":
            return RenderedSession(data=to_ipynb(transcript))
        case "md":
            data, beside = to_md(transcript, folder)
            return RenderedSession(data=data, files=beside)
        case "html":
            return RenderedSession(data=to_html(transcript))
        case "py":
            return RenderedSession(data=to_py(transcript))
        case _:
            assert_never(form)


_RUNS = ("text/html", "image/svg+xml")
"""Types in which a browser would run scripts."""


def display_file(
    folder: Path, entries: Sequence[Entry], blob: ReadBlob, number: int, mime: str | None = None, *, safe: bool
) -> Path:
    """Write a display to the session's folder. `safe` wraps types that could run scripts in an inert page."""
    form = display_form(entries, blob, number, mime)
    place = private_dir(folder / "displays")
    if safe and form.mime in _RUNS:
        path = place / f"{number}-safe.html"
        data = display_page(ShownDisplay(number=number, forms={form.mime: form}))
    else:
        path, data = place / f"{number}.{suffix_of(form.mime)}", form.data
    with Target(path) as target:
        target.write(data, force=True)
    return path


def label_stored_display(number: int, display: DisplayRef, blob: ReadBlob) -> str:
    """Return a label such as `display 3: image/png 640x480`."""
    best = best_of(display.mime)
    forms: dict[str, Form] = {}
    if best is not None:
        with contextlib.suppress(PinfoldError):
            forms[best] = Form(mime=best, data=blob(display.mime[best]))
    return display_label(number, forms)
