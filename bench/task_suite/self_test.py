"""Do the checkers say yes to what is right and no to what is not? Each task's oracle is run for real."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.task_suite.checks import now
from bench.task_suite.task import Outcome, Task


def faults(task: Task, python: Path, everything: str = "") -> Iterator[str]:
    """What is wrong with the checker. `everything` holds all right answers at once."""
    scene = task.scene
    if len(scene.wrong) + len(scene.slips) < 2:
        yield "fewer than two wrong answers to try"
    answer = said(task, python)
    for shape in ("{}", "Here is the result:\n\n**{}**\n", "I looked it up. {} Anything else?"):
        if (why := _tried(task, python, scene.oracle, shape.format(answer or "Done."))) is not None:
            yield f"refuses the right answer {shape.format(answer)!r}: {why}"
    for text in ("", scene.prompt, "Done.", "I could not do it.", *scene.wrong):
        if _tried(task, python, "", text) is None:
            yield f"accepts {text!r}"
    if everything and scene.check(_outcome(task, Path("/nonexistent"), everything)) is None:
        yield "accepts the answers to all tasks at once"
    for slip in scene.slips:
        if _tried(task, python, slip, answer or "Done.") is None:
            yield f"accepts what this leaves: {slip!r}"


def said(task: Task, python: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        task.lay(Path(folder))
        return _did(task.scene.oracle, python, Path(folder))


def everything_said(tasks: Sequence[Task], python: Path) -> str:
    return "\n".join(said(task, python) for task in tasks)


def _tried(task: Task, python: Path, source: str, answer: str) -> str | None:
    """The verdict on a workspace where the program ran, with this answer."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        task.lay(workspace)
        if source:
            _did(source, python, workspace)
        return task.check(_outcome(task, workspace, answer))


def _outcome(task: Task, workspace: Path, answer: str) -> Outcome:
    return Outcome(prompt=task.prompt, answer=answer, workspace=workspace, actions=0, began=now(), ended=now())


def _did(source: str, python: Path, workspace: Path) -> str:
    done = subprocess.run(
        [python, "-W", "ignore", "-c", source], cwd=workspace, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{source}\n{done.stderr}"
    return done.stdout.strip()
