"""A strike at single durable writes, spread over all of them. bench/faults.py strikes at every one."""

from __future__ import annotations

import pytest
from bench.crash_suite.launch import Forkserver
from bench.crash_suite.oracle import ACKNOWLEDGED
from bench.crash_suite.shim import Strike, reachable
from bench.crash_suite.writes import DEADLY, SCENES, Scene, laws_of, strike_everywhere

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(not reachable(), reason="this Python's SQLite is not a shared library of its own"),
]


@pytest.mark.parametrize("how", DEADLY)
@pytest.mark.parametrize("scene", SCENES)
def test_a_death_at_any_write_loses_nothing(servers: list[Forkserver], scene: Scene, how: Strike) -> None:
    found = strike_everywhere(servers, scene, how, every=41)
    assert found.holds(laws_of(scene, how)), found.report(laws_of(scene, how))


@pytest.mark.parametrize("how", ["full", "failing"])
@pytest.mark.parametrize("scene", SCENES)
def test_a_refused_write_is_said_clearly_and_the_session_goes_on_later(
    servers: list[Forkserver], scene: Scene, how: Strike
) -> None:
    # Some writes can be refused at no cost, and where those are differs from run to run.
    for first in range(1, 41, 5):
        found = strike_everywhere(servers, scene, how, first=first, every=41)
        assert found.holds(laws_of(scene, how)), found.report(laws_of(scene, how))
        if found.seen[f"{how}: exit 75"]:
            return
    pytest.fail("no refused write ended in exit code 75")


def test_strikes_find_a_build_that_acknowledges_before_the_commit(servers: list[Forkserver]) -> None:
    found = strike_everywhere(servers, "a first run", "after", every=25, weakened="acknowledges early")
    assert found.broken[ACKNOWLEDGED], found.report([ACKNOWLEDGED])
