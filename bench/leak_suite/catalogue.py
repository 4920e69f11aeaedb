"""All scenarios."""

from __future__ import annotations

from bench.leak_suite import by_code, by_shell, by_source, by_time, by_tools
from bench.leak_suite.scenario import Scenario


def scenarios() -> tuple[Scenario, ...]:
    rooms = (by_code, by_shell, by_tools, by_time, by_source)
    found = tuple(one for room in rooms for one in room.scenarios())
    assert len({one.name for one in found}) == len(found), "two scenarios of one name"
    return found
