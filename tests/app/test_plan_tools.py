"""`servers.project` and `todo`: the plan and the lab notebook as the session's state, and what the model sees of them."""

from __future__ import annotations

from typing import Any

import pytest

from pinfold.app.session.plan_tools import plan_tools
from pinfold.engine import fold, request_of
from pinfold.events import LabNote, Plan, PlanTask, SessionId, SessionOpened, TurnId, UserSpoke
from pinfold.log import Log
from pinfold.tools import Registry, ToolFailed

pytestmark = pytest.mark.unit


class Session:
    def __init__(self) -> None:
        self.log = Log(None, SessionId("s_test"))
        self.registry = Registry(plan_tools(self.log, lambda: fold(self.log.read())))

    async def call(self, tool: str, **args: Any) -> str:
        return (await self.registry.call(tool, args)).text

    @property
    def plan(self) -> Plan:
        return fold(self.log.read()).plan


async def test_a_plan_and_its_progress_are_in_the_log() -> None:
    session = Session()
    await session.call("project.plan", tasks=["load", "clean"], goal="Find the outliers", state="executing")
    text = await session.call("project.task", number=1, status="done")
    assert text == "Plan (executing): Find the outliers\n[x] 1. load\n[ ] 2. clean"
    tasks = (PlanTask(text="load", status="done"), PlanTask(text="clean"))
    assert session.plan == Plan(state="executing", goal="Find the outliers", tasks=tasks)


async def test_notes_of_the_lab_notebook_add_up() -> None:
    session = Session()
    await session.call("project.note", kind="hypothesis", text="revenue is in thousands")
    await session.call("project.note", kind="decision", text="drop rows without a date")
    assert session.plan.notes == (
        LabNote(kind="hypothesis", text="revenue is in thousands"),
        LabNote(kind="decision", text="drop rows without a date"),
    )


async def test_todo_takes_lists_as_models_write_them() -> None:
    session = Session()
    items = [
        "plain",
        "- [x] marked",
        "[ ] open",
        {"text": "ours", "done": True},
        {"content": "theirs", "status": "completed"},
        {"step": "plan", "status": "in_progress"},
    ]
    text = await session.call("todo", items=items)
    assert text.splitlines()[1:] == [
        "[ ] 1. plain",
        "[x] 2. marked",
        "[ ] 3. open",
        "[x] 4. ours",
        "[x] 5. theirs",
        "[>] 6. plan",
    ]


@pytest.mark.parametrize("item", ["", "  ", 3, None, {"done": True}, {"text": 5}, ["a"]])
async def test_an_item_that_is_none_is_named(item: Any) -> None:
    with pytest.raises(ToolFailed, match=r'task 2 should be a text or \{"text": "...", "status": "todo"\}'):
        await Session().call("todo", items=["a", item])


@pytest.mark.parametrize(
    ("tool", "args", "words"),
    [
        ("project.task", {"number": 3, "status": "done"}, "no task 3"),
        ("project.task", {"number": 1, "status": "maybe"}, "'status' should be"),
        ("project.note", {"kind": "rumour", "text": "x"}, "'kind' should be"),
        ("project.note", {"kind": "result", "text": " "}, "nothing to note"),
        ("project.plan", {"tasks": ["x"] * 101}, "100 is the most"),
    ],
)
async def test_bad_input_says_what_is_wrong_and_changes_nothing(tool: str, args: dict[str, Any], words: str) -> None:
    session = Session()
    await session.call("project.plan", tasks=["one"])
    before = session.plan
    with pytest.raises(ToolFailed, match=words):
        await session.call(tool, **args)
    assert session.plan == before


async def test_the_plan_stands_at_the_end_of_what_the_model_sees() -> None:
    session = Session()
    opened = SessionOpened(version="0", workspace="/w", model="m", mode="auto", sandbox="s")
    await session.log.append(opened, UserSpoke(turn=TurnId("t1"), text="go"))
    before = request_of(fold(session.log.read()), (), {}).messages
    await session.call("project.plan", tasks=["load"])
    messages = request_of(fold(session.log.read()), (), {}).messages
    assert messages[:-1] == before
    assert messages[-1].text == "[Plan (planning)\n[ ] 1. load]"


async def test_secrets_do_not_get_into_the_notebook() -> None:
    session = Session()
    await session.call(
        "project.note", kind="result", text="the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    )
    assert "sk-proj-abcdef" not in session.plan.notes[0].text
