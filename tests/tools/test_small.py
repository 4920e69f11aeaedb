"""The clock, the list of things to do, and the question to the user."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pinfold.tools import Registry, ToolFailed
from pinfold.tools.builtin.small import ask_user, now_tool, small_tools

pytestmark = pytest.mark.unit


def at_two() -> datetime:
    return datetime(2026, 11, 15, 2, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("tz", "told"),
    [
        ("UTC", "2026-11-15T02:20:00+00:00 (Sunday, UTC)"),
        ("Europe/Berlin", "2026-11-15T03:20:00+01:00 (Sunday, Europe/Berlin)"),
        ("europe/berlin", "2026-11-15T03:20:00+01:00 (Sunday, Europe/Berlin)"),
        ("tokyo", "2026-11-15T11:20:00+09:00 (Sunday, Asia/Tokyo)"),
        ("New York", "2026-11-14T21:20:00-05:00 (Saturday, America/New_York)"),
        ("+02:00", "2026-11-15T04:20:00+02:00 (Sunday, UTC+02:00)"),
        ("UTC-3", "2026-11-14T23:20:00-03:00 (Saturday, UTC-03:00)"),
    ],
)
async def test_the_time_is_told_for_a_zone_a_city_or_an_offset(tz: str, told: str) -> None:
    assert (await Registry([now_tool(at_two)]).call("now", {"tz": tz})).text == told


async def test_without_a_zone_it_is_this_machines() -> None:
    told = (await Registry([now_tool(at_two)]).call("now", {})).text
    assert datetime.fromisoformat(told.partition(" ")[0]) == at_two()


@pytest.mark.parametrize(
    ("tz", "near"),
    [
        ("Europe/Berlim", "Europe/Berlin"),
        ("Tokio", "Asia/Tokyo"),
        ("../../etc/passwd", "Europe/Berlin or +02:00"),
        ("+99:99", ""),
    ],
)
async def test_a_zone_that_is_none_is_told_with_the_nearest(tz: str, near: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await Registry([now_tool(at_two)]).call("now", {"tz": tz})
    assert f"no time zone is called {tz!r}; did you mean {near}" in str(caught.value)
    assert not caught.value.at_fault


async def test_a_question_that_nobody_took_up_has_no_answer() -> None:
    with pytest.raises(ToolFailed, match=r"there was no answer to 'Which colour\?'"):
        await Registry([ask_user]).call("ask_user", {"question": "Which colour?"})


def test_none_of_them_reaches_anything() -> None:
    tools = small_tools()
    assert [tool.name for tool in tools] == ["calculator", "now", "ask_user", "answer"]
    assert {tool.reach for tool in tools} == {"nothing"}
    assert [schema.name for schema in Registry(tools).schemas()][1:] == [tool.name for tool in tools]
