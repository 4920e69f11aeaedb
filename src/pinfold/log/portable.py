"""Sessions as portable files: JSON lines, or one bundle with the blobs. Reads only JSON and bytes, never code."""

from __future__ import annotations

import re
import shutil
import struct
import zipfile
import zlib
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import IO

from pinfold.events import ActionFinished, BadEvent, BlobId, Entry, SessionId, decode_line, parse_json, plain_json
from pinfold.log.blobs import Blobs, blob_id
from pinfold.log.rows import BadBundle, BlobMissing, Damage, Row, kind_column
from pinfold.log.store import Log

_LAST_NUMBER = 1 << 53
"""Highest event number to import: more than any log reaches, with room for later numbers."""
_TIME = r"(?a)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z"
_LINE_LIMIT = 256 << 20
_BLOB_LIMIT = 1 << 30
_TOTAL_LIMIT = 20 << 30
_EVENTS_LIMIT = 1 << 30
"""Limits of what a bundle may unpack to; it must also fit on the disk."""
_SPARE = 1 << 20
"""Bytes of the disk that stay free."""


def export_bundle(log: Log, target: IO[bytes], damage: Damage) -> None:
    """Write the session as one file. Raises OSError."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("manifest.json", plain_json({"format": "pinfold-bundle", "version": 1, "session": log.session}))
        with bundle.open("events.jsonl", "w", force_zip64=True) as lines:
            for line in log.lines(damage):
                lines.write(line.encode() + b"\n")
        # Include blobs that events name but that are missing, so that they are reported as damage.
        finished = [entry.event for entry in log.read() if isinstance(entry.event, ActionFinished)]
        named = {
            blob for one in finished for blob in (*one.blobs, *chain(*(shown.mime.values() for shown in one.displays)))
        }
        for blob in sorted(named.union(log.blobs.all())):
            try:
                bundle.writestr(f"blobs/{blob.removeprefix('sha256:')}", log.blobs.get(blob))
            except BlobMissing:
                damage.blobs.append(blob)


def import_file(source: Path, folder: Path, session: SessionId) -> tuple[int, SessionId]:
    """Fill the new session folder from a bundle or JSON lines.

    Returns the number of imported events, and the session in which they were written.
    """
    try:
        if zipfile.is_zipfile(source):
            with zipfile.ZipFile(source) as bundle:
                return _import_bundle(bundle, source, folder, session)
        with source.open("rb") as lines:
            _check_room(source, folder, 2 * source.stat().st_size)
            return _import_lines(lines, source, folder, session)
    except OSError as error:
        raise BadBundle(f"{source} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError) as error:
        # zipfile raises all of these for damaged files.
        raise BadBundle(f"{source} is damaged: {error}; export it again") from error


def _check_room(source: Path, folder: Path, size: int) -> None:
    """Raise BadBundle if an import does not fit on the disk. `size` counts events twice: as a file and in the log."""
    left = max(0, shutil.disk_usage(folder).free - _SPARE)
    if size > left:
        free = f"{left >> 20:,} MB that the disk has room for"
        raise BadBundle(f"{source} would unpack to more than the {free}; free some and import it again")


def _import_bundle(bundle: zipfile.ZipFile, source: Path, folder: Path, session: SessionId) -> tuple[int, SessionId]:
    names = {info.filename: info for info in bundle.infolist()}
    if not {"manifest.json", "events.jsonl"} <= names.keys():
        raise BadBundle(f"{source} is a zip file but not a Pinfold bundle: manifest.json or events.jsonl is missing")
    try:
        manifest = parse_json(_read_member(bundle, names["manifest.json"], 1 << 20, source))
    except BadEvent as error:
        raise BadBundle(f"{source}: manifest.json is {error}") from error
    match manifest:
        case {"format": "pinfold-bundle", "version": 1}:
            pass
        case {"format": "pinfold-bundle"}:
            raise BadBundle(f"{source} was written by a newer Pinfold; upgrade to import it")
        case _:
            raise BadBundle(f"{source} is not a Pinfold bundle")
    if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in names.values()):
        raise BadBundle(f"{source} is damaged: its compression is not supported; export it again")
    # zipfile reads no more of a member than the size it claims here.
    claimed = sum(info.file_size for info in names.values())
    if claimed > _TOTAL_LIMIT:
        raise BadBundle(f"{source} would unpack to more than {_TOTAL_LIMIT >> 30} GiB")
    _check_room(source, folder, claimed + names["events.jsonl"].file_size)
    blobs = Blobs(folder / "blobs")
    for name, info in names.items():
        if name.startswith("blobs/"):
            data = _read_member(bundle, info, _BLOB_LIMIT, source)
            if blob_id(data) != BlobId(f"sha256:{name.removeprefix('blobs/')}"):
                raise BadBundle(f"{source}: {name} does not hold what its name says; export it again")
            blobs.put(data)
    with bundle.open("events.jsonl") as lines:
        return _import_lines(lines, source, folder, session)


def _read_member(bundle: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int, source: Path) -> bytes:
    with bundle.open(info) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise BadBundle(f"{source}: {info.filename} is larger than {limit >> 20} MiB")
    return data


def _import_lines(lines: IO[bytes], source: Path, folder: Path, session: SessionId) -> tuple[int, SessionId]:
    rows: list[Row] = []
    origin, size = session, 0
    while line := lines.readline(_LINE_LIMIT):
        size += len(line)
        if size > _EVENTS_LIMIT:
            raise BadBundle(f"{source}: its events are larger than {_EVENTS_LIMIT >> 30} GiB")
        if not line.strip():
            continue
        try:
            row, origin = _row(line)
        except ValueError as error:  # BadEvent, or text that cannot be stored
            raise BadBundle(f"{source}, event {len(rows) + 1}: {error}; export it again") from error
        if row[0] > _LAST_NUMBER:
            raise BadBundle(f"{source}, event {len(rows) + 1}: number {row[0]} is out of range")
        if row[0] <= (rows[-1][0] if rows else 0):
            raise BadBundle(f"{source}, event {len(rows) + 1}: number {row[0]} is out of order")
        rows.append(row)
    if not rows:
        raise BadBundle(f"{source} holds no events")
    with closing(Log(folder, session)) as log:
        log.fill(rows)
    return len(rows), origin


def _row(line: bytes) -> tuple[Row, SessionId]:
    entry = decode_line(line)
    if not isinstance(entry, Entry):
        raise BadEvent("a delta, which is never stored")
    if not re.fullmatch(_TIME, entry.at):
        raise BadEvent("its time is not valid")
    if entry.at > f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M:%S}":
        # The session would always be listed as the last one used.
        raise BadEvent("its time has not come yet: is the clock of this machine right?")
    # Taken from the line, not from the decoded event, to keep unknown fields.
    fields = {key: item for key, item in parse_json(line).items() if key not in ("seq", "session", "at")}
    body = plain_json(fields).encode()
    return (entry.seq, entry.at.encode(), kind_column(fields["kind"]), body, b""), entry.session
