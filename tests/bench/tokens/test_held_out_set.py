"""The held-out set is what its rule says, and its script guesses nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.tokens.servers import DECLARED, PUBLIC, held_out_tools
from bench.tokens.task import task_set
from msgspec.structs import replace
from tests.bench.tokens.guesses import guesses

from pinfold.tools import Registry

pytestmark = pytest.mark.unit

TASKS = task_set("held-out").tasks
BY_NAME = {task.name: task for task in TASKS}
WITH_TOOLS = [task for task in TASKS if task.kind == "tools"]


def test_the_set_has_the_shares_that_were_written_down() -> None:
    assert len(TASKS) == len(BY_NAME) == 50
    assert not BY_NAME.keys() & {task.name for task in task_set("public").tasks}
    assert Counter(task.domain for task in TASKS) == {
        "one call": 11,
        "list and filter": 5,
        "join two servers": 6,
        "aggregate over many calls": 5,
        "update in a loop": 4,
        "big file or table": 8,
        "conversation": 6,
        "correction": 3,
        "failure and retry": 2,
    }
    assert sum(bool(task.files) for task in TASKS) == 5
    assert all(
        len(task.turns) == len(task.servers) == 1 and not task.turns[0].looks
        for task in TASKS
        if task.domain == "one call"
    )
    assert all(3 <= len(task.turns) <= 6 for task in TASKS if task.domain == "conversation")
    assert all(len(task.servers) == 2 for task in TASKS if task.domain == "join two servers")
    assert sum(len(task.servers) == 1 for task in WITH_TOOLS) >= len(TASKS) / 3


def test_most_tools_do_not_say_what_they_give() -> None:
    tools = held_out_tools()
    assert 128 <= len(tools) <= 150
    assert {tool.server for tool in tools if tool.returns} == set(DECLARED)
    assert sum(tool.returns is None for tool in tools) >= len(tools) * 5 / 6
    used = {server for task in WITH_TOOLS for server in task.servers}
    assert used == {tool.server for tool in tools}
    assert len(used & set(PUBLIC)) >= 6


def test_the_script_takes_nothing_apart_that_the_model_has_not_seen() -> None:
    undeclared = {tool.name.rpartition(".")[2]: tool.server for tool in held_out_tools() if tool.returns is None}
    for task in WITH_TOOLS:
        mine = {name for name, server in undeclared.items() if server in task.servers}
        assert guesses(task, mine) == []


def test_a_guess_is_noticed() -> None:
    task = BY_NAME["critical alerts"]
    first = task.turns[0]
    blind = replace(task, turns=(replace(first, looks=(), does=f"{first.looks[0]}\n{first.does}"),))
    assert guesses(blind, {"list_alerts"})
    direct = replace(task, turns=(replace(first, looks=(), does='print(list_alerts()["alerts"])'),))
    assert guesses(direct, {"list_alerts"})


async def test_servers_of_the_set_begin_anew_with_every_task() -> None:
    first, second = Registry(held_out_tools()), Registry(held_out_tools())
    await first.call("crm.update_deal", {"deal_id": "3107", "stage": "lost"})
    there = (await second.call("crm.get_deal", {"deal_id": "3107"})).value
    assert there["properties"]["dealstage"] == "proposal"
