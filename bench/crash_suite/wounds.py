"""Damage to the files of a store at rest: tails cut off, bits flipped. What is left must be told from what is not."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
from bench.crash_suite.launch import Forkserver
from bench.crash_suite.oracle import Tally
from bench.crash_suite.places import PROMPT, TALK, WORK, new_place

from pinfold.events import BlobId, Entry, Noticed, SessionId
from pinfold.log import BlobMissing, Damage, Log, LogError

Rest: TypeAlias = Literal["killed", "closed"]
"""Killed: everything is in the write-ahead log still. Closed: everything is in the store itself."""
Fate: TypeAlias = Literal["harmless", "reported", "refused"]
CRASHES = "opening and reading a damaged store never crashes"
TOLD = "what is gone is reported"
SAME = "what is given out is what was written"
USABLE = "a store that opens can be repaired, written and read again"
SPOKEN = "`pinfold resume` says the same, in a notice or one error line"
LAWS = (CRASHES, TOLD, SAME, USABLE)
_TAIL = 4096
_WORKERS = 2
_AFTER = Noticed(text="written after the damage")


@dataclass(frozen=True, slots=True)
class Wound:
    """Where a file ends too early, or which bit of it changes."""

    file: str
    at: int
    bit: int | None = None

    def inflict(self, folder: Path) -> None:
        path = folder / self.file
        data = bytearray(path.read_bytes())
        if self.bit is None:
            del data[self.at :]
        else:
            data[self.at] ^= 1 << self.bit
        path.write_bytes(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """What a store held before it was damaged."""

    entries: dict[int, Entry]
    blobs: dict[BlobId, bytes]


def whole_store(server: Forkserver, root: Path, rest: Rest) -> Path:
    """The folder of a real session at rest."""
    place = new_place(root / "made", WORK)
    ended = server.start(place, place.run()).until()
    folder = place.session_folder()
    assert ended.code == 0
    assert folder is not None
    (folder / "owner.lock").unlink()
    return folder if rest == "closed" else _unclosed(folder, root / "killed" / folder.name)


def _unclosed(folder: Path, target: Path) -> Path:
    """The same events as a killed process leaves them."""

    async def append(log: Log, entries: list[Entry]) -> None:
        for entry in entries:
            await log.append(entry.event)

    session = SessionId(folder.name)
    with (
        tempfile.TemporaryDirectory(prefix="crash-wounds-") as temporary,
        closing(Log(folder, session)) as source,
        closing(Log(Path(temporary), session)) as log,
    ):
        anyio.run(append, log, list(source.read()))
        shutil.copytree(temporary, target)
    shutil.copytree(folder / "blobs", target / "blobs")
    return target


def tail_cuts(folder: Path, every: int = 1) -> list[Wound]:
    """At each byte of the last 4 KiB of each store file, and at each page before: where disks lose tails."""
    cuts: list[Wound] = []
    for name in ("log.sqlite", "log.sqlite-wal"):
        if (folder / name).exists():
            size = (folder / name).stat().st_size
            tail = range(size - 1, max(size - _TAIL, 0) - 1, -every)
            cuts += [Wound(name, at) for at in (*tail, *range(size - 2 * _TAIL, 0, -_TAIL))]
    return cuts


def bit_flips(folder: Path, count: int, seed: int) -> list[Wound]:
    """Uniform over every byte of every file."""
    chance = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = [path.stat().st_size for path in files]
    return [
        Wound(str(path.relative_to(folder)), chance.randrange(path.stat().st_size), chance.randrange(8))
        for path in chance.choices(files, sizes, k=count)
    ]


def examine_all(folder: Path, wounds: Iterable[Wound], reader: type[Log] = Log) -> Tally:
    """In processes of their own: a wound that brings the interpreter down is a crash too."""
    total = Tally()
    with ProcessPoolExecutor(_WORKERS, mp_context=get_context("spawn")) as pool:
        for tally in pool.map(partial(_examine, folder, reader=reader), wounds, chunksize=16):
            total.add(tally)
    return total


def _examine(folder: Path, wound: Wound, reader: type[Log]) -> Tally:
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="crash-wounds-") as temporary:
        copy = folder_copy(folder, Path(temporary) / folder.name)
        wound.inflict(copy)
        try:
            fate = _fate(tally, reader, copy, wound, _whole(folder))
        except Exception as error:  # noqa: BLE001 - any at all is the finding
            tally.judge(CRASHES, False, f"{wound}: {type(error).__name__}: {error}")
        else:
            tally.judge(CRASHES, True)
            tally.seen[f"{'cut' if wound.bit is None else 'flip'} in {_kind(wound)}: {fate}"] += 1
            tally.seen[fate] += 1
    return tally


def folder_copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def _kind(wound: Wound) -> str:
    return "a blob" if wound.file.startswith("blobs/") else wound.file


@cache
def _whole(folder: Path) -> _Whole:
    with tempfile.TemporaryDirectory(prefix="crash-wounds-") as temporary:
        copy = folder_copy(folder, Path(temporary) / folder.name)
        with closing(Log(copy, SessionId(folder.name))) as log:
            return _Whole(
                entries={entry.seq: entry for entry in log.read()},
                blobs={blob: log.blobs.get(blob) for blob in log.blobs.all()},
            )


def _fate(tally: Tally, reader: type[Log], folder: Path, wound: Wound, whole: _Whole) -> Fate:
    try:
        log = reader(folder, SessionId(folder.name))
    except LogError:
        return "refused"
    with closing(log):
        damage = Damage()
        read = list(log.read(damage=damage))
        tally.judge(SAME, all(whole.entries.get(entry.seq) == entry for entry in read), wound)
        gone = whole.entries.keys() - {entry.seq for entry in read}
        tally.seen["events still readable"] += len(read)
        tally.seen["events gone"] += len(gone)
        tally.judge(TOLD, bool(damage) or not gone, f"{wound}: {sorted(gone)} are gone")
        lost_blobs = [blob for blob, data in whole.blobs.items() if not _intact(log, blob, data)]
        log.repair(damage)
        added = anyio.run(log.append, _AFTER)
    with closing(reader(folder, SessionId(folder.name))) as again:
        later = Damage()
        tally.judge(USABLE, [*again.read(damage=later)] == [*read, *added] and not later, wound)
    return "reported" if damage or lost_blobs else "harmless"


def _intact(log: Log, blob: BlobId, data: bytes) -> bool:
    try:
        return log.blobs.get(blob) == data
    except BlobMissing:
        return False


def speak_of(server: Forkserver, folder: Path, wounds: Iterable[Wound]) -> Tally:
    """What a user who resumes the session is told."""
    tally = Tally()
    for wound in wounds:
        with tempfile.TemporaryDirectory(prefix="crash-wounds-") as temporary:
            place = new_place(Path(temporary) / "place", TALK)
            copy = folder_copy(folder, place.sessions / folder.name)
            wound.inflict(copy)
            fate = _fate_alone(folder, wound)
            ended = server.start(place, place.resume(folder.name, PROMPT)).until()
            said = place.complaints.read_text().splitlines()
            notices = [event["text"] for event in ended.acknowledged if event["kind"] == "Noticed"]
            noticed = any("damaged" in text for text in notices)
            match fate:
                case "refused":
                    kept = ended.code != 0 and len(said) == 1 and "unexpected" not in said[0]
                case "reported":
                    kept = ended.code == 0 and (noticed or wound.file.startswith("blobs/"))
                case "harmless":
                    kept = ended.code == 0 and not noticed
            tally.judge(SPOKEN, kept, f"{wound}, {fate}: exit {ended.code}, {said}, {notices}")
    return tally


def _fate_alone(folder: Path, wound: Wound) -> Fate:
    seen = _examine(folder, wound, Log).seen
    fates: tuple[Fate, ...] = ("harmless", "reported", "refused")
    return next(fate for fate in fates if seen[fate])
