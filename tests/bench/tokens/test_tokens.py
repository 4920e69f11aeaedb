"""`pinfold bench tokens`: tasks are played by the product, counted whole, and checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from bench.tokens.measurement import hints_and_search, measure
from bench.tokens.player import play
from bench.tokens.report import as_json
from bench.tokens.script import Move, plan_moves
from bench.tokens.servers import public_tools
from bench.tokens.sizes import TOOLS, measure_size, prompt_size
from bench.tokens.suite import measure_tasks
from bench.tokens.task import task_set
from msgspec.structs import replace

pytestmark = pytest.mark.integration

PUBLIC = task_set("public")
TASKS = PUBLIC.tasks
BY_NAME = {task.name: task for task in TASKS}
FEW = ("buy on the dip", "drive to Stonebrook", "staff with gaps", "a customer changes her mind")


def test_the_set_is_as_large_and_as_mixed_as_it_is_said_to_be() -> None:
    assert len(TASKS) == len(BY_NAME) >= 60
    assert len({task.domain for task in TASKS}) >= 12
    tools = [task for task in TASKS if task.kind == "tools"]
    assert 3.3 < sum(len(task.turns) for task in tools) / len(tools) < 4.0  # the public set has 3.7
    assert 0.6 < sum(len(task.servers) > 1 for task in tools) / len(tools) < 0.75  # there 0.68
    assert any(turn.looks for task in tools for turn in task.turns)  # some fail at first


@pytest.mark.parametrize("name", FEW)
async def test_a_task_is_played_by_the_product_and_costs_less(name: str) -> None:
    row = await measure(BY_NAME[name], PUBLIC)
    assert row.problems == ()
    assert row.pinfold.calls >= row.turns
    assert all(row.saving(one) > 0 for one in row.baselines if one != "json_calls_called_tools")


async def test_a_wrong_answer_is_a_failure() -> None:
    task = BY_NAME["staff of a small firm"]
    facts = (("1",), ("Nobody", "0"))
    turns = tuple(replace(turn, facts=wrong) for turn, wrong in zip(task.turns, facts, strict=True))
    task = replace(task, turns=turns)
    tools = public_tools()
    hints, search = hints_and_search(tools)
    played = await play(task, plan_moves(task, tools, hints=hints, search=search), tools)
    assert any("was not seen" in problem for problem in played.problems)
    moves = plan_moves(task, tools, hints=hints, search=search, answers=True)
    by_code = await play(task, moves, tools)
    assert any("instead of" in problem for problem in by_code.problems)


async def test_a_tool_that_the_model_was_not_told_of_is_noticed() -> None:
    task = replace(BY_NAME["call the trip off"], turns=BY_NAME["call the trip off"].turns[:1])
    code = "from servers.posts import unfollow_user\nprint(1)"
    move = Move(cells=(code,), says="x", facts=("1",), answers=False)
    played = await play(task, [move], public_tools())
    assert played.problems == ["posts.unfollow_user was used without having been told of"]


async def test_the_prompt_does_not_grow_with_the_tools() -> None:
    sizes = [await prompt_size(number) for number in TOOLS]
    assert max(sizes) <= 1.05 * min(sizes)


async def test_the_same_questions_cost_the_same_over_more_data() -> None:
    small, large = await measure_size(10_000), await measure_size(1_000_000)
    assert small is not None
    assert large is not None
    assert small.problems == large.problems == ()
    assert large.data > 90 * small.data
    assert large.pinfold.total < 1.02 * small.pinfold.total


async def test_the_report_holds_what_the_checks_read() -> None:
    report = await measure_tasks(["buy on the dip", "staff of a small firm", "a lost card"])
    told = json.loads(json.dumps(as_json(report)))
    assert told["tasks"] == 3
    assert {name: one["tasks"] for name, one in told["by_set"].items()} == {"public": 2, "held-out": 1}
    assert {row["task"]: row["set"] for row in told["rows"]}["a lost card"] == "held-out"
    assert told["tools"]["count"] >= 128
    assert told["failed"] == []
    assert set(told["savings"]) >= {"json_calls_all_tools", "json_calls_needed_tools", "data_resent", "data_once"}
    assert {(one["task"], one["baseline"]) for one in told["losing"]} == {
        ("staff of a small firm", "data_once"),
        ("staff of a small firm", "data_resent"),
        ("buy on the dip", "json_calls_called_tools"),
        ("a lost card", "json_calls_called_tools"),
    }
    assert 0.5 < told["cached_share"] < 1


async def test_every_turn_is_closed_in_words_as_the_others_close_it() -> None:
    row = await measure(BY_NAME["buy on the dip"], PUBLIC)
    ended_by_code = await measure(BY_NAME["buy on the dip"], PUBLIC, answers=True)
    assert row.problems == ended_by_code.problems == ()
    assert row.pinfold.calls >= ended_by_code.pinfold.calls + row.turns // 2
    # Each turn takes at least a cell and a closing reply.
    assert row.pinfold.calls >= 2 * row.turns


def pinfold(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pinfold", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
def test_from_the_command_line() -> None:
    done = pinfold("bench", "tokens", "--task", "money in and out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tasks"] == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("bench", "tokens", "--task", "money in and up"), "did you mean 'money in and out'?"),
        (("bench", "tokens", "--bfcl", "/nowhere"), "/nowhere is no copy of the set"),
        (("bench", "tokens", "--bfcl", "/nowhere", "--live"), "--bfcl is a set of its own"),
        (("bench", "tokens", "--set", "hidden"), "'hidden' is not one of 'all', 'public', 'held-out'"),
    ],
)
def test_bad_names_get_one_clear_line(args: tuple[str, ...], words: str) -> None:
    done = pinfold(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if line and not re.match(r"Usage|Try", line)]
    assert len(told) == 1
    assert words in told[0]
