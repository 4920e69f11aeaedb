"""A plan that the user has not agreed to: nothing is changed."""

from __future__ import annotations

import pytest
from tests.engine.doubles import EchoRunner, calls, life, says

from pinfold.events import CallTool, Configure, Plan, PlanTask, TurnId
from pinfold.tools import tool

pytestmark = pytest.mark.unit


async def test_while_the_plan_is_locked_nothing_is_changed_until_the_user_agrees() -> None:
    @tool(effect="once")
    def send() -> str:
        """Send."""
        return "sent"

    runner = EchoRunner(tools=[send], mode="full")
    script = [says("", calls("send")), says("a plan"), says("", calls("send")), says("done")]
    async with life(script, runner=runner) as session:
        await session.submit(Configure(plan=Plan(tasks=(PlanTask(text="send"),), locked=True)))
        await session.say("go")
        assert [action for action in runner.began if isinstance(action, CallTool)] == []
        await session.submit(Configure(plan=Plan(state="executing")))
        await session.say("go on", TurnId("t2"))
    assert len(runner.began) == 1
