"""Stores a session's variables: blobs by digest, and for each cell the blobs that make up the state after it.

The blobs are written by the guest and are not looked into here. The sender may be hostile: what it can make the host
store is bounded in bytes, files and time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedReader, RawIOBase
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import IO, TYPE_CHECKING, Annotated

import msgspec

from pinfold.events import Json, decode_json
from pinfold.sandbox.contract import SandboxError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TOTAL_CAP = 4 << 30
"""Most bytes of all states of a session together; the oldest states are dropped first."""
STATE_CAP = 2 << 30
EACH_CAP = 1 << 30
"""Most bytes of one variable."""
SHARE = 0.2
"""Largest share of the free disk to use."""
MOST = 64
"""Most states kept."""
STALL_S = 30.0
"""Longest silence of the sender, while user code serialises a variable; the guest's own limit is lower."""
RECEIVE_S = 300.0
"""Time limit for one whole state, however much arrives."""
LINE_BYTES = 16 << 20
NAME_CHARS = 1000
BLOBS = 100_000
"""Most blobs of all states of a session together."""
DIGEST_BYTES = 64
SIZE = Struct("<Q")
MISSING = (1 << 64) - 1
"""The size sent for a blob that is not stored."""
_CHUNK = 1 << 20
_DIGEST = re.compile("[0-9a-f]{64}")


class Unsaved(SandboxError):
    """The state was not saved; the text says why."""


class Stalled(Unsaved):
    def __init__(self, name: str) -> None:
        super().__init__(f"saving {name!r} does not end")
        self.name = name


class SavedVariable(msgspec.Struct, frozen=True):
    """One variable of a saved state."""

    name: str
    kind: str
    digest: str = ""
    needs: tuple[str, ...] = ()
    of: str = ""
    reason: str = ""
    note: str = ""
    size: int = 0


class Around(msgspec.Struct, frozen=True):
    flags: int
    folder: str
    path: tuple[str, ...]


class SavedState(msgspec.Struct, frozen=True):
    entries: tuple[SavedVariable, ...]
    cells: dict[str, int]
    around: Around


class _Said(msgspec.Struct, frozen=True):
    """One line from a saver: the variable it is at, a blob that follows, or what the state is made of."""

    at: Annotated[str, msgspec.Meta(max_length=NAME_CHARS)] | None = None
    bytes: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None
    size: Annotated[int, msgspec.Meta(ge=0)] = 0
    entries: tuple[SavedVariable, ...] | None = None
    cells: dict[str, int] = {}
    around: Around | None = None


class Store:
    """The saved states of one session. One caller at a time, from any thread; only `serve` may run in parallel."""

    def __init__(self, folder: Path, *, total_cap: int | None = None, receive_s: float = RECEIVE_S) -> None:
        self._receive_s = receive_s
        self._bytes = folder / "bytes"
        self._states = folder / "states"
        for made in (folder, self._bytes, self._states):
            made.mkdir(mode=0o700, exist_ok=True)
        self._cap = total_cap or min(TOTAL_CAP, int(shutil.disk_usage(folder).free * SHARE))
        self._sizes = {it.name: it.stat().st_size for it in self._bytes.iterdir() if _DIGEST.fullmatch(it.name)}
        self._needs: dict[int, frozenset[str]] = {}
        for path in self._states.glob("*.json"):
            with suppress(ValueError, OSError, RecursionError):
                self._needs[int(path.stem)] = _needs(decode_json(path.read_bytes(), SavedState))

    @property
    def cells(self) -> set[int]:
        """The cells whose states are stored."""
        return set(self._needs)

    def receive(self, cell: int, saver: socket.socket, skip: Mapping[str, str]) -> None:
        """Receive and store the state after `cell` from a copy of the session. Raises Unsaved."""
        saver.settimeout(STALL_S)
        state_cap = min(STATE_CAP, self._cap // 2)
        request = {"known": sorted(self._sizes), "cap": state_cap, "each": min(EACH_CAP, state_cap), "skip": dict(skip)}
        try:
            saver.sendall(json.dumps(request).encode() + b"\n")
            with BufferedReader(_Bounded(saver, self._receive_s), _CHUNK) as said:
                self._hear(cell, said)
        except OSError as error:
            self._thin()
            raise Unsaved(f"the variables could not be saved: {error.strerror or error}") from error
        except Unsaved as error:
            if not isinstance(error, Stalled):
                self._thin()
            raise

    def _hear(self, cell: int, said: IO[bytes]) -> None:
        at, begun = "", len(self._sizes)
        room = self._cap - sum(self._sizes[it] for it in self._sizes.keys() - self._find_needed())
        while True:
            try:
                line = _parse_line(said.readline(LINE_BYTES))
                if line.entries is not None and line.around is not None:
                    self._keep(cell, SavedState(entries=line.entries, cells=line.cells, around=line.around))
                    return
                if line.bytes is not None:
                    room -= line.size
                    if room < 0 or len(self._sizes) - begun > BLOBS // 2:
                        raise Unsaved("it is larger than what may be kept of a session")
                    self._take(said, line.bytes, line.size)
                elif line.at is not None:
                    at = line.at
                else:
                    raise Unsaved("the process that was being saved sent an invalid message")
            except TimeoutError:
                raise Stalled(at) from None

    def load_state(self, cell: int) -> dict[str, Json]:
        """Return the state after `cell`, as a guest needs it to restore that state. Raises Unsaved."""
        try:
            read = (self._states / f"{cell}.json").read_bytes()
            return msgspec.to_builtins(decode_json(read, SavedState))
        except (OSError, ValueError, RecursionError) as error:
            raise Unsaved(f"the saved state after cell {cell} cannot be read: {error}") from error

    def forget(self, cell: int) -> None:
        """Drop the state after `cell`. `_thin` deletes its blobs later."""
        self._needs.pop(cell, None)
        (self._states / f"{cell}.json").unlink(missing_ok=True)

    def serve(self, guest: socket.socket) -> None:
        """Send the blobs it asks for until it hangs up. Never a descriptor, through which it could change the file."""
        with guest, suppress(OSError):
            while digest := guest.recv(DIGEST_BYTES, socket.MSG_WAITALL).decode("ascii", "replace"):
                if digest not in self._sizes:
                    guest.sendall(SIZE.pack(MISSING))
                    continue
                with (self._bytes / digest).open("rb") as file:
                    guest.sendall(SIZE.pack(os.fstat(file.fileno()).st_size))
                    guest.sendfile(file)

    def _take(self, said: IO[bytes], digest: str, size: int) -> None:
        partial = self._bytes / "partial"
        left = size
        with partial.open("wb") as file:
            while left:
                data = said.read(min(left, _CHUNK))
                if not data:
                    raise Unsaved("the copy that was to be saved ended early")
                file.write(data)
                left -= len(data)
        if digest in self._sizes:  # it belongs to another state, and must not be replaced
            partial.unlink()
            return
        partial.rename(self._bytes / digest)
        self._sizes[digest] = size

    def _keep(self, cell: int, told: SavedState) -> None:
        partial = self._states / "partial"
        partial.write_bytes(msgspec.json.encode(told))
        partial.rename(self._states / f"{cell}.json")
        self._needs[cell] = _needs(told)
        self._thin()

    def _thin(self) -> None:
        """Drop the oldest states until the caps are met, but never the newest, and delete unused blobs."""
        while len(self._needs) > 1:
            wanted = self._find_needed()
            is_large = len(wanted) > BLOBS or sum(self._sizes[it] for it in wanted) > self._cap
            if not is_large and len(self._needs) <= MOST:
                break
            self.forget(min(self._needs))
        for digest in self._sizes.keys() - self._find_needed():
            (self._bytes / digest).unlink(missing_ok=True)
            del self._sizes[digest]

    def _find_needed(self) -> set[str]:
        return set[str]().union(*self._needs.values()) & self._sizes.keys()


def _needs(told: SavedState) -> frozenset[str]:
    return frozenset(digest for row in told.entries for digest in (row.digest, *row.needs) if digest)


def _parse_line(line: bytes) -> _Said:
    """Decode straight into the expected type, so that a hostile line creates no other objects."""
    if not line.endswith(b"\n"):
        raise Unsaved("the copy that was to be saved ended early, or does not end")
    try:
        return decode_json(line, _Said)
    except (ValueError, RecursionError) as error:
        raise Unsaved("the process that was being saved sent an invalid message") from error


class _Bounded(RawIOBase):
    """What a saver sends. Raises TimeoutError if it is silent for too long, and Unsaved if it takes too long in all."""

    def __init__(self, saver: socket.socket, seconds: float) -> None:
        self._saver = saver
        self._seconds = seconds
        self._until = monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer, /) -> int:
        left = self._until - monotonic()
        if left > 0:
            self._saver.settimeout(min(STALL_S, left))
            try:
                return self._saver.recv_into(into)
            except TimeoutError:
                if left >= STALL_S:  # otherwise the overall limit has passed, not the one for silence
                    raise
        raise Unsaved(f"saving the variables took more than {self._seconds:g} s")
