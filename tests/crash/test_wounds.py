"""Stores damaged at rest. bench/faults.py cuts at every byte and flips more bits."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.crash_suite.launch import Forkserver
from bench.crash_suite.weak_builds import Credulous
from bench.crash_suite.wounds import (
    LAWS,
    SAME,
    SPOKEN,
    Rest,
    Wound,
    bit_flips,
    examine_all,
    folder_copy,
    speak_of,
    tail_cuts,
    whole_store,
)

from pinfold.events import SessionId
from pinfold.log import Damage, Log

pytestmark = pytest.mark.safety
SEED = 20261115


@dataclass(frozen=True, slots=True)
class Stores:
    killed: Path
    closed: Path


@pytest.fixture(scope="module")
def stores(servers: list[Forkserver], tmp_path_factory: pytest.TempPathFactory) -> Stores:
    root = tmp_path_factory.mktemp("stores")
    rests: tuple[Rest, Rest] = ("killed", "closed")
    return Stores(*(whole_store(servers[0], root / rest, rest) for rest in rests))


def damage_of(folder: Path) -> Damage:
    damage = Damage()
    with closing(Log(folder, SessionId(folder.name))) as log:
        assert list(log.read(damage=damage))
    return damage


def test_a_whole_store_has_no_damage(stores: Stores, tmp_path: Path) -> None:
    assert not damage_of(folder_copy(stores.killed, tmp_path / "killed"))
    assert not damage_of(folder_copy(stores.closed, tmp_path / "closed"))


def test_a_tail_cut_anywhere_costs_only_what_it_cut_and_is_reported(stores: Stores) -> None:
    for folder in (stores.killed, stores.closed):
        found = examine_all(folder, tail_cuts(folder, every=64))
        assert found.holds(LAWS), found.report(LAWS)
        assert found.seen["reported"], found.seen


def test_40_flipped_bits_are_each_reported_or_harmless(stores: Stores) -> None:
    for folder in (stores.killed, stores.closed):
        found = examine_all(folder, bit_flips(folder, 20, SEED))
        assert found.holds(LAWS), found.report(LAWS)
        assert found.seen["reported"], found.seen


def test_a_reader_that_believes_every_row_is_caught(stores: Stores) -> None:
    wounds = [wound for wound in bit_flips(stores.closed, 40, SEED) if wound.file == "log.sqlite"]
    assert examine_all(stores.closed, wounds, Credulous).broken[SAME]


def test_a_resumed_session_tells_the_user_of_its_damage(servers: list[Forkserver], stores: Stores) -> None:
    found = speak_of(servers[0], stores.killed, tail_cuts(stores.killed, every=1500)[::8])
    found.add(speak_of(servers[0], stores.closed, bit_flips(stores.closed, 6, SEED)))
    assert found.holds([SPOKEN]), found.report([SPOKEN])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET body = replace(body, 'Do the work', 'Do no work') WHERE seq = 3",
        "UPDATE events SET sum = randomblob(16) WHERE seq = 3",
        "UPDATE events SET at = '2026-01-01T00:00:00.000Z' WHERE seq = 3",
    ],
)
def test_a_row_that_does_not_fit_its_checksum_is_named_and_the_others_stay(
    stores: Stores, tmp_path: Path, change: str
) -> None:
    folder = folder_copy(stores.closed, tmp_path / stores.closed.name)
    with closing(sqlite3.connect(folder / "log.sqlite")) as connection, connection:
        connection.execute(change)
    assert damage_of(folder) == Damage(unreadable=[3])


def test_a_lost_tail_is_named_by_the_number_that_was_acknowledged_last(stores: Stores, tmp_path: Path) -> None:
    folder = folder_copy(stores.killed, tmp_path / stores.killed.name)
    acknowledged = int((folder / "head").read_text().split()[0])
    Wound("log.sqlite-wal", (folder / "log.sqlite-wal").stat().st_size - 1).inflict(folder)
    assert damage_of(folder) == Damage(lost_after=acknowledged - 1, acknowledged=acknowledged)
