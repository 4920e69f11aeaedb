"""The tools that every session tells its model in full: short, and nothing in them that cannot be done."""

from __future__ import annotations

from typing import Any, cast

import pytest
from inline_snapshot import snapshot

from pinfold.tools import SHOWN, Registry
from pinfold.tools.builtin.files import file_tools
from pinfold.tools.builtin.shell import shell_tool
from pinfold.tools.ports import Inside

pytestmark = pytest.mark.unit

NOWHERE = cast(Inside, None)
TOOLS = [shell_tool(NOWHERE, "/w"), *file_tools(NOWHERE)]


def test_what_the_model_is_told_of_shell_and_files() -> None:
    registry = Registry(TOOLS)
    registry.show(SHOWN)
    told = {schema.name: (schema.description, schema.parameters["properties"]) for schema in registry.schemas()}
    assert told == snapshot(
        {
            "python": ("Run Python.", {"code": {"type": "string"}}),
            "shell": (
                "Run bash in the workspace, or on the user's host.",
                {
                    "command": {"type": "string"},
                    "timeout_s": {"type": "number"},
                    "where": {"enum": ["sandbox", "host"], "type": "string"},
                },
            ),
            "read_file": ("Read a text file.", {"path": {"type": "string"}, "start_line": {"type": "integer"}}),
            "edit_file": (
                "Replace exact text in a file.",
                {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}},
            ),
        }
    )


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.untold], ids=lambda tool: tool.name)
def test_what_is_left_out_is_there_and_not_required(tool: Any) -> None:
    properties: dict[str, Any] = tool.schema.parameters["properties"]
    for name in tool.untold:
        argument, _, key = name.partition(".")
        assert argument in properties
        assert not key or key in properties[argument]
        assert argument not in tool.schema.parameters["required"]
