"""Calls to a real server over its standard streams, in both ages of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from dirty_equals import IsPartialDict
from tests.tools.mcp.doubles import House, Parrot, Somebody, spec, until

from pinfold.tools import Registry, Result, ToolFailed
from pinfold.tools.mcp.ports import Limits
from pinfold.tools.mcp.servers import Servers

pytestmark = pytest.mark.integration

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452")


@pytest.fixture(scope="module", params=["newer", pytest.param("older", marks=pytest.mark.slow)])
def age(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"LEGACY": "1"} if request.param == "older" else {}


@pytest.fixture(scope="module")
async def servers(age: dict[str, str]) -> AsyncGenerator[Servers]:
    """One for all tests that leave it as it was."""
    async with House().servers(spec("everyday", env={**age, "KEY": "k1"})) as servers:
        yield servers


@pytest.fixture(scope="module")
async def tools(servers: Servers) -> Registry:
    return Registry(await servers.tools("everyday"))


async def test_a_tool_is_named_after_its_server_and_described_as_the_server_does(servers: Servers) -> None:
    tools = {tool.name: tool for tool in await servers.tools("everyday")}
    add = tools["everyday.add"]
    assert (add.server, add.description, add.trust, add.reach) == (
        "everyday",
        "Add two numbers.",
        "untrusted",
        "outside",
    )
    assert add.schema.parameters == IsPartialDict(required=["a"])
    assert add.returns == IsPartialDict(required=["result"])
    assert {argument.name: argument.is_required for argument in add.arguments} == {"a": True, "b": False}
    assert servers.status("everyday").tools == len(tools) == 20


async def test_what_a_tool_gives_is_a_value_for_code_and_text_for_the_model(tools: Registry) -> None:
    given = {
        name: await tools.call(f"everyday.{name}", args)
        for name, args in {"add": {"a": 1, "b": 2}, "weather": {"city": "Graz"}, "picture": {}, "several": {}}.items()
    }
    assert given == {
        "add": Result(text='{"result": 3}', value={"result": 3}, untrusted=True),
        "weather": Result(
            text='{"city": "Graz", "degrees": 21.5}', value={"city": "Graz", "degrees": 21.5}, untrusted=True
        ),
        "picture": Result(text="[image image/png, 16 bytes]", value=PNG, untrusted=True),
        "several": Result(
            text="first\n[image image/png, 16 bytes]",
            value=["first", {"type": "image", "mime": "image/png", "data": PNG}],
            untrusted=True,
        ),
    }


async def test_a_text_is_an_object_or_an_array_if_it_is_one_and_else_text(tools: Registry) -> None:
    for said, value in {
        "plain": "plain",
        '{"a": [1]}': {"a": [1]},
        " [1, 2]": [1, 2],
        "7": "7",
        '"quoted"': '"quoted"',
        "null": "null",
        "{not json": "{not json",
        "": "",
    }.items():
        result = await tools.call("everyday.text", {"words": said})
        assert (result.text, result.value) == (said, value)


async def test_a_failing_tool_fails_with_its_own_words(tools: Registry) -> None:
    with pytest.raises(ToolFailed, match=r"everyday\.fails failed: .*no milk") as failed:
        await tools.call("everyday.fails", {"why": "no milk"})
    assert (failed.value.untrusted, failed.value.may_have_happened, failed.value.at_fault) == (True, False, False)


async def test_wrong_arguments_get_one_clear_line_and_are_not_sent(tools: Registry) -> None:
    wrong: list[tuple[object, str]] = [
        ({}, "wrong arguments for everyday.add: 'a' is missing"),
        ({"a": "1"}, "wrong arguments for everyday.add: 'a' should be integer, not \"1\""),
        ({"a": 1, "b": -1}, "wrong arguments for everyday.add: 'b' should be at least 0, not -1"),
        ([], "wrong arguments for everyday.add: they must be an object"),
        ({"a": float("nan")}, "JSON cannot hold them"),
        ({"a": 1, "c": "\ud800"}, "JSON cannot hold them"),
    ]
    for args, said in wrong:
        with pytest.raises(ToolFailed) as failed:
            await tools.call("everyday.add", args)
        assert said in str(failed.value)
        assert "\n" not in str(failed.value)


async def test_resources_and_prompts_are_tools_of_the_same_module(tools: Registry) -> None:
    assert [one["uri"] for one in (await tools.call("everyday.list_resources", {})).value] == [
        "notes://today",
        "pictures://cat",
    ]
    assert [one["uriTemplate"] for one in (await tools.call("everyday.list_resource_templates", {})).value] == [
        "notes://{day}"
    ]
    assert (await tools.call("everyday.read_resource", {"uri": "notes://today"})).value == "buy milk"
    assert (await tools.call("everyday.read_resource", {"uri": "notes://monday"})).value == "nothing on monday"
    assert (await tools.call("everyday.read_resource", {"uri": "pictures://cat"})).value == PNG
    assert [one["name"] for one in (await tools.call("everyday.list_prompts", {})).value] == ["greet"]
    greeting = await tools.call("everyday.get_prompt", {"name": "greet", "arguments": {"name": "Bo"}})
    assert greeting.value["messages"] == [{"role": "user", "content": "Say hello to Bo"}]
    with pytest.raises(ToolFailed, match=r"everyday\.read_resource failed"):
        await tools.call("everyday.read_resource", {"uri": "nowhere://x"})


async def test_calls_run_side_by_side(tools: Registry) -> None:
    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(tools.call, "everyday.slow", {"steps": 1, "every_s": 3})
            tasks.start_soon(tools.call, "everyday.text", {"words": "x"})


class _Thinker(Somebody):
    """Takes longer than any call may be silent."""

    async def elicit(self, server: str, message: str, schema: object) -> dict[str, str]:
        del server, message, schema
        await anyio.sleep(4.5)
        return {"name": "Slow"}


async def test_progress_and_people_keep_a_call_alive_but_neither_silence_nor_endless_progress(
    age: dict[str, str],
) -> None:
    house, limits = House(person=_Thinker()), Limits(patience=2)
    async with house.servers(spec("everyday", env=age, timeout_s=4), limits=limits) as servers:
        tools = Registry(await servers.tools("everyday"))
        assert (await tools.call("everyday.slow", {"steps": 22, "every_s": 0.2})).value == "done"
        assert (await tools.call("everyday.ask", {})).value == "accept Slow"
        for steps, every_s, why in (
            (1, 60, r"it was silent for 4 s and was given up"),
            (1_000, 0.1, r"took longer than 8 s and was given up"),
        ):
            with pytest.raises(ToolFailed, match=why) as failed:
                await tools.call("everyday.slow", {"steps": steps, "every_s": every_s})
            assert failed.value.may_have_happened


async def test_a_cancelled_call_is_cancelled_at_the_server_too(tools: Registry, tmp_path: Path) -> None:
    marker = tmp_path / "cancelled"
    with anyio.move_on_after(1):
        await tools.call("everyday.hang", {"marker": str(marker)})
    await until(marker.exists)
    assert (await tools.call("everyday.text", {"words": "still here"})).value == "still here"


async def test_bytes_are_sent_as_base64(tools: Registry) -> None:
    assert (await tools.call("everyday.text", {"words": b"hi"})).value == "aGk="


async def test_a_server_gets_the_environment_of_its_entry(tools: Registry) -> None:
    assert (await tools.call("everyday.environment", {"name": "KEY"})).value == "k1"


async def test_a_server_asks_the_person_and_the_model_and_sees_the_roots(tmp_path: Path, age: dict[str, str]) -> None:
    somebody, parrot = Somebody(fills={"name": "Ann"}, agrees=True), Parrot("hello")
    house = House(person=somebody, sampler=parrot, roots=(tmp_path,))
    async with house.servers(spec("everyday", env=age)) as servers:
        tools = Registry(await servers.tools("everyday"))
        assert (await tools.call("everyday.ask", {})).value == "accept Ann"
        assert (await tools.call("everyday.think", {"question": "2+2?"})).value == "parrot: hello"
        assert (await tools.call("everyday.folders", {})).value == tmp_path.as_uri()
    assert somebody.asked[0][:2] == ("everyday", "Who are you?")
    question = {"role": "user", "content": {"type": "text", "text": "2+2?"}}
    assert parrot.asked == [("everyday", [question], "be brief", 50)]


async def test_a_server_whose_arguments_name_folders_works_there(tmp_path: Path) -> None:
    house = House(roots=(tmp_path / "workspace",))
    async with house.servers(spec("everyday", "", str(tmp_path), str(tmp_path / "gone"))) as servers:
        tools = Registry(await servers.tools("everyday"))
        assert (await tools.call("everyday.folders", {})).value == tmp_path.as_uri()


async def test_a_person_who_declines_and_a_model_that_may_not_be_asked_are_told_to_the_server(tools: Registry) -> None:
    assert (await tools.call("everyday.ask", {})).value == "decline"
    with pytest.raises(ToolFailed, match="settings do not let this server ask a model"):
        await tools.call("everyday.think", {"question": "2+2?"})


async def test_a_page_is_opened_only_if_the_person_agrees() -> None:
    somebody = Somebody()
    async with House(person=somebody).servers(spec("everyday", env={"LEGACY": "1"})) as servers:
        tools = Registry(await servers.tools("everyday"))
        for somebody.agrees, answer in ((True, "accept"), (False, "decline")):
            assert (await tools.call("everyday.visit", {})).value == answer
    assert somebody.asked == [("everyday", "https://pay.example.com/x", "Please pay")] * 2


async def test_a_new_tool_is_held_and_annotations_count_only_after_the_user_agrees(age: dict[str, str]) -> None:
    house = House()
    async with house.servers(spec("everyday", env=age)) as servers:
        tools = Registry(await servers.tools("everyday"))
        await tools.call("everyday.text", {"words": "x"})  # by then it is listened to for changes
        await tools.call("everyday.grow", {})
        await until(lambda: bool(servers.difference("everyday")))
        assert "everyday.more" not in [tool.name for tool in await servers.tools("everyday")]
        assert servers.difference("everyday").names("new") == ("more",)
        assert len(servers.difference("everyday").changes) == 1
        assert any("1 tool is new" in line for line in house.notices)
        servers.accept("everyday")
        assert "everyday.more" in [tool.name for tool in await servers.tools("everyday")]
        assert not servers.difference("everyday")

        assert {effect for _, effect in _effects(servers)} == {("once", False)}
        house.pins.trusted.add("everyday")
        assert dict(_effects(servers)) == {
            "everyday.add": ("once", False),
            "everyday.list_resources": ("pure", True),
            "everyday.text": ("keyed", False),
            "everyday.weather": ("pure", True),
        }


def _effects(servers: Servers) -> list[tuple[str, tuple[str, bool]]]:
    return [
        (tool.name, (tool.effect, tool.parallel_safe))
        for tool in servers.pinned_tools("everyday") or ()
        if tool.name in ("everyday.weather", "everyday.text", "everyday.add", "everyday.list_resources")
    ]
