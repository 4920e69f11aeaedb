"""The tools of `servers.project`: the plan, its tasks, and the lab notebook. They are part of the session's log."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import cast, get_args

from msgspec.structs import replace

from pinfold.engine import State, plan_in_words
from pinfold.events import Json, LabNote, NoteKind, Plan, PlanState, PlanTask, SessionChanged, TaskStatus
from pinfold.log import Log
from pinfold.text import first_line, redact
from pinfold.tools import AnyTool, BadCall, Result, tool

SERVER = "project"
MOST_TASKS = 100
MOST_NOTES = 500
_TEXT = 500
_STATUS = {"x": "done", ">": "doing", "-": "dropped", " ": "todo"}
_OTHER_WORDS: Mapping[str, TaskStatus] = {
    "pending": "todo",
    "open": "todo",
    "in_progress": "doing",
    "in progress": "doing",
    "active": "doing",
    "completed": "done",
    "complete": "done",
    "finished": "done",
    "cancelled": "dropped",
    "canceled": "dropped",
}
"""Other words that models use for a status."""


def plan_tools(log: Log, read_state: Callable[[], State]) -> list[AnyTool]:
    async def change(plan: Plan) -> Result:
        await log.append(SessionChanged(title=read_state().title, plan=plan))
        return Result(text=plan_in_words(plan) or "(no plan)", value=None)

    async def plan(tasks: list[Json], goal: str = "", state: PlanState | None = None) -> Result:
        """Set the plan: all its tasks in order, each a text or {"text": ..., "status": "todo|doing|done|dropped"}.

        Args:
            tasks: All of them; those left out are removed.
            goal: What is to be achieved, in a sentence.
            state: planning, executing, reviewing or complete.
        """
        now = read_state().plan
        if len(tasks) > MOST_TASKS:
            raise BadCall(f"the plan has {len(tasks)} tasks; {MOST_TASKS} is the most")
        listed = tuple(read_task(number, item) for number, item in enumerate(tasks, 1))
        return await change(
            replace(now, tasks=listed, goal=_clean(goal) or now.goal, state=(not now.locked and state) or now.state)
        )

    async def task(number: int, status: TaskStatus) -> Result:
        """Change the status of one task of the plan, by its number from 1: todo, doing, done or dropped."""
        now = read_state().plan
        if not 1 <= number <= len(now.tasks):
            raise BadCall(f"the plan has no task {number}; it has {len(now.tasks)}")
        tasks = [*now.tasks]
        tasks[number - 1] = replace(tasks[number - 1], status=_read_status(number, status))
        return await change(replace(now, tasks=tuple(tasks)))

    async def note(kind: NoteKind, text: str) -> Result:
        """Write into the lab notebook: a hypothesis, a result or a decision, so that it is not lost in a long session."""
        now = read_state().plan
        if not (clean := _clean(text)):
            raise BadCall("there is nothing to note; give a text")
        entry = LabNote(kind=kind, text=clean, cell=read_state().cells or None)
        return await change(replace(now, notes=(*now.notes[1 - MOST_NOTES :], entry)))

    async def todo(items: list[Json]) -> Result:
        """Keep a list of what is to be done. Give the whole list each time, with what is done marked."""
        return await plan(items)

    as_tool = tool(effect="pure", reach="nothing")
    made: list[AnyTool] = [as_tool(plan), as_tool(task), as_tool(note)]
    own = [replace(one, name=f"{SERVER}.{one.name}", server=SERVER, returns={"type": "null"}) for one in made]
    return [*own, replace(as_tool(todo), server="system")]


def _clean(text: str) -> str:
    return first_line(redact(text).strip(), _TEXT) if text.strip() else ""


def read_task(number: int, item: Json) -> PlanTask:
    """Read a task as a model or a user writes it. Raises BadCall."""
    match item:
        case str(text):
            marked = re.match(r"\s*(?:[-*]\s*)?\[([ xX>-])\]\s*(?:\d+\.\s*)?", text)
            status = _STATUS[marked[1].lower()] if marked else "todo"
            text = text[marked.end() :] if marked else text
        case Mapping():
            given = cast("Mapping[str, Json]", item)
            text = next((given[key] for key in ("text", "content", "task", "title", "step") if key in given), None)
            status = "done" if given.get("done") is True else given.get("status", "todo")
        case _:
            text, status = None, "todo"
    if not isinstance(text, str) or not text.strip():
        raise BadCall(f'task {number} should be a text or {{"text": "...", "status": "todo"}}')
    return PlanTask(text=_clean(text), status=_read_status(number, status))


def _read_status(number: int, status: object) -> TaskStatus:
    word = str(status).strip().casefold()
    word = _OTHER_WORDS.get(word, word)
    if word not in get_args(TaskStatus):
        raise BadCall(f"task {number}: the status is todo, doing, done or dropped, not {status!r}")
    return cast("TaskStatus", word)
