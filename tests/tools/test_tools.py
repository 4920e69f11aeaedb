"""A typed function as a tool: told to the model from its signature, called with checked arguments."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel, Field

from pinfold.events import CallTool, RunCell, ToolSchema
from pinfold.tools import PYTHON, BadTool, Registry, Tool, ToolFailed, as_tool, tool

pytestmark = pytest.mark.unit


class Place(BaseModel):
    city: str
    zip_code: int | None = None


@dataclass
class Span:
    start: date
    days: int = 1


@tool(effect="pure")
def forecast(
    place: Place,
    span: Span,
    unit: Literal["c", "f"] = "c",
    tags: list[str] | None = None,
    detail: Annotated[int, Field(ge=0, le=3, description="How much to tell")] = 1,
) -> str:
    """Tell the weather.

    For any place.
    """
    return f"{place.city} {span.start:%d.%m.} +{span.days} {unit} {tags} {detail}"


async def call(function: Callable[..., Any], **args: Any) -> str:
    made = as_tool(function)
    return (await Registry([made]).call(made.name, args)).text


@pytest.mark.installed
def test_the_schema_comes_from_signature_and_docstring() -> None:
    assert forecast.schema == snapshot(
        ToolSchema(
            name="forecast",
            description="Tell the weather.\n\nFor any place.",
            parameters={
                "$defs": {
                    "Place": {
                        "properties": {"city": {"type": "string"}, "zip_code": {"type": "integer"}},
                        "required": ["city"],
                        "type": "object",
                    },
                    "Span": {
                        "additionalProperties": False,
                        "properties": {
                            "start": {"format": "date", "type": "string"},
                            "days": {"default": 1, "type": "integer"},
                        },
                        "required": ["start"],
                        "type": "object",
                    },
                },
                "additionalProperties": False,
                "properties": {
                    "place": {"$ref": "#/$defs/Place"},
                    "span": {"$ref": "#/$defs/Span"},
                    "unit": {"default": "c", "enum": ["c", "f"], "type": "string"},
                    "tags": {"items": {"type": "string"}, "type": "array"},
                    "detail": {
                        "default": 1,
                        "description": "How much to tell",
                        "maximum": 3,
                        "minimum": 0,
                        "type": "integer",
                    },
                },
                "required": ["place", "span"],
                "type": "object",
            },
        )
    )


async def test_arguments_arrive_as_the_types_that_were_declared() -> None:
    said = await call(forecast, place={"city": "Bern"}, span={"start": "2026-01-31"}, unit="f", tags=["wind"], detail=3)
    assert said == "Bern 31.01. +1 f ['wind'] 3"


async def test_defaults_are_filled_in() -> None:
    assert await call(forecast, place={"city": "Bern"}, span={"start": "2026-01-31"}) == "Bern 31.01. +1 c None 1"


TAKES = "it takes place, span, unit='c', tags, detail=1, of which place and span must be given"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "'place' is missing; 'span' is missing; " + TAKES),
        ({"place": {"city": 3}, "span": {"start": "2026-01-31"}}, "'place.city' should be a valid string, not 3"),
        (
            {"place": {"city": "B"}, "span": {"start": "soon"}},
            "'span.start' should be a valid date or datetime, input is too short, not \"soon\"",
        ),
        (
            {"place": {"city": "B"}, "span": {"start": "2026-01-31"}, "unit": "k"},
            "'unit' should be 'c' or 'f', not \"k\"",
        ),
        (
            {"place": {"city": "B"}, "span": {"start": "2026-01-31"}, "detail": 9},
            "'detail' should be less than or equal to 3, not 9",
        ),
        (
            {"place": {"city": "B"}, "span": {"start": "2026-01-31"}, "details": 1},
            "unknown argument 'details'; did you mean 'detail'?; " + TAKES,
        ),
        ([], "they must be an object, not []; " + TAKES),
        (None, "they must be an object, not null; " + TAKES),
    ],
)
async def test_wrong_arguments_say_exactly_what_to_fix(args: Any, words: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await Registry([forecast]).call("forecast", args)
    assert str(caught.value) == f"wrong arguments for forecast: {words}"
    assert (caught.value.at_fault, caught.value.may_have_happened) == (False, False)


def test_a_tool_is_still_the_function_it_was_made_from() -> None:
    @tool
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert double(4) == 8
    assert isinstance(double, Tool)
    assert (double.effect, double.parallel_safe, double.timeout_s) == ("once", False, 60.0)


def test_a_plain_function_is_a_tool_with_the_defaults() -> None:
    def plain(text: str) -> str:
        return text

    made = as_tool(plain)
    assert (made.name, made.description, made.effect, made.parallel_safe) == ("plain", "", "once", False)
    assert as_tool(made) is made


def test_only_pure_tools_are_parallel_safe_unless_told() -> None:
    def f() -> None: ...

    assert tool(effect="pure")(f).parallel_safe
    assert not tool(effect="pure", parallel_safe=False)(f).parallel_safe
    assert tool(effect="keyed", parallel_safe=True)(f).parallel_safe


async def test_a_tool_may_be_async() -> None:
    async def later(n: int) -> int:
        await anyio.lowlevel.checkpoint()
        return n + 1

    assert await call(later, n=1) == "2"


async def test_a_sync_tool_does_not_hold_up_the_others() -> None:
    go = threading.Event()

    def wait() -> str:
        assert go.wait(10)
        return "released"

    async with anyio.create_task_group() as tasks:

        async def release() -> None:
            go.set()

        tasks.start_soon(release)
        assert await call(wait) == "released"


async def test_a_tool_that_takes_too_long_is_given_up() -> None:
    @tool(timeout_s=0.01)
    async def slow() -> None:
        await anyio.sleep_forever()

    with pytest.raises(ToolFailed, match=r"^slow took longer than 0\.01 s and was given up$") as caught:
        await call(slow)
    assert (caught.value.at_fault, caught.value.may_have_happened) == (True, True)


async def test_a_timeout_inside_the_tool_is_its_own_failure() -> None:
    def fetch() -> None:
        raise TimeoutError("no answer from the server")

    with pytest.raises(ToolFailed, match=r"^fetch failed: TimeoutError: no answer from the server$") as caught:
        await call(fetch)
    assert (caught.value.at_fault, caught.value.may_have_happened) == (True, False)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyError("k"), SystemExit(3), StopIteration("end"), ToolFailed("mine")]
)
async def test_whatever_a_tool_raises_is_told_to_the_model(error: BaseException) -> None:
    def sync() -> None:
        raise error

    with pytest.raises(ToolFailed, match=r"^sync failed: ") as caught:
        await call(sync)
    assert caught.value.at_fault


async def test_an_async_tool_that_exits_does_not_take_the_agent_with_it() -> None:
    async def leave() -> None:
        sys.exit("bye")

    with pytest.raises(ToolFailed, match=r"^leave failed: SystemExit: bye$"):
        await call(leave)


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is\n", "as it is\n"),
        (None, "null"),
        ({"a": [1, 2.5, True]}, '{"a":[1,2.5,true]}'),
        (Place(city="Bern"), '{"city":"Bern","zip_code":null}'),
        (Span(start=date(2026, 1, 2)), '{"start":"2026-01-02","days":1}'),
        ((1, {2}), "[1,[2]]"),
        (Path("/x"), '"/x"'),
        ({"mean": float("nan"), "max": float("inf")}, '{"mean":NaN,"max":Infinity}'),
        (["é👩‍🔬", 10**30], '["é👩‍🔬",1000000000000000000000000000000]'),
        (["\ud800"], "['\\ud800']"),
        (b"\xff", "[1 bytes]"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 1492, "[image/png, 1,500 bytes]"),
        ({"raw": b"\xff\xfe"}, '{"raw":"[2 bytes]"}'),
        (Odd(), "<odd>"),
        ([Odd()], "[<odd>]"),
    ],
)
async def test_a_result_becomes_text(result: object, text: str) -> None:
    def give() -> object:
        return result

    assert await call(give) == text


async def test_a_result_that_holds_itself_is_shown_as_python_shows_it() -> None:
    def loop() -> list[Any]:
        value: list[Any] = []
        value.append(value)
        return value

    assert await call(loop) == "[[...]]"


def positional(a: int, /) -> None: ...
def star(*args: int) -> None: ...
def double_star(**kwargs: int) -> None: ...


@pytest.mark.parametrize(("function", "name"), [(positional, "a"), (star, "args"), (double_star, "kwargs")])
def test_a_parameter_without_a_name_is_refused(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(
        BadTool, match=f"^{function.__name__} cannot be a tool: parameter '{name}' cannot be passed by name"
    ):
        tool(function)


@pytest.mark.parametrize("name", ["", "two words", "1st", "naïve", "x" * 65, "a-b"])
def test_a_name_no_provider_takes_is_refused(name: str) -> None:
    def f() -> None: ...

    f.__name__ = name
    with pytest.raises(BadTool, match="cannot be a tool's name: use letters, digits and underscores"):
        tool(f)


def test_a_name_can_be_given() -> None:
    assert tool(name="other")(lambda: None).name == "other"


@pytest.mark.parametrize("hint", ["Nowhere", "Odd", "list["])
def test_a_type_that_means_nothing_to_a_model_is_the_authors_fault(hint: str) -> None:
    def f(x: object) -> None: ...

    f.__annotations__["x"] = hint
    with pytest.raises(BadTool, match=r"^f cannot be a tool: "):
        _ = tool(f).schema


async def test_any_python_name_may_be_a_parameter() -> None:
    def f(schema: int, copy: int, json: int, model_config: int, _private: int = 5, self: int = 6) -> list[int]:
        return [schema, copy, json, model_config, _private, self]

    assert await call(f, schema=1, copy=2, json=3, model_config=4) == "[1,2,3,4,5,6]"
    properties: dict[str, Any] = dict(as_tool(f).schema.parameters["properties"])
    assert list(properties) == ["schema", "copy", "json", "model_config", "_private", "self"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(BadTool, match=r"^two tools are called 'forecast'; give one another name$"):
        Registry([forecast, forecast])
    with pytest.raises(BadTool, match="two tools are called 'python'"):
        Registry([tool(name="python")(lambda: None)])


def test_the_model_is_told_python_first_then_the_tools() -> None:
    registry = Registry([forecast])
    python, told = registry.schemas()
    assert python == PYTHON
    whole = dict(forecast.schema.parameters)
    assert whole.pop("additionalProperties") is False  # checked, but not worth telling with every request
    assert (told.name, told.description) == (forecast.schema.name, forecast.schema.description)
    assert told.parameters == whole
    assert registry.get("forecast") is forecast
    assert registry.get("nothing") is None


@pytest.mark.parametrize(
    ("name", "args", "action"),
    [
        ("python", {"code": "1"}, RunCell(code="1")),
        ("python", {"code": 1}, CallTool(tool="python", args={"code": 1})),
        ("python", {"code": "1", "x": 2}, RunCell(code="1")),
        ("python", "1", CallTool(tool="python", args="1")),
        ("forecast", {}, CallTool(tool="forecast", args={})),
    ],
)
def test_a_call_proposes_a_cell_or_a_tool(name: str, args: Any, action: object) -> None:
    assert Registry().action(name, args) == action


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("forcast", "no tool is called 'forcast'; did you mean forecast?"),
        ("xyz", "no tool is called 'xyz'; there are python, forecast"),
        ("bash", "no tool is called 'bash'; there are python, forecast"),
        ("python", 'wrong arguments for python: it takes {"code": "..."} and nothing else'),
    ],
)
async def test_a_tool_that_is_not_there_is_named_with_the_nearest(name: str, words: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await Registry([forecast]).call(name, {})
    assert str(caught.value) == words
    assert not caught.value.at_fault


async def test_a_tool_that_cancels_itself_fails_alone() -> None:
    async def lost() -> None:
        task = asyncio.create_task(asyncio.sleep(5))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(ToolFailed, match="it cancelled itself"):
        await call(lost)


async def test_a_result_that_cannot_be_shown_is_the_tools_failure() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("not for you")

    def make() -> object:
        return Shy()

    with pytest.raises(ToolFailed, match="make failed: RuntimeError: not for you"):
        await call(make)
