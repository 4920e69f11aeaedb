"""A session into a file: what it is called, where it lies, and never over another one unasked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from pinfold.app.errors import ConfigError
from pinfold.app.session.live_session import is_imported
from pinfold.app.storage.exports.formats import EXPORT_FORMS, render_session
from pinfold.app.storage.exports.target import Target
from pinfold.app.storage.session_reader import read_session
from pinfold.events import ActionFinished, Entry, SessionId, SessionOpened
from pinfold.log import Damage, Log, export_bundle, summarise
from pinfold.model import record
from pinfold.text import first_line, presentable_line

SessionExport: TypeAlias = Literal["ipynb", "md", "html", "py", "bundle", "json", "jsonl", "replay"]
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
    folder: Path, session: SessionId, form: SessionExport, target: Path, *, force: bool = False, embed: bool = False
) -> tuple[Path, ...]:
    """Write a session that lies in `folder`. Returns what was written; raises ConfigError, LogError."""
    with read_session(folder, session) as (log, damage):
        return save(log, form, target, damage, force=force, embed=embed)


def save(
    log: Log, form: SessionExport, target: Path, damage: Damage, *, force: bool = False, embed: bool = False
) -> tuple[Path, ...]:
    """As `export_session`; what of the log could not be read is in `damage` afterwards."""
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
        data, files = session_bytes(log, form, damage, beside=beside)
        written = [target.parent / name for name in files]
        if written and not force and (taken := [path for path in written if os.path.lexists(path)]):
            raise ConfigError(f"{taken[0]} is there already: --force writes over it, --embed puts pictures inside")
        for path, content in zip(written, files.values(), strict=True):
            with Target(path, writable, make_folder=True) as picture:
                picture.write(content, force=force, outside=outside)
        place.write(data, force=force, outside=outside)
    return (target, *written)


def writable_folders(entries: Iterable[Entry]) -> list[Path]:
    """What the code of a session could change: its workspace, and what was mounted to be changed."""
    opened = [entry.event for entry in entries if isinstance(entry.event, SessionOpened)]
    mounts = [path for event in opened for path, writable in event.mounts.items() if writable]
    return [Path(path) for path in {*mounts, *(event.workspace for event in opened)}]


def find_outside_source(session: SessionId, entries: Iterable[Entry]) -> str:
    """The session, if others' words may be in it."""
    for event in (entry.event for entry in entries):
        match event:
            case SessionOpened(imported=True) | SessionOpened(untrusted=True) | ActionFinished(untrusted=True):
                return session
            case _:
                pass
    return ""


def session_bytes(
    log: Log, form: SessionExport, damage: Damage, *, beside: str | None = None
) -> tuple[bytes, dict[str, bytes]]:
    """The file, and the files beside it. A bundle is none: it may be larger than memory."""
    if form in EXPORT_FORMS:
        told = render_session(form, [*log.read(damage=damage)], log.blobs.get, folder=beside)
        return told.data, {**told.files}
    if form == "json":
        events = ",\n".join(log.lines(damage))
        return f"[\n{events}\n]\n".encode(), {}
    lines = log.lines(damage) if form == "jsonl" else record(log.read(damage=damage))
    return "".join(f"{line}\n" for line in lines).encode(), {}


def form_for(target: Path) -> SessionExport:
    """By the end of its name; a bundle where that says nothing."""
    suffix = target.suffix.lower().removeprefix(".")
    return suffix if suffix in (*EXPORT_FORMS, "json", "jsonl") else "bundle"
