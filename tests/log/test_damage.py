"""Disks lie. Every change to what was written is noticed, costs as little as it can, and is repaired in the open."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.events import Entry, Noticed, SessionId, Unknown
from pinfold.log import Damage, Log, LogError, summarise

pytestmark = pytest.mark.unit

SESSION = SessionId("s_test")
EVENTS = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed log of twelve events, the text of each its own number."""
    folder = tmp_path / "session"
    folder.mkdir()

    async def fill() -> None:
        log = Log(folder, SESSION)
        for number in range(1, EVENTS + 1):
            await log.append(Noticed(text=f"this is {number}"))
        log.close()

    anyio.run(fill)
    return folder


def names_in(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def change(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "log.sqlite", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def read(folder: Path) -> tuple[list[Entry], Damage]:
    log, damage = Log(folder, SESSION), Damage()
    entries = list(log.read(damage=damage))
    log.close()
    return entries, damage


SWAP = (
    "CREATE TEMP TABLE kept AS SELECT * FROM events WHERE seq IN (3, 4)",
    "UPDATE events SET body = (SELECT body FROM kept WHERE kept.seq = 7 - events.seq) WHERE seq IN (3, 4)",
)
SWAP_ROWS = (
    "UPDATE events SET seq = -3 WHERE seq = 3",
    "UPDATE events SET seq = 3 WHERE seq = 4",
    "UPDATE events SET seq = 4 WHERE seq = -3",
)


@pytest.mark.parametrize(
    ("statements", "gone"),
    [
        (["UPDATE events SET body = replace(body, '5', '6') WHERE seq = 5"], [5]),
        (["UPDATE events SET kind = 'UserSpoke' WHERE seq = 5"], [5]),
        (["UPDATE events SET at = '2000-01-01T00:00:00.000Z' WHERE seq = 5"], [5]),
        (["UPDATE events SET sum = zeroblob(16) WHERE seq = 5"], [5]),
        (["UPDATE events SET body = x'ff00fe' || body WHERE seq = 5"], [5]),
        (["UPDATE events SET body = '' WHERE seq IN (5, 6, 7)"], [5, 6, 7]),
        (["UPDATE events SET body = '' WHERE seq = 1"], [1]),
        (["UPDATE events SET body = '' WHERE seq = 12"], [12]),
        (SWAP, [3, 4]),
        (SWAP_ROWS, [3, 4, 5]),
    ],
    ids=["body", "kind", "time", "sum", "no text", "three", "first", "last", "swapped bodies", "swapped rows"],
)
def test_a_changed_event_is_noticed_and_the_others_are_read(
    folder: Path, statements: list[str], gone: list[int]
) -> None:
    change(folder, *statements)
    entries, damage = read(folder)
    assert (damage.unreadable, damage.lost_after) == (gone, None)
    assert [(entry.seq, entry.event) for entry in entries] == [
        (number, Noticed(text=f"this is {number}")) for number in range(1, EVENTS + 1) if number not in gone
    ]
    shown = ", ".join(map(str, gone))
    assert str(damage) == f"{len(gone)} events damaged and unreadable (number {shown})"


def test_a_removed_event_is_noticed(folder: Path) -> None:
    """The event behind it cannot be vouched for either: its sum was made with the one that is gone."""
    change(folder, "DELETE FROM events WHERE seq = 5")
    entries, damage = read(folder)
    assert damage.unreadable == [6]
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 7, 8, 9, 10, 11, 12]


def test_events_missing_at_the_end_are_noticed_by_the_head(folder: Path) -> None:
    change(folder, "DELETE FROM events WHERE seq > 9")
    entries, damage = read(folder)
    assert len(entries) == 9
    assert damage == Damage(lost_after=9, acknowledged=12)
    assert str(damage) == "3 events missing after number 9"


def test_a_store_gone_altogether_is_noticed_by_the_head(folder: Path) -> None:
    (folder / "log.sqlite").unlink()
    assert read(folder) == ([], Damage(lost_after=0, acknowledged=12))


@pytest.mark.parametrize("head", ["", "nonsense", "00000000000000000099 00000000\n", "\0" * 64])
def test_a_damaged_head_is_no_damage_to_the_log(folder: Path, head: str) -> None:
    (folder / "head").write_text(head, encoding="ascii")
    entries, damage = read(folder)
    assert (len(entries), bool(damage)) == (12, False)


async def test_a_number_that_was_lost_is_never_given_out_again(folder: Path) -> None:
    change(folder, "DELETE FROM events WHERE seq > 9")
    log = Log(folder, SESSION)
    assert [entry.seq for entry in await log.append(Noticed(text="next"))] == [13]
    log.close()
    entries, damage = read(folder)
    assert [entry.seq for entry in entries] == [*range(1, 10), 13]
    assert not damage


async def test_a_repair_keeps_the_damaged_file_and_goes_on_with_a_new_number(folder: Path) -> None:
    change(folder, "UPDATE events SET body = 'gone' WHERE seq IN (3, 12)")
    log, damage = Log(folder, SESSION), Damage()
    before = list(log.read(damage=damage))
    log.repair(damage)
    assert list(log.read()) == before
    (entry,) = await log.append(Noticed(text="after"))
    assert entry.seq == 13
    log.close()

    entries, again = read(folder)
    assert entries == [*before, entry]
    assert not again
    with closing(sqlite3.connect(folder / "log.damaged-1.sqlite")) as kept:
        assert kept.execute("SELECT body FROM events WHERE seq = 3").fetchone() == ("gone",)
        assert kept.execute("SELECT count(*) FROM events").fetchone() == (EVENTS,)
    assert names_in(folder) == ["head", "log.damaged-1.sqlite", "log.sqlite"]


async def test_a_second_repair_keeps_both_damaged_files(folder: Path) -> None:
    for _ in range(2):
        change(folder, "UPDATE events SET body = 'gone' WHERE seq = (SELECT max(seq) FROM events)")
        log, damage = Log(folder, SESSION), Damage()
        list(log.read(damage=damage))
        log.repair(damage)
        await log.append(Noticed(text="after"))
        log.close()
    assert names_in(folder, "log.damaged-*") == ["log.damaged-1.sqlite", "log.damaged-2.sqlite"]
    assert not read(folder)[1]


def test_a_repair_cut_off_before_the_swap_is_finished_by_the_next_owner(folder: Path) -> None:
    change(folder, "UPDATE events SET body = 'gone' WHERE seq = 3")
    log, damage = Log(folder, SESSION), Damage()
    before = list(log.read(damage=damage))
    log.repair(damage)
    log.close()
    # As it lay just before the swap: the rebuilt store ready, the damaged one still in place.
    (folder / "log.sqlite").rename(folder / "log.rebuilt.sqlite")
    (folder / "log.damaged-1.sqlite").rename(folder / "log.sqlite")
    entries, damage = read(folder)
    assert entries == before
    assert not damage
    assert (folder / "log.damaged-1.sqlite").is_file()


def test_nothing_to_repair_changes_nothing(folder: Path) -> None:
    before = (folder / "log.sqlite").read_bytes()
    log = Log(folder, SESSION)
    log.repair(Damage())
    log.close()
    assert names_in(folder) == ["head", "log.sqlite"]
    assert (folder / "log.sqlite").read_bytes() == before


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), junk=st.binary(min_size=1, max_size=64))
def test_junk_anywhere_in_the_file_never_passes_for_an_event(folder: Path, place: float, junk: bytes) -> None:
    store = folder / "log.sqlite"
    intact = store.read_bytes()
    at = int(place * len(intact))
    for leftover in folder.glob("log.sqlite-*"):
        leftover.unlink()
    store.write_bytes((intact[:at] + junk + intact[at + len(junk) :])[: len(intact)])
    with suppress(LogError):
        entries, _ = read(folder)
        assert [entry.event for entry in entries] == [Noticed(text=f"this is {entry.seq}") for entry in entries]
        summarise(folder)
    for leftover in folder.glob("log.sqlite-*"):
        leftover.unlink()
    store.write_bytes(intact)


def test_a_known_kind_with_a_body_we_cannot_read_is_kept_as_unknown(tmp_path: Path) -> None:
    log = Log(tmp_path, SESSION)
    body = b'{"kind":"ActionProposed","id":"a","action":{"type":"telepathy"}}'
    log.fill([(1, b"then", b"ActionProposed", body, b"")])
    (entry,) = log.read()
    assert isinstance(entry.event, Unknown)
    assert next(log.lines(Damage())).endswith(body.decode()[1:])
    log.close()


@pytest.mark.parametrize("offset", [0, 5, 16, 28, 63, 100, 103, 105, 500, 4000])
async def test_a_hit_in_the_first_page_costs_no_event(tmp_path: Path, offset: int) -> None:
    log = Log(tmp_path, SESSION)
    await log.append(*(Noticed(text=f"event {number}") for number in range(40)))
    before = list(log.read())
    log.close()
    store = tmp_path / "log.sqlite"
    content = bytearray(store.read_bytes())
    content[offset] ^= 0x41
    store.write_bytes(content)
    log, damage = Log(tmp_path, SESSION), Damage()
    assert list(log.read(damage=damage)) == before
    log.repair(damage)
    (entry,) = await log.append(Noticed(text="and on"))
    assert entry.seq == 41
    log.close()
    again = Damage()
    log = Log(tmp_path, SESSION)
    assert len(list(log.read(damage=again))) == 41
    assert not again
    log.close()
