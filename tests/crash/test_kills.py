"""`kill -9` at random moments. The long version is bench/crash.py."""

from __future__ import annotations

import random

import pytest
from bench.crash_suite.kills import LAUNCH_LAWS, LAWS, first_launches, storm
from bench.crash_suite.launch import Forkserver
from bench.crash_suite.oracle import ACKNOWLEDGED, CHAINED, ONCE, UNKNOWN
from bench.crash_suite.queue_kills import QUEUE_LAWS, kill_queue

pytestmark = [pytest.mark.safety, pytest.mark.alone, pytest.mark.timeout(600)]
SEED = 20261115


def test_12_kills_lose_nothing_that_was_acknowledged_and_repeat_no_effect(servers: list[Forkserver]) -> None:
    found = storm(servers, 12, SEED, by_executable=2)
    assert found.holds(LAWS), found.report(LAWS)
    assert found.seen["kills"] >= 12
    assert found.seen["kills of the installed command"] >= 2


@pytest.mark.parametrize(
    ("weakened", "laws"),
    [("runs again", {ONCE, UNKNOWN}), ("acknowledges early", {ACKNOWLEDGED}), ("miscounts", {CHAINED})],
)
def test_the_same_kills_find_a_broken_build_out(servers: list[Forkserver], weakened: str, laws: set[str]) -> None:
    # Where a kill strikes depends on how busy the machine is; a few may all miss the moment that matters.
    for kills in (6, 12, 24, 48):
        found = storm(servers, kills, SEED, weakened=weakened)
        if laws & found.broken.keys():
            return
    pytest.fail(found.report(laws))


def test_10_kills_during_a_first_launch_leave_stores_that_open(servers: list[Forkserver]) -> None:
    found = first_launches(servers, 10, SEED)
    assert found.holds(LAUNCH_LAWS), found.report(LAUNCH_LAWS)
    assert found.seen["kills"] >= 10


def test_first_launches_find_a_broken_build_out(servers: list[Forkserver]) -> None:
    found = first_launches(servers, 5, SEED, weakened="acknowledges early")
    assert found.broken, found.report(LAUNCH_LAWS)


def test_a_queue_of_4_tasks_killed_8_times_loses_none_and_repeats_nothing(servers: list[Forkserver]) -> None:
    found = kill_queue(servers[0], random.Random(SEED), 4, 8)
    assert found.holds(QUEUE_LAWS), found.report(QUEUE_LAWS)
    assert found.seen["kills"]
