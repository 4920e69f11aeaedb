"""Servers that break the rules: one clear line for each, and nobody else is harmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import anyio
import pytest
from tests.tools.mcp.doubles import House, Somebody, spec

from pinfold.events import Json
from pinfold.tools import BadCall, Registry, ToolFailed
from pinfold.tools.mcp.ports import Limits

pytestmark = pytest.mark.safety

LIMITS = Limits(start_s=20, unasked=2_000, frame_bytes=1 << 20, reread_s=0.01, first_wait_s=0.01)


async def _called(tools: Registry, name: str) -> tuple[str, bool]:
    """What became of it, and whether it may have been done."""
    try:
        with anyio.fail_after(60):
            return str((await tools.call(name, {})).value), True
    except ToolFailed as failed:
        return str(failed), failed.may_have_happened


async def test_what_a_server_may_do_wrong_in_a_call_is_told_in_one_line_or_passed_over() -> None:
    house = House()
    async with house.servers(spec("rude", timeout_s=2), limits=LIMITS) as servers:
        tools = Registry(await servers.tools("rude"))
        became = {
            name: await _called(tools, f"rude.{name}")
            for name in (
                *("fine", "twice", "unknown_id", "garbage", "bytes", "changes", "keeps_promise", "evil_pattern"),
                *("error", "lies", "breaks_promise", "no_answer", "half", "wrong_answer"),
            )
        }
        assert servers.status("rude").state == "ready"
    passed = {name: said for name, (said, done) in became.items() if done and "failed" not in said}
    assert passed == {
        "fine": "fine",
        "twice": "first",
        "unknown_id": "yours",
        "garbage": "after garbage",
        "bytes": "after bytes",
        "changes": "told",
        "keeps_promise": "{'n': 7}",
        "evil_pattern": "{'s': '" + "a" * 40 + "b'}",
    }
    failed = {name: said for name, said in became.items() if name not in passed}
    assert failed.keys() == {"error", "lies", "breaks_promise", "no_answer", "half", "wrong_answer"}
    assert failed["error"] == (r"rude.error failed: no\nsuch \x1b[31mthing", False)
    said = "the server broke its promise: what the tool gave does not fit its own outputSchema; it was run"
    assert failed["lies"] == (f"rude.lies failed: {said}: 'n' should be integer, not \"seven\"", False)
    assert "promises structured values (outputSchema) and gave none" in failed["breaks_promise"][0]
    for name in ("no_answer", "half", "wrong_answer"):
        assert failed[name][1], name
        assert "\n" not in failed[name][0]
    assert house.programs.started == ["rude"]
    assert len([line for line in house.notices if "that is not a message" in line]) == 1


async def test_answers_out_of_order_reach_whoever_asked() -> None:
    async with House().servers(spec("rude"), limits=LIMITS) as servers:
        tools = Registry(await servers.tools("rude"))
        found: dict[int, str] = {}

        async def ask(number: int) -> None:
            found[number] = (await tools.call("rude.reverse", {"a": number})).value

        async with anyio.create_task_group() as tasks:
            for number in (1, 2, 3):
                tasks.start_soon(ask, number)
        assert found == {1: "1", 2: "2", 3: "3"}


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("flood", "it sent more than 2,000 messages in 10 s that were not asked for"),
        ("flood_of_garbage", "it sent more than 2,000 messages in 10 s that were not asked for"),
        ("endless_line", "it sent a message of more than 1,048,576 bytes"),
        ("huge", "it sent a message of more than 1,048,576 bytes"),
        ("die", "it ended with exit code 3; it said: out of cheese"),
        ("closes", "it closed its standard output"),
    ],
)
async def test_a_server_that_floods_or_dies_ends_itself_alone(tool: str, why: str) -> None:
    house = House()
    async with house.servers(spec("rude", timeout_s=30), spec("calm", "rude"), limits=LIMITS) as servers:
        assert await servers.start() == {}
        tools = Registry([*await servers.tools("rude"), *await servers.tools("calm")])
        calm: list[tuple[str, bool]] = []
        died: list[tuple[str, bool]] = []

        async def die() -> None:
            died.append(await _called(tools, f"rude.{tool}"))

        async def go_on() -> None:
            calm.extend([await _called(tools, "calm.fine") for _ in range(20)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(die)
            tasks.start_soon(_called, tools, "rude.hang")
            tasks.start_soon(go_on)
        assert died == [(f"rude.{tool} failed: {why}; whether it was done is not known", True)]
        assert calm == [("fine", True)] * 20
        assert servers.status("calm").state == "ready"
        assert servers.status("rude").why == why
        # It starts again when it is needed.
        assert await _called(tools, "rude.fine") == ("fine", True)
    assert house.programs.started.count("rude") == 2
    assert house.programs.started.count("calm") == 1
    assert house.programs.running == {}


async def test_a_hanging_call_is_given_up_and_others_of_the_same_server_go_on() -> None:
    async with House().servers(spec("rude", timeout_s=0.5), limits=LIMITS) as servers:
        tools = Registry(await servers.tools("rude"))
        said, may_have_happened = await _called(tools, "rude.hang")
        assert said == "rude.hang failed: it was silent for 0.5 s and was given up; whether it was done is not known"
        assert may_have_happened
        assert await _called(tools, "rude.fine") == ("fine", True)


class _Ponderer(Somebody):
    """Still ponders when all the others have been refused, however long that takes."""

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> None:
        self.asked.append((server, message, schema))
        await anyio.sleep_forever()


async def test_a_server_that_asks_too_much_at_once_is_refused_and_the_person_spared() -> None:
    person = _Ponderer()
    async with House(person=person).servers(spec("rude"), limits=LIMITS) as servers:
        tools = Registry(await servers.tools("rude"))
        assert await _called(tools, "rude.questions") == ("92 refused", True)
    assert len(person.asked) == LIMITS.questions == 8


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("dies", "it ended with exit code 4; it said: no such key"),
        ("mute", "it did not answer within 4 s"),
        ("liar", "Unsupported protocol version from the server: 1999-01-01"),
        ("nonsense", "it does not speak the protocol: capabilities: "),
        ("endless_pages", "its list has more than 100 pages"),
        ("many", "it lists more than 1,000; that is too many"),
    ],
)
async def test_a_server_that_does_not_come_up_says_why(how: str, why: str) -> None:
    house = House()
    limits = replace(LIMITS, start_s=4) if how == "mute" else LIMITS
    async with house.servers(spec("rude", "rude", how, timeout_s=1), spec("calm", "rude"), limits=limits) as servers:
        failed = await servers.start()
        assert failed.keys() == {"rude"}
        assert failed["rude"].startswith(f"rude did not start: {why}")
        assert servers.status("rude").state == "failed"
        assert servers.status("rude").why.startswith(why)
        assert len(await servers.tools("calm")) == 23
    assert "rude" not in house.pins.kept
    assert house.programs.running == {}


async def test_a_program_that_is_not_there_says_so() -> None:
    house = House()
    missing = spec("missing")
    missing = type(missing)(name="missing", transport="stdio", command="/no/such/program")
    async with house.servers(missing) as servers:
        with pytest.raises(BadCall, match="missing did not start: /no/such/program cannot be run: No such file"):
            await servers.tools("missing")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("same_names", "rude: fine is listed more than once, differently; not offered"),
        (
            "odd_names",
            r"rude: 'f\u0438ne' is not a valid name for a tool, 'a\x1b[2Jb' is not a valid name for a tool; not offered",
        ),
        (
            "noisy",
            "rude: its standard output has a line that is not a message: 'Welcome to the noisy server!'",
        ),
    ],
)
async def test_what_is_odd_is_told_and_the_rest_is_offered(how: str, told: str) -> None:
    house = House()
    async with house.servers(spec("rude", "rude", how), limits=LIMITS) as servers:
        names = [tool.name for tool in await servers.tools("rude")]
        assert house.notices == [told]
        assert len(names) == (22 if how == "same_names" else 23)
        assert ("rude.fine" in names) == (how != "same_names")
        assert not servers.difference("rude")
