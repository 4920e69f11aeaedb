"""What bench/conformance.py makes of the suite's results: what fails is a loss, what is left out is listed."""

from __future__ import annotations

import pytest
from bench.conformance import losses, table
from bench.conformance_suite.suite import Leg, Ran

pytestmark = pytest.mark.unit
GOOD, BAD = Ran("ping", 2), Ran("ping", 1, ("ping-answered",))


def leg(subject: str, *ran: Ran, left_out: dict[str, str] | None = None) -> Leg:
    return Leg(subject, "0.1.16", "all", {one.scenario: one for one in ran}, left_out or {})


@pytest.mark.parametrize("subject", ["exported", "pinfold", "inspector", "client"])
def test_a_scenario_that_fails_is_a_loss_also_where_nothing_else_was_examined(subject: str) -> None:
    assert losses([leg(subject, GOOD)]) == []
    assert losses([leg(subject, BAD)]) == [f"{subject} 0.1.16 all: ping fails"]


def test_what_fails_without_pinfold_too_is_no_loss() -> None:
    assert losses([leg("everything", BAD), leg("exported", BAD)]) == []
    assert losses([leg("everything", BAD)]) == []
    other = Ran("ping", 1, ("ping-in-time",))
    assert losses([leg("everything", BAD), leg("exported", other)]) == ["exported 0.1.16 all: ping fails"]


def test_a_scenario_that_passes_less_behind_pinfold_or_is_missing_there_is_a_loss() -> None:
    lines = losses([leg("everything", GOOD, Ran("tools-list", 3)), leg("exported", Ran("ping", 1))])
    assert lines == [
        "exported 0.1.16 all: ping passes 1 checks, 2 without Pinfold",
        "exported 0.1.16 all: tools-list passes 0 checks, 3 without Pinfold",
    ]


def test_what_is_left_out_does_not_count_and_is_listed_with_the_reason() -> None:
    one = leg("exported", GOOD, Ran("tasks-get", 0, ("x",)), left_out={"tasks-get": "the SDK has no tasks"})
    assert losses([one]) == []
    assert "left out, the SDK has no tasks: tasks-get" in table([one])
    assert "held without a check: ping" in table([leg("exported", Ran("ping", 0))])
