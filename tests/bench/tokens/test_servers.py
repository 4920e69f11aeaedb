"""The servers of the bench really do what their tools say, and declare what they give."""

from __future__ import annotations

from typing import Any, cast

import pytest
from bench.tokens.o200k import tokens
from bench.tokens.servers import PUBLIC, more_tools, public_tools
from bench.tokens.servers.tool_schema import result_schemas
from bench.tokens.weight import tool_text
from tests.bench.tokens.sample_calls import SAMPLES

from pinfold.events import Json
from pinfold.tools import Registry

pytestmark = pytest.mark.unit

TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema_like(value: Json) -> Json:
    match value:
        case dict():
            fields = cast("dict[str, Any]", value)
            properties = {str(key): schema_like(one) for key, one in fields.items()}
            return {"type": "object", "properties": properties, "required": [*properties]}
        case list():
            return {"type": "array", "items": schema_like(value[0])} if value else {"type": "array"}
        case _:
            return {"type": TYPES[type(value)]}


def test_there_are_enough_tools_and_they_are_as_verbose_as_real_ones() -> None:
    tools = public_tools()
    assert len(tools) >= 128
    assert len({tool.name for tool in tools}) == len(tools)
    assert {tool.server for tool in tools} == set(PUBLIC)
    each = sum(tokens(tool_text(tool.schema)) for tool in tools) / len(tools)
    assert 100 < each <= 133  # 120 tools of eleven real servers have 133 each


async def test_every_tool_works_and_gives_what_it_declares() -> None:
    registry = Registry(public_tools())
    assert set(SAMPLES) == {name for name in registry.names if name != "python"}
    given = {name: schema_like((await registry.call(name, args)).value) for name, args in SAMPLES.items()}
    assert given == result_schemas()


async def test_servers_begin_anew_with_every_task() -> None:
    first, second = Registry(public_tools()), Registry(public_tools())
    await first.call("support.close_ticket", {"ticket_id": 305})
    there = (await second.call("support.get_ticket", {"ticket_id": 305})).value
    assert there["status"] != "closed"


def test_further_tools_are_distinct() -> None:
    assert len({tool.name for tool in more_tools(500)}) == 500
