"""A copy that is to be saved may say anything: what the host holds of it is bounded, and other states are not touched."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from pathlib import Path
from threading import Thread

import pytest

from pinfold.sandbox.session.saved_states import CellJournal
from pinfold.sandbox.session.state_store import MISSING, SIZE, Store, Unsaved

pytestmark = pytest.mark.unit
DIGEST = hashlib.sha256(b"mine").hexdigest()
AROUND: dict[str, object] = {"flags": 0, "folder": "", "path": []}
ENOUGH = 1 << 20


def line(**said: object) -> bytes:
    return json.dumps(said).encode() + b"\n"


def whole(*digests: str) -> bytes:
    rows = [{"name": f"n{n}", "kind": "pickle", "digest": digest} for n, digest in enumerate(digests)]
    return line(entries=rows, cells={}, around=AROUND)


HONEST = line(at="mine") + line(bytes=DIGEST, size=4) + b"mine" + whole(DIGEST)
LIES = {
    "nothing": b"",
    "no JSON": b"garbage\n",
    "half a line": b'{"at": "',
    "a line without end": b"x" * (17 << 20),
    "a deep line": b"[" * 100_000 + b"\n",
    "a deep line that says something": b'{"at": ' + b"[" * 100_000 + b"\n",
    "a long name": line(at="n" * 5000),
    "a name of the host's files": line(bytes="../states/1.json", size=4) + b"mine",
    "a negative size": line(bytes=DIGEST, size=-1),
    "a size beyond all numbers": line(bytes=DIGEST, size=10**40),
    "more than there is room for": line(bytes=DIGEST, size=ENOUGH + 1),
    "less than it announced": line(bytes="a" * 64, size=100) + b"x",
    "bytes without an end": b"".join(line(bytes=f"{n:064x}", size=ENOUGH // 8) + bytes(ENOUGH // 8) for n in range(6)),
    "entries that are none": line(entries=["none"] * 100, cells={}, around=AROUND),
    "nothing around": line(entries=[], cells={}),
}


def received(store: Store, cell: int, said: bytes) -> None:
    ours, theirs = socket.socketpair()

    def speak() -> None:
        with theirs:
            try:
                theirs.recv(1 << 20)
                theirs.sendall(said)
                theirs.shutdown(socket.SHUT_WR)
            except OSError:  # it does not listen any more
                return

    speaker = Thread(target=speak)
    speaker.start()
    with ours:
        try:
            store.receive(cell, ours, {})
        finally:
            ours.shutdown(socket.SHUT_RDWR)
            speaker.join()


def files_of(folder: Path) -> dict[str, bytes]:
    return {it.name: it.read_bytes() for it in (folder / "bytes").iterdir() if it.name != "partial"}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_leaves_nothing(tmp_path: Path, lie: str) -> None:
    store = Store(tmp_path, total_cap=ENOUGH)
    received(store, 1, HONEST)
    with pytest.raises(Unsaved):
        received(store, 2, LIES[lie])
    assert store.cells == {1}
    assert files_of(tmp_path) == {DIGEST: b"mine"}


def test_a_later_state_does_not_overwrite_what_an_earlier_one_is_made_of(tmp_path: Path) -> None:
    store = Store(tmp_path)
    received(store, 1, HONEST)
    received(store, 2, line(bytes=DIGEST, size=5) + b"other" + whole(DIGEST))
    assert files_of(tmp_path) == {DIGEST: b"mine"}


def test_one_that_never_ends_is_given_up(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()

    def drip() -> None:
        with theirs:
            try:
                while True:
                    theirs.sendall(line(at="x"))
            except OSError:
                return

    speaker = Thread(target=drip)
    speaker.start()
    with ours, pytest.raises(Unsaved, match=r"took more than 0\.3 s"):
        Store(tmp_path, receive_s=0.3).receive(1, ours, {})
    ours.close()
    speaker.join()


def test_one_that_is_silent_when_the_time_is_up_is_not_blamed_on_a_variable(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(line(at="x"))
    with ours, theirs, pytest.raises(Unsaved, match=r"took more than 0\.1 s"):
        Store(tmp_path, receive_s=0.1).receive(1, ours, {})


def test_who_restores_is_given_its_bytes_and_never_a_descriptor(tmp_path: Path) -> None:
    store = Store(tmp_path)
    received(store, 1, HONEST)
    ours, theirs = socket.socketpair()
    server = Thread(target=store.serve, args=(ours,))
    server.start()
    with theirs:
        theirs.settimeout(10)
        theirs.sendall(DIGEST.encode())
        answer, fds, _, _ = socket.recv_fds(theirs, SIZE.size, 8)
        assert (SIZE.unpack(answer), theirs.recv(100), fds) == ((4,), b"mine", [])
        theirs.sendall(("../states/1.json" * 4).encode())
        assert SIZE.unpack(theirs.recv(SIZE.size)) == (MISSING,)
    server.join()


def test_a_state_whose_file_is_damaged_is_not_known(tmp_path: Path) -> None:
    received(Store(tmp_path), 1, HONEST)
    (tmp_path / "states" / "2.json").write_bytes(b"[" * 100_000)
    (tmp_path / "states" / "3.json").write_bytes(b"{}")
    assert Store(tmp_path).cells == {1}


@pytest.mark.parametrize("code", ["x = '\ud800'", "a\nb\x00\u2028\x85", "'" + "\\" * 9 + '"', ""])
def test_any_text_of_a_cell_is_told_again(tmp_path: Path, code: str) -> None:
    file = tmp_path / "trail"
    trail = CellJournal(file)
    trail.load()
    trail.write("runs", 1, code)
    trail.write("ended", 1)
    trail.close()
    way = CellJournal(file).load()
    assert (way.path, way.sources, way.cut) == ([1], {1: code}, None)


def test_where_lines_are_missing_every_cell_on_the_path_still_has_a_source(tmp_path: Path) -> None:
    file = tmp_path / "trail"
    file.write_bytes(b'["runs", 1, "a"]\n["ru\n["ended", 2]\n["at", [1, 2], [[3]]]\n')
    way = CellJournal(file).load()
    assert way.sources == {1: "a", 2: "", 3: ""}
    assert way.number == 3
    os.truncate(file, 0)
    assert CellJournal(file).load().number == 0
