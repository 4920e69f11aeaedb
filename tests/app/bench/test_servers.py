"""The servers of the bench really do what their tools say, and declare what they give."""

from __future__ import annotations

import pytest
from tests.app.bench.samples import SAMPLES

from pinfold.app.bench.servers import SERVERS, more_tools, new_tools
from pinfold.app.bench.servers.declared import results, schema_like
from pinfold.app.bench.weighing import tokens, tool_text
from pinfold.tools import Registry

pytestmark = pytest.mark.unit


def test_there_are_enough_tools_and_they_are_as_verbose_as_real_ones() -> None:
    tools = new_tools()
    assert len(tools) >= 128
    assert len({tool.name for tool in tools}) == len(tools)
    assert {tool.server for tool in tools} == set(SERVERS)
    each = sum(tokens(tool_text(tool.schema)) for tool in tools) / len(tools)
    assert 100 < each <= 133  # 120 tools of eleven real servers have 133 each


async def test_every_tool_works_and_gives_what_it_declares() -> None:
    registry = Registry(new_tools())
    assert set(SAMPLES) == {name for name in registry.names if name != "python"}
    given = {name: schema_like((await registry.call(name, args)).value) for name, args in SAMPLES.items()}
    assert given == results()


async def test_servers_begin_anew_with_every_task() -> None:
    first, second = Registry(new_tools()), Registry(new_tools())
    await first.call("support.close_ticket", {"ticket_id": 305})
    there = (await second.call("support.get_ticket", {"ticket_id": 305})).value
    assert there["status"] != "closed"


def test_further_tools_are_distinct() -> None:
    assert len({tool.name for tool in more_tools(500)}) == 500
