"""`pinfold batch`: results line by line, only what is left the second time, files merged, bad input in one line."""

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

pytestmark = pytest.mark.integration

SIX_BY_SEVEN = "print(6 * 7)"


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: dict[str, Any] | str) -> Path:
        path = tmp_path / "tasks.jsonl"
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return path

    return write


def results(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def test_every_task_gets_a_line_and_a_second_run_repeats_nothing(
    pinfold: Callable[..., Ran],
    script: Callable[..., str],
    cell: Callable[..., dict[str, Any]],
    tasks: Callable[..., Path],
    tmp_path: Path,
) -> None:
    model = script(cell(SIX_BY_SEVEN), {"expect": "42", "text": "It is 42."})
    path, out = tasks(*({"id": name, "prompt": "six by seven?"} for name in "abc")), tmp_path / "out.jsonl"
    ran = pinfold("batch", str(path), "-j", "2", "--model", model, "--out", str(out))
    assert ran.code == 0, ran.err
    first = out.read_text()
    rows = results(out)
    assert {name: (row["status"], row["text"]) for name, row in rows.items()} == dict.fromkeys(
        "abc", ("done", "It is 42.")
    )
    assert len({row["session"] for row in rows.values()}) == 3
    again = pinfold("batch", str(path), "-j", "2", "--model", model, "--out", str(out))
    assert again.code == 0
    assert "3 of 3 tasks were done before" in again.err
    assert out.read_text() == first


def test_tasks_in_one_folder_do_not_see_each_others_files_and_their_changes_are_merged(
    pinfold: Callable[..., Ran],
    script: Callable[..., str],
    cell: Callable[..., dict[str, Any]],
    tasks: Callable[..., Path],
    tmp_path: Path,
    workspace: Path,
) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    # Both are under way before either ends.
    code = f"""
import os, time, uuid
name = uuid.uuid4().hex
open({str(meeting)!r} + '/' + name, 'w').close()
while len(os.listdir({str(meeting)!r})) < 2:
    time.sleep(0.01)
open(f'made-{{name}}.txt', 'w').close()
open('both.txt', 'w').write(name)
print(sorted(os.listdir('.')).count('seed.txt'), len([n for n in os.listdir('.') if n.startswith('made-')]))
"""
    (workspace / "seed.txt").write_text("seed")
    model = script(cell(code), {"expect": "1 1", "text": "done"})
    path, out = tasks(*({"id": name, "prompt": "write"} for name in "ab")), tmp_path / "out.jsonl"
    shared = ("--mount", f"{meeting}:rw")
    ran = pinfold("batch", str(path), "-j", "2", "--model", model, "--out", str(out), *shared)
    assert ran.code == 0, ran.err + out.read_text()
    assert len([*workspace.glob("made-*.txt")]) == 2
    first, second = results(out).values()
    assert (first["conflicts"], second["conflicts"]) == ([], ["both.txt"])
    assert (workspace / "both.txt").read_text()


def test_a_failed_task_is_tried_again_and_the_others_are_not(
    pinfold: Callable[..., Ran], script: Callable[..., str], tasks: Callable[..., Path], tmp_path: Path
) -> None:
    good = script({"text": "fine"}, name="good.jsonl")
    bad = script({"error": "no such model", "status": 400}, name="bad.jsonl")
    out = tmp_path / "out.jsonl"
    path = tasks({"id": "a", "prompt": "p"})
    ran = pinfold("batch", str(path), "--model", bad, "--out", str(out))
    assert ran.code == 1
    assert results(out)["a"]["status"] == "failed"
    path = tasks({"id": "a", "prompt": "p"}, {"id": "b", "prompt": "p"})
    ran = pinfold("batch", str(path), "--model", good, "--out", str(out))
    assert ran.code == 0, ran.err
    assert {name: row["text"] for name, row in results(out).items()} == {"a": "fine", "b": "fine"}


def test_a_killed_batch_goes_on_in_the_sessions_it_had(
    start: Callable[..., subprocess.Popen[str]],
    pinfold: Callable[..., Ran],
    script: Callable[..., str],
    cell: Callable[..., dict[str, Any]],
    tasks: Callable[..., Path],
    tmp_path: Path,
    workspace: Path,
) -> None:
    """The first cell ran before the kill; it is not run again, and its variable is still there."""
    reached = workspace / "reached"
    slow = cell("import time\nopen('reached', 'w').close()\ntime.sleep(2)")
    model = script(cell("x = 41"), slow, cell("print(x + 1)"), {"expect": "42", "text": "It is 42."})
    path, out = tasks({"id": "a", "prompt": "p", "workspace": str(workspace)}), tmp_path / "out.jsonl"
    out.touch()
    running = start("batch", str(path), "--model", model, "--out", str(out))
    while not reached.exists():
        with pytest.raises(subprocess.TimeoutExpired):  # it must not end before
            running.wait(0.05)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    ran = pinfold("batch", str(path), "--model", model, "--out", str(out))
    assert ran.code == 0, ran.err
    assert results(out)["a"]["text"] == "It is 42."
    shown = pinfold("sessions", "show", results(out)["a"]["session"])
    assert shown.out.count("x = 41") == 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "holds no task"),
        (["not json"], "line 1"),
        (['{"id": "a"}'], "line 1: Object missing required field `prompt`"),
        (['{"id": "a", "prompt": " "}'], "the prompt is empty"),
        (['{"id": "a", "prompt": "p"}', '{"id": "a", "prompt": "q"}'], "'a' is used more than once"),
        (['{"id": "a", "prompt": "p", "workspace": "/nowhere"}'], "/nowhere does not exist"),
        (['{"id": "a", "prompt": "p", "wrokspace": "x"}'], "wrokspace"),
    ],
)
def test_a_bad_task_file_is_refused_in_one_line_before_anything_runs(
    lines: list[str], words: str, pinfold: Callable[..., Ran], script: Callable[..., str], tasks: Callable[..., Path]
) -> None:
    ran = pinfold("batch", str(tasks(*lines)), "--model", script({"text": "no"}))
    assert ran.code == 2
    assert words in ran.err
    assert len(ran.err.strip().splitlines()) == 1
