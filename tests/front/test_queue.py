"""`pinfold queue`, `run --background` and `attach`: tasks survive restarts, are retried, continued and cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Ran

from pinfold.app.clients import TaskQueue, TaskResult
from pinfold.events import SessionId

pytestmark = pytest.mark.integration
Script = Callable[..., str]


def listed(pinfold: Callable[..., Ran]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pinfold("queue", "list", "--json").out.splitlines()]


def test_tasks_are_done_in_their_order(pinfold: Callable[..., Ran], script: Script, cell: Any) -> None:
    model = script(cell("open('order.txt', 'a').write('x')\nprint(len(open('order.txt').read()))"), {"text": "done"})
    for _ in range(2):
        assert pinfold("queue", "add", "count", "--model", model).code == 0
    assert [task["state"] for task in listed(pinfold)] == ["waiting", "waiting"]
    ran = pinfold("queue", "run")
    assert ran.code == 0, ran.err
    assert [(task["state"], task["text"]) for task in listed(pinfold)] == [("done", "done")] * 2
    pinfold("queue", "add", "count", "--model", f"{model}.gone")
    ran = pinfold("queue", "run")
    assert ran.code == 1
    assert "pinfold: task 3 failed: " in ran.err
    assert "cannot be read: No such file or directory\n" in ran.err  # whole
    ran = pinfold("queue", "run")  # an earlier failure is not one of this run
    assert (ran.code, ran.err) == (0, "pinfold: the queue is empty; add a task with: pinfold queue add PROMPT\n")


def test_a_task_that_was_killed_goes_on_without_repeating_what_it_did(
    pinfold: Callable[..., Ran], start: Callable[..., subprocess.Popen[str]], script: Script, cell: Any, workspace: Path
) -> None:
    model = script(
        cell("open('once.txt', 'a').write('x')"),
        cell("import time\nopen('reached', 'w').close()\ntime.sleep(2)"),
        cell("print(len(open('once.txt').read()))"),
        {"expect": "1", "text": "once"},
    )
    pinfold("queue", "add", "go", "--model", model)
    running = start("queue", "run")
    while not (workspace / "reached").exists():
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert [task["state"] for task in listed(pinfold)] == ["running"]
    ran = pinfold("queue", "run")
    assert ran.code == 0, ran.err
    assert [task["text"] for task in listed(pinfold)] == ["once"]
    assert (workspace / "once.txt").read_text() == "x"


def test_a_task_that_reaches_its_limit_goes_on_in_another_turn(
    pinfold: Callable[..., Ran], script: Script, cell: Any
) -> None:
    model = script(cell("x = 1"), cell("x += 1"), cell("x += 1"), cell("print(x)"), {"expect": "3", "text": "three"})
    pinfold("queue", "add", "count", "--model", model, "--max-steps", "2")
    assert pinfold("queue", "run").code == 0
    (task,) = listed(pinfold)
    assert (task["state"], task["text"], task["continued"]) == ("done", "three", 2)


def test_two_processes_do_not_run_the_queue_at_once(
    pinfold: Callable[..., Ran], start: Callable[..., subprocess.Popen[str]], script: Script, cell: Any, workspace: Path
) -> None:
    pinfold("queue", "add", "go", "--model", script(cell("open('reached', 'w').close()\nimport time\ntime.sleep(60)")))
    running = start("queue", "run")
    while not (workspace / "reached").exists():
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.05)
    ran = pinfold("queue", "run")
    assert ran.code == 2
    assert f"process {running.pid} runs the queue already" in ran.err
    assert pinfold("queue", "cancel", "1").code == 0
    assert running.wait(60) == 0
    assert [task["state"] for task in listed(pinfold)] == ["cancelled"]
    assert "the turn was interrupted before its end" in pinfold("attach", "1").err


def test_a_task_in_the_background_can_be_followed(pinfold: Callable[..., Ran], script: Script, cell: Any) -> None:
    begun = pinfold("run", "--background", "six by seven?", "--model", script(cell("print(6 * 7)"), {"text": "42"}))
    assert begun.code == 0, begun.err
    followed = pinfold("attach", begun.out.strip())
    assert followed.code == 0, followed.err
    assert followed.out.strip() == "42"


def test_cancelling_what_is_not_there_says_so(pinfold: Callable[..., Ran]) -> None:
    ran = pinfold("queue", "cancel", "7")
    assert ran.code == 2
    assert "no task 7" in ran.err


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_passing_failure_is_tried_again_later_and_in_the_end_given_up(tmp_path: Path) -> None:
    clock = Clock()
    queue = TaskQueue(tmp_path / "queue", clock)
    task = queue.add("p", tmp_path, {})
    waits: list[float] = []
    while (begun := queue.start_next()) is not None:
        assert begun.session == task.session
        queue.finish(1, TaskResult(id="1", status="failed", text="busy", session=SessionId("s"), temporary=True))
        if not queue.is_over():
            assert queue.start_next() is None
            waits.append(queue.get(1).due - clock.now)
            clock.now += waits[-1]
    assert waits == [30.0, 60.0, 120.0, 240.0, 480.0]
    assert queue.get(1).state == "failed"


def test_tasks_of_one_folder_follow_one_another_and_hold_up_no_other_folder(tmp_path: Path) -> None:
    queue = TaskQueue(tmp_path / "queue")
    for name in ("a", "a", "b"):
        queue.add("p", tmp_path / name, {})
    begun = [queue.start_next(), queue.start_next()]
    assert [task.number for task in begun if task] == [1, 3]
    assert queue.start_next() is None
    queue.finish(1, TaskResult(id="1", status="done", text="yes", session=SessionId("s")))
    assert (task := queue.start_next()) is not None
    assert task.number == 2
