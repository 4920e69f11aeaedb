"""Tasks of the held-out set are played by the product, and reported under its name."""

from __future__ import annotations

import json

import pytest
from bench.tokens.measurement import measure
from bench.tokens.report import as_json
from bench.tokens.suite import measure_tasks
from bench.tokens.task import task_set

pytestmark = pytest.mark.integration

HELD_OUT = task_set("held-out")
BY_NAME = {task.name: task for task in HELD_OUT.tasks}


@pytest.mark.parametrize("name", ["what the pipeline is worth", "the wrong booking", "tutoring in one class"])
async def test_a_task_of_the_set_is_played_as_it_is_written(name: str) -> None:
    row = await measure(BY_NAME[name], HELD_OUT)
    assert row.problems == ()
    assert row.pinfold.calls >= row.turns


async def test_the_report_names_its_set() -> None:
    told = json.loads(json.dumps(as_json(await measure_tasks(["a lost card"], of=["held-out"]))))
    assert (told["set"], told["tasks"], told["failed"]) == ("held-out", 1, [])
