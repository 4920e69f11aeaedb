"""What is kept of a session's variables: bytes by their digest, and for each cell which of them make up the state after it.

The bytes are the guest's own and nobody here looks into them.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from pinfold.sandbox.contract import SandboxError

TOTAL_CAP = 4 << 30
"""Bytes of all states of a session together; older ones are forgotten first."""
STATE_CAP = 2 << 30
EACH_CAP = 1 << 30
"""Of one variable."""
SHARE = 0.2
"""Of the free disk, at most."""
MOST = 64
"""States."""
STALL_S = 30.0
"""For code of the program's that saving one variable may run; more than it allows itself."""
LINE_BYTES = 32 << 20
QUESTION_BYTES = 128
_CHUNK = 1 << 20
_DIGEST = re.compile("[0-9a-f]{64}")


class Unsaved(SandboxError):
    """The state was not saved; says why."""


class Stalled(Unsaved):
    def __init__(self, name: str) -> None:
        super().__init__(f"saving {name!r} does not end")
        self.name = name


class Row(msgspec.Struct, frozen=True):
    """One variable, as far as we must know of it."""

    name: str
    kind: str
    digest: str = ""
    needs: tuple[str, ...] = ()
    reason: str = ""


class Around(msgspec.Struct, frozen=True):
    flags: int
    folder: str
    path: tuple[str, ...]


class Told(msgspec.Struct, frozen=True):
    entries: tuple[Row, ...]
    cells: dict[str, int]
    around: Around


class Store:
    """One caller at a time, from any thread, but for `serve`, which runs beside what waits for it."""

    def __init__(self, folder: Path, *, total_cap: int | None = None) -> None:
        self._bytes = folder / "bytes"
        self._states = folder / "states"
        for made in (folder, self._bytes, self._states):
            made.mkdir(mode=0o700, exist_ok=True)
        self._cap = total_cap or min(TOTAL_CAP, int(shutil.disk_usage(folder).free * SHARE))
        self._sizes = {
            it.name: it.stat().st_size for it in self._bytes.iterdir() if _DIGEST.fullmatch(it.name)
        }
        self._needs: dict[int, frozenset[str]] = {}
        for path in self._states.glob("*.json"):
            with suppress(ValueError, OSError, msgspec.MsgspecError):
                self._needs[int(path.stem)] = _needs(msgspec.json.decode(path.read_bytes(), type=Told))

    @property
    def cells(self) -> set[int]:
        """Whose states are here."""
        return set(self._needs)

    def receive(self, cell: int, saver: socket.socket, skip: Mapping[str, str]) -> None:
        """Take in the state after `cell` from a copy of the session. Raises Unsaved."""
        saver.settimeout(STALL_S)
        state_cap = min(STATE_CAP, self._cap // 2)
        request = {
            "known": sorted(self._sizes),
            "cap": state_cap,
            "each": min(EACH_CAP, state_cap),
            "skip": dict(skip),
        }
        at, room = "", self._cap
        try:
            saver.sendall(json.dumps(request).encode() + b"\n")
            with saver.makefile("rb") as said:
                while True:
                    line = said.readline(LINE_BYTES)
                    match _parsed(line):
                        case {"at": str(name)}:
                            at = name
                        case {"bytes": str(digest), "size": int(size)} if _DIGEST.fullmatch(digest):
                            room -= size
                            if size < 0 or room < 0:
                                raise Unsaved("it is larger than what may be kept of a session")
                            self._take(said, digest, size)
                        case {"entries": _}:
                            self._keep(cell, line)
                            return
                        case _:
                            raise Unsaved("the copy that was to be saved said something else")
        except TimeoutError:
            raise Stalled(at) from None
        except OSError as error:
            raise Unsaved(f"the variables could not be saved: {error.strerror or error}") from error

    def told(self, cell: int) -> dict[str, Any]:
        """For the guest that is to be as it was after `cell`. Raises Unsaved."""
        try:
            return json.loads((self._states / f"{cell}.json").read_bytes())
        except (OSError, ValueError) as error:
            raise Unsaved(f"the saved state after cell {cell} cannot be read: {error}") from error

    def forget(self, cell: int) -> None:
        """A state that does not come to life."""
        self._needs.pop(cell, None)
        (self._states / f"{cell}.json").unlink(missing_ok=True)

    def serve(self, guest: socket.socket) -> None:
        """Give the files it asks for, until it hangs up."""
        with guest, suppress(OSError):
            while digest := guest.recv(QUESTION_BYTES).decode("ascii", "replace"):
                if not _DIGEST.fullmatch(digest) or digest not in self._sizes:
                    guest.send(b"-")
                    continue
                with (self._bytes / digest).open("rb") as file:
                    socket.send_fds(guest, [b"+"], [file.fileno()])

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
        partial.rename(self._bytes / digest)
        self._sizes[digest] = size

    def _keep(self, cell: int, line: bytes) -> None:
        try:
            told = msgspec.json.decode(line, type=Told)
        except msgspec.MsgspecError as error:
            raise Unsaved(f"the copy that was to be saved said something else: {error}") from None
        partial = self._states / "partial"
        partial.write_bytes(line)
        partial.rename(self._states / f"{cell}.json")
        self._needs[cell] = _needs(told)
        self._thin()

    def _thin(self) -> None:
        """The newest state stays."""
        while len(self._needs) > 1 and (
            len(self._needs) > MOST or sum(self._sizes[it] for it in self._wanted()) > self._cap
        ):
            self.forget(min(self._needs))
        for digest in self._sizes.keys() - self._wanted():
            (self._bytes / digest).unlink(missing_ok=True)
            del self._sizes[digest]

    def _wanted(self) -> set[str]:
        return set[str]().union(*self._needs.values()) & self._sizes.keys()


def _needs(told: Told) -> frozenset[str]:
    return frozenset(digest for row in told.entries for digest in (row.digest, *row.needs) if digest)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
