"""When servers start, end, start again, and are left alone."""

from __future__ import annotations

import math

import anyio
import pytest
from tests.tools.mcp.doubles import House, spec, until

from pinfold.tools import BadCall, BadTool, Registry, ToolFailed
from pinfold.tools.mcp.ports import Limits

pytestmark = pytest.mark.integration


async def test_nothing_starts_before_it_is_used() -> None:
    house = House()
    async with house.servers(spec("a", "rude"), spec("b", "rude")) as servers:
        assert servers.names == ("a", "b")
        assert servers.status("a").state == "idle"
        assert servers.pinned_tools("a") is None
        assert not servers.difference("a")
        await servers.tools("b")
        assert house.programs.started == ["b"]
        assert (servers.status("a").state, servers.status("b").state) == ("idle", "ready")


async def test_servers_start_side_by_side_and_once_for_all_who_wait() -> None:
    house = House()
    async with house.servers(*(spec(name, "rude") for name in "abc")) as servers:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(servers.start)
                tasks.start_soon(servers.tools, "a")
        assert sorted(house.programs.started) == ["a", "b", "c"]


async def test_tools_of_a_known_server_are_offered_without_starting_it_and_start_it_when_called() -> None:
    house = House()
    async with house.servers(spec("rude")) as servers:
        offered = await servers.tools("rude")
    assert house.programs.running == {}
    async with house.servers(spec("rude")) as servers:
        pinned = servers.pinned_tools("rude")
        assert pinned is not None
        assert [tool.name for tool in pinned] == [tool.name for tool in offered]
        assert [tool.schema for tool in pinned] == [tool.schema for tool in offered]
        assert house.programs.started == ["rude"]
        assert (await Registry(pinned).call("rude.fine", {})).value == "fine"
        assert house.programs.started == ["rude", "rude"]


async def test_a_killed_server_fails_its_calls_at_once_and_starts_again_at_the_next() -> None:
    house = House()
    async with house.servers(spec("rude", timeout_s=60)) as servers:
        tools = Registry(await servers.tools("rude"))
        failed: list[ToolFailed] = []

        async def hang() -> None:
            with pytest.raises(ToolFailed, match=r"rude\.hang failed: it was killed by signal 9") as info:
                await tools.call("rude.hang", {})
            failed.append(info.value)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(hang)
                await tools.call("rude.fine", {})  # the others were sent before this one
                house.programs.kill("rude")
        assert [one.may_have_happened for one in failed] == [True] * 3
        assert (await tools.call("rude.fine", {})).value == "fine"
        assert house.programs.started == ["rude", "rude"]


async def test_a_server_that_keeps_failing_is_tried_ever_less_often_and_then_left_alone() -> None:
    house = House()
    limits = Limits(first_wait_s=0.05, first_pause_s=30, longest_pause_s=45)
    async with house.servers(spec("rude", "rude", "dies"), limits=limits) as servers:
        for attempt in (1, 2, 3):
            with pytest.raises(BadCall, match="rude did not start: it ended with exit code 4"):
                await servers.tools("rude")
            assert len(house.programs.started) == attempt
        status = servers.status("rude")
        assert status.state == "paused"
        assert 29 < status.retry_in_s <= 30
        assert house.notices == [
            "rude failed 3 times in a row and is paused for 30 s: it ended with exit code 4; it said: no such key"
        ]
        with pytest.raises(
            BadCall, match=r"rude is paused for another 30 s, after 3 failures in a row; the last one: it ended"
        ):
            await servers.tools("rude")
        assert len(house.programs.started) == 3


async def test_a_pause_ends_and_a_longer_one_follows() -> None:
    house = House()
    limits = Limits(first_wait_s=0.01, first_pause_s=0.2, longest_pause_s=math.inf)
    async with house.servers(spec("rude", "rude", "dies"), limits=limits) as servers:
        for _ in range(3):
            with pytest.raises(BadCall, match="did not start"):
                await servers.tools("rude")
        await until(lambda: servers.status("rude").state == "failed")
        with pytest.raises(BadCall, match="did not start"):
            await servers.tools("rude")
        assert 0.2 < servers.status("rude").retry_in_s <= 0.4


async def test_a_server_that_did_its_work_before_it_died_is_not_left_alone() -> None:
    house = House()
    async with house.servers(spec("rude"), limits=Limits(first_wait_s=0.01)) as servers:
        tools = Registry(await servers.tools("rude"))
        for _ in range(6):
            assert (await tools.call("rude.fine", {})).value == "fine"
            with pytest.raises(ToolFailed, match="exit code 3"):
                await tools.call("rude.die", {})
        assert len(house.programs.started) == 6


async def test_a_server_that_dies_of_every_call_is_left_alone() -> None:
    house = House()
    async with house.servers(spec("rude"), limits=Limits(first_wait_s=0.01)) as servers:
        tools = Registry(await servers.tools("rude"))
        for _ in range(3):
            with pytest.raises(ToolFailed, match="exit code 3"):
                await tools.call("rude.die", {})
        with pytest.raises(ToolFailed, match="rude is paused for another 30 s"):
            await tools.call("rude.die", {})
        assert len(house.programs.started) == 3


async def test_closing_ends_every_program_and_later_use_says_so() -> None:
    house = House()
    async with house.servers(spec("a", "rude"), spec("b", "rude")) as servers:
        await servers.start()
        tools = Registry(await servers.tools("a"))
        assert len(house.programs.running) == 2
        await servers.close()
        assert house.programs.running == {}
        with pytest.raises(ToolFailed, match="a is closed"):
            await tools.call("a.fine", {})


async def test_what_goes_wrong_in_the_body_reaches_the_caller_as_it_is() -> None:
    house = House()

    async def body() -> None:
        async with house.servers(spec("rude")) as servers:
            await servers.tools("rude")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await body()
    assert house.programs.running == {}


async def test_cancelling_the_body_ends_every_program() -> None:
    house = House()
    with anyio.move_on_after(30) as scope:
        async with house.servers(spec("rude", timeout_s=60)) as servers:
            tools = Registry(await servers.tools("rude"))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tools.call, "rude.hang", dict[str, int]())
                await tools.call("rude.fine", {})
                scope.cancel()
    assert scope.cancelled_caught
    assert house.programs.running == {}


async def test_names_are_known_or_refused() -> None:
    house = House()
    with pytest.raises(BadTool, match="two MCP servers have the same name"):
        house.servers(spec("a", "rude"), spec("a", "rude"))
    async with house.servers(spec("a", "rude")) as servers:
        with pytest.raises(BadCall, match="no MCP server is called 'b'; there is a"):
            await servers.tools("b")
