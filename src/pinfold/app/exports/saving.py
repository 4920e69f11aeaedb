"""A session into a file: what it is called, where it lies, and never over another one unasked."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Literal, TypeAlias

from pinfold.app.errors import ConfigError
from pinfold.app.exports.forms import EXPORT_FORMS, exported
from pinfold.app.reading import read_session
from pinfold.events import SessionId
from pinfold.log import Damage, Log, export_bundle, summarise
from pinfold.model import record
from pinfold.text import first_line, presentable_line

SessionExport: TypeAlias = Literal["ipynb", "md", "html", "py", "bundle", "jsonl", "replay"]
_SUFFIXES = {"bundle": "pinfold", "replay": "jsonl"}
_NAME = 60


def export_name(folder: Path, session: SessionId, form: SessionExport) -> str:
    """A file name from the session's title; a bundle is called by its id."""
    suffix = _SUFFIXES.get(form, form)
    summary = summarise(folder)
    if form == "bundle" or summary is None:
        return f"{session}.{suffix}"
    words = re.findall(r"\w+", presentable_line(first_line(summary.title, 200)).lower())
    return f"{'-'.join(words)[:_NAME].strip('-_') or session}.{suffix}"


def export_session(
    folder: Path,
    session: SessionId,
    form: SessionExport,
    target: Path,
    *,
    force: bool = False,
    embed: bool = False,
) -> tuple[Path, ...]:
    """Write a session that lies in `folder`. Returns what was written; raises ConfigError, LogError."""
    with read_session(folder, session) as (log, damage):
        return save(log, form, target, damage, force=force, embed=embed)


def save(
    log: Log, form: SessionExport, target: Path, damage: Damage, *, force: bool = False, embed: bool = False
) -> tuple[Path, ...]:
    """As `export_session`; what of the log could not be read is in `damage` afterwards."""
    if not force and (target.is_file() or _leads_to_a_pipe(target)):
        raise ConfigError(f"{target} is there already: --force writes over it, -o names another")
    if form == "bundle":
        export_bundle(log, target, damage)
        return (target,)
    beside = None if embed else f"{target.stem}_files"
    data, files = session_bytes(log, form, damage, beside=beside)
    written = [target.parent / name for name in files]
    if written and not force and (taken := [path for path in written if path.exists()]):
        raise ConfigError(
            f"{taken[0]} is there already: --force writes over it, --embed puts pictures inside"
        )
    for path, content in zip(written, files.values(), strict=True):
        write_file(path, content, into_new_folder=True)
    write_file(target, data)
    return (target, *written)


def session_bytes(
    log: Log, form: SessionExport, damage: Damage, *, beside: str | None = None
) -> tuple[bytes, dict[str, bytes]]:
    """The file, and the files beside it. A bundle is none: it may be larger than memory."""
    if form in EXPORT_FORMS:
        told = exported(form, [*log.read(damage=damage)], log.blobs.get, folder=beside)
        return told.data, {**told.files}
    lines = log.lines(damage) if form == "jsonl" else record(log.read(damage=damage))
    return "".join(f"{line}\n" for line in lines).encode(), {}


def form_for(target: Path) -> SessionExport:
    """By the end of its name; a bundle where that says nothing."""
    suffix = target.suffix.lower().removeprefix(".")
    if suffix == "jsonl":
        return "jsonl"
    return suffix if suffix in EXPORT_FORMS else "bundle"


def _leads_to_a_pipe(target: Path) -> bool:
    """A link that lies in the way, or a pipe, at which nobody reads; those of the machine itself are meant."""
    return (
        target.exists()
        and not target.is_file()
        and not str(target.absolute()).startswith(("/dev/", "/proc/"))
    )


def write_file(path: Path, data: bytes, *, into_new_folder: bool = False) -> None:
    """All or nothing; a device or a pipe is written to as it is."""
    try:
        if into_new_folder:
            path.parent.mkdir(exist_ok=True)
            if path.parent.is_symlink():
                raise ConfigError(f"{path.parent} is a link: take it away, or name another place with -o")
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            mask = os.umask(0)
            os.umask(mask)
            Path(partial).chmod(0o666 & ~mask)
            Path(partial).replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                Path(partial).unlink()
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}; name another place with -o"
        ) from error
