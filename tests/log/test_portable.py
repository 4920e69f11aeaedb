"""Sessions as files: what goes out comes in again; what is not ours, or not whole, is refused in one clear line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.events.strategies import events as any_event

from pinfold.app.storage.session_store import SessionStore
from pinfold.events import ActionFinished, ActionId, BlobId, Event, Noticed, NotPlain, SessionId, Unknown
from pinfold.log import BadBundle, Damage, Log, blob_id, export_bundle, import_file

pytestmark = pytest.mark.unit

SESSION = SessionId("s_origin")
EVENTS: tuple[Event, ...] = (
    Noticed(text="nul \0 lone \ud800 emoji 👩‍🔬 line \u2028"),
    Unknown(kind="SessionForked", body={"from": "s_0", "big": 10**40}),
    ActionFinished(id=ActionId("a"), outcome="ok", observation="", blobs=(blob_id(b"whole"), blob_id(b"\0\xff"))),
)


def filled(folder: Path, *events: Event) -> Log:
    folder.mkdir(exist_ok=True)
    log = Log(folder, SESSION)
    log.blobs.put(b"whole")
    log.blobs.put(b"\0\xff")

    async def write() -> None:
        await log.append(*events)

    anyio.run(write)
    return log


def written(log: Log, target: Path) -> Damage:
    damage = Damage()
    with target.open("wb") as file:
        export_bundle(log, file, damage)
    return damage


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    log = filled(tmp_path / "origin", *EVENTS)
    written(log, tmp_path / "a.pinfold")
    log.close()
    return tmp_path / "a.pinfold"


def brought_in(source: Path, folder: Path) -> tuple[list[str], dict[BlobId, bytes]]:
    folder.mkdir()
    count, origin = import_file(source, folder, SESSION)
    log, damage = Log(folder, SESSION), Damage()
    lines = list(log.lines(damage))
    blobs = {blob: log.blobs.get(blob) for blob in log.blobs.all()}
    log.close()
    assert (count, origin, bool(damage)) == (len(lines), SESSION, False)
    return lines, blobs


@pytest.mark.installed
def test_a_bundle_brings_back_every_event_and_blob(tmp_path: Path, bundle: Path) -> None:
    origin = Log(tmp_path / "origin", SESSION)
    lines, blobs = brought_in(bundle, tmp_path / "copy")
    assert lines == list(origin.lines(Damage()))
    assert blobs == {blob_id(data): data for data in (b"whole", b"\0\xff")}
    origin.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_lines_bring_back_every_event(tmp_path: Path, bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as file:
        (tmp_path / "a.jsonl").write_bytes(b"\n" + file.read("events.jsonl") + b"\n\n")
    assert brought_in(tmp_path / "a.jsonl", tmp_path / "copy")[0] == brought_in(bundle, tmp_path / "other")[0]


@settings(max_examples=20)
@given(events=st.lists(any_event, min_size=1, max_size=5))
def test_any_session_comes_back_as_it_was(tmp_path: Path, events: list[Event]) -> None:
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    log = filled(folder, *events)
    written(log, folder / "a.pinfold")
    assert brought_in(folder / "a.pinfold", folder / "copy")[0] == list(log.lines(Damage()))
    log.close()


def test_fields_we_do_not_know_are_carried_along(tmp_path: Path) -> None:
    line = '{"seq":3,"session":"s_origin","at":"2026-01-01T00:00:00Z","kind":"Noticed","text":"x","mood":{"calm":[1.5,null]}}'
    (tmp_path / "a.jsonl").write_text(line, encoding="ascii")
    assert brought_in(tmp_path / "a.jsonl", tmp_path / "copy")[0] == [line]


def test_a_damaged_blob_is_left_out_and_said(tmp_path: Path) -> None:
    log = filled(tmp_path / "origin", *EVENTS)
    target = tmp_path / "a.pinfold"
    digest = blob_id(b"whole").removeprefix("sha256:")
    (tmp_path / "origin" / "blobs" / digest[:2] / digest).write_bytes(b"damaged")
    damage = written(log, target)
    assert str(damage) == "1 blobs damaged or missing"
    assert brought_in(target, tmp_path / "copy")[0] == list(log.lines(Damage()))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a.pinfold"]
    log.close()


def line(seq: object = 1, **fields: Any) -> str:
    told = {"seq": seq, "session": "s", "at": "2026-01-01T00:00:00.5Z", "kind": "Noticed", "text": "x"}
    return json.dumps({**told, **fields}) + "\n"


def zipped(**files: str | bytes) -> bytes:
    """A zip file; `__` in a name is a slash and `_` a dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name.replace("__", "/").replace("_", "."), data)
    return buffer.getvalue()


MANIFEST = '{"format": "pinfold-bundle", "version": 1}'


def encrypted() -> bytes:
    data = bytearray(zipped(manifest_json=MANIFEST, events_jsonl=line()))
    data[6] |= 1  # the flag in the file's own header
    data[data.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    return bytes(data)


def with_wrong_size() -> bytes:
    """Claims that one member unpacks to 4 GiB less one byte, and a hundred of them."""
    files = {f"blobs__{number}": b"x" for number in range(8)}
    data = zipped(manifest_json=MANIFEST, events_jsonl=line(), **files)
    out, at = bytearray(data), -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:
        out[at + 24 : at + 28] = b"\xfe\xff\xff\xff"
    return bytes(out)


def broken_inside() -> bytes:
    data = bytearray(zipped(manifest_json=MANIFEST, events_jsonl=line() * 1))
    at = data.index(b"events.jsonl") + len("events.jsonl")
    data[at : at + 4] = b"\xff\xff\xff\xff"
    return bytes(data)


def larger_than_the_disk(source: Path, disk: Path) -> str:
    """What an import onto a small disk says."""
    program = (
        f"mount -t tmpfs -o size=3m none {disk} && exec {sys.executable} -c "
        "'import sys; from pathlib import Path; from pinfold.log import import_file, BadBundle\n"
        'try: print(import_file(Path(sys.argv[1]), Path(sys.argv[2]), "s_x"))\n'
        "except BadBundle as error: print(error, [*Path(sys.argv[2]).iterdir()])' "
        f"{source} {disk}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_what_is_larger_than_the_disk_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    disk, source = tmp_path / "disk", tmp_path / "a.pinfold"
    disk.mkdir()
    blob = b"x" * (8 << 20)
    name = f"blobs__{blob_id(blob).removeprefix('sha256:')}"
    source.write_bytes(zipped(manifest_json=MANIFEST, events_jsonl=line(), **{name: blob}))
    assert source.stat().st_size < 1 << 20
    said = larger_than_the_disk(source, disk)
    assert "would unpack to more than the 2 MB that the disk has room for; free some and import it again []" in said
    source.write_bytes(zipped(manifest_json=MANIFEST, events_jsonl=line(text="x" * (8 << 20))))
    assert "would unpack to more than the 2 MB" in larger_than_the_disk(source, disk)
    source.write_bytes(zipped(manifest_json=MANIFEST, events_jsonl=line()))
    assert larger_than_the_disk(source, disk) == "(1, 's')\n"


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no events"),
    "blank": (b"\n \n", "holds no events"),
    "an image": (b"\x89PNG\r\n\x1a\n\0\0\xff", "event 1: not JSON: .*; export it again"),
    "a list": (b"[]", "event 1: not an object with a `kind`"),
    "no envelope": (b'{"kind": "Noticed", "text": "x"}', r"event 1: envelope: .*\$\.seq"),
    "a bad event": (line(text=3).encode(), r"event 1: Noticed: Expected `str`.*\$\.text"),
    "cut off": ((line() + line(2))[:-9].encode(), "event 2: not JSON"),
    "a delta": (b'{"kind": "TextDelta", "turn": "t", "text": "x"}', "event 1: a delta, which is never stored"),
    "twice": ((line() + line()).encode(), "event 2: number 1 is out of order"),
    "backwards": ((line(2) + line(1)).encode(), "event 2: number 1 is out of order"),
    "zero": (line(0).encode(), "event 1: number 0 is out of order"),
    "beyond all numbers": (line(10**30).encode(), "event 1: number 1000.* is out of range"),
    "infinite": (b'{"seq": 1e999}', "event 1: not JSON: 1e999 is out of range"),
    "time that is no text": (line(at="\ud800").encode(), "event 1: "),
    "markup for a time": (line(at="<script src=//a>").encode(), "event 1: its time is not valid"),
    "a time to come": (line(at="9999-01-01T00:00:00Z").encode(), "event 1: its time has not come yet"),
    "deep": (b'{"a":' * 100_000, "event 1: not JSON"),
    "zip without manifest": (
        zipped(events_jsonl=line()),
        "is a zip file but not a Pinfold bundle: manifest.json or events.jsonl is missing",
    ),
    "zip without events": (zipped(manifest_json=MANIFEST), "manifest.json or events.jsonl is missing"),
    "manifest no json": (zipped(manifest_json="{", events_jsonl=line()), "manifest.json is not JSON"),
    "other format": (zipped(manifest_json="[]", events_jsonl=line()), "is not a Pinfold bundle"),
    "newer format": (
        zipped(manifest_json=MANIFEST.replace("1", "2"), events_jsonl=line()),
        "was written by a newer Pinfold; upgrade to import it",
    ),
    "wrong hash": (
        zipped(manifest_json=MANIFEST, events_jsonl=line(), **{"blobs__" + "0" * 64: b"x"}),
        "blobs/0{64} does not hold what its name says; export it again",
    ),
    "blob outside": (
        zipped(manifest_json=MANIFEST, events_jsonl=line(), blobs__xx__passwd=b"x"),
        "does not hold what its name says",
    ),
    "bad events after good blobs": (
        zipped(
            manifest_json=MANIFEST, events_jsonl="no\n", **{"blobs__" + blob_id(b"x").removeprefix("sha256:"): b"x"}
        ),
        "event 1: not JSON",
    ),
    "truncated zip": (zipped(manifest_json=MANIFEST, events_jsonl=line())[:-30], "event 1: not JSON"),
    "encrypted zip": (encrypted(), "is damaged: .*encrypted"),
    "zip bomb": (with_wrong_size(), "would unpack to more than 20 GiB"),
    "broken inside": (broken_inside(), "is damaged: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_session_is_refused_in_one_line_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    data, words = REFUSED[name]
    source = tmp_path / "given"
    source.write_bytes(data)
    shelf = SessionStore()
    with pytest.raises(BadBundle, match=rf"^{source}.*{words}") as caught:
        shelf.import_session(source)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.exit_code == 2
    assert list(shelf.root.iterdir()) == []


@pytest.mark.parametrize(("make", "words"), [(Path.mkdir, "Is a directory"), (Path.exists, "No such file")])
def test_what_cannot_be_read_is_refused(make: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    make(tmp_path / "given")
    with pytest.raises(BadBundle, match=f"given cannot be read: {words}"):
        import_file(tmp_path / "given", tmp_path, SESSION)


def test_a_bundle_for_a_session_that_is_there_already_gets_another_name(bundle: Path) -> None:
    shelf = SessionStore()
    first, second = shelf.import_session(bundle), shelf.import_session(bundle)
    assert first == (SESSION, 3)
    assert second[0] != first[0]
    assert second[1] == 3


@settings(max_examples=100)
@given(place=st.floats(0, 1, exclude_max=True), junk=st.binary(min_size=1, max_size=8))
def test_a_bundle_with_junk_in_it_fails_no_other_way(tmp_path: Path, bundle: Path, place: float, junk: bytes) -> None:
    intact = bundle.read_bytes()
    at = int(place * len(intact))
    source = tmp_path / "junk.pinfold"
    source.write_bytes(intact[:at] + junk + intact[at + len(junk) :])
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    with suppress(BadBundle):
        import_file(source, folder, SESSION)


def test_an_event_that_json_cannot_say_never_gets_as_far_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotPlain):
        filled(tmp_path / "origin", Unknown(kind="New", body={"x": object()}))
