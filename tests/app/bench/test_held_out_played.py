"""Tasks of the held-out set are played by the product, and reported under its name."""

from __future__ import annotations

import json

import pytest

from pinfold.app.bench import as_json, tokens_of_tasks
from pinfold.app.bench.held_out.tasks import TASKS
from pinfold.app.bench.measuring import measure
from pinfold.app.bench.sets import task_set

pytestmark = pytest.mark.integration

BY_NAME = {task.name: task for task in TASKS}


@pytest.mark.parametrize("name", ["what the pipeline is worth", "the wrong booking", "tutoring in one class"])
async def test_a_task_of_the_set_is_played_as_it_is_written(name: str) -> None:
    row = await measure(BY_NAME[name], within=task_set("held-out"))
    assert row.problems == ()
    assert row.pinfold.calls >= row.turns


async def test_the_report_names_its_set() -> None:
    told = json.loads(json.dumps(as_json(await tokens_of_tasks(["a lost card"], of=["held-out"]))))
    assert (told["set"], told["tasks"], told["failed"]) == ("held-out", 1, [])
