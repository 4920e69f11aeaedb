"""Calls that are written a little wrongly mean what they can only mean, before they are judged."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.events import CallTool, RunCell
from pinfold.tools import Registry, ToolFailed, tool

pytestmark = pytest.mark.unit


@tool(effect="pure")
def read_file(path: str, start_line: int = 1, max_lines: int | None = None) -> str:
    """Read."""
    return f"{path} {start_line} {max_lines}"


@tool
def edit_file(path: str, old: str, new: str, expected_matches: int = 1) -> str:
    """Edit."""
    return f"{path} {old}>{new} x{expected_matches}"


@tool
def shell(command: str, workdir: str | None = None, timeout_s: float | None = None) -> str:
    """Run."""
    return f"{command} in {workdir}"


@tool(effect="pure")
def grep(pattern: str, path: str = ".", output_mode: str = "lines") -> str:
    """Search."""
    return f"{pattern} {path} {output_mode}"


@tool
def todo(items: list[str]) -> str:
    """Plan."""
    return "|".join(items)


REGISTRY = Registry([read_file, edit_file, shell, grep, todo])


@pytest.mark.parametrize(
    ("name", "args", "meant"),
    [
        # As the seeds write them.
        ("bash", {"command": "ls -la"}, ("shell", {"command": "ls -la"})),
        (
            "bash",
            {"command": "npm test", "absolute_workdir": "/w/p"},
            ("shell", {"command": "npm test", "workdir": "/w/p"}),
        ),
        (
            "read_file",
            {"file_path": "/w/README.md", "start_line": 1, "max_lines": 100},
            ("read_file", {"path": "/w/README.md", "start_line": 1, "max_lines": 100}),
        ),
        (
            "update_file",
            {"file_path": "/w/a.py", "old_content": "foo()", "new_content": "bar()", "expected_matches": 1},
            ("edit_file", {"path": "/w/a.py", "old": "foo()", "new": "bar()", "expected_matches": 1}),
        ),
        (
            "grep",
            {"pattern": "TODO", "absolute_path": "/w", "output_mode": "files_with_matches"},
            ("grep", {"pattern": "TODO", "path": "/w", "output_mode": "files"}),
        ),
        # As other agents do.
        ("Bash", {"cmd": "ls"}, ("shell", {"command": "ls"})),
        ("run-shell", {"command": "ls", "timeout": 5}, ("shell", {"command": "ls", "timeout_s": 5})),
        ("functions.read_file", {"path": "a"}, ("read_file", {"path": "a"})),
        ("ReadFile", {"filePath": "a"}, ("read_file", {"path": "a"})),
        ("view_file", {"filename": "a"}, ("read_file", {"path": "a"})),
        (
            "str_replace",
            {"path": "a", "old_str": "x", "new_str": "y"},
            ("edit_file", {"path": "a", "old": "x", "new": "y"}),
        ),
        ("search", {"query": "x"}, ("grep", {"pattern": "x"})),
        ("grep", {"regex": "x"}, ("grep", {"pattern": "x"})),
        ("execute", {"command": "ls"}, ("shell", {"command": "ls"})),
        # JSON within text, one wrapper too many, null for what may be left out.
        ("shell", '{"command": "ls"}', ("shell", {"command": "ls"})),
        ("shell", {"arguments": {"command": "ls"}}, ("shell", {"command": "ls"})),
        ("shell", {"arguments": '{"cmd": "ls"}'}, ("shell", {"command": "ls"})),
        ("todo", {"items": '["a", "b"]'}, ("todo", {"items": ["a", "b"]})),
        ("grep", {"pattern": "x", "path": None}, ("grep", {"pattern": "x"})),
        ("read_file", {"path": "a", "max_lines": None}, ("read_file", {"path": "a", "max_lines": None})),
        ("shell", {"command": '["a"]'}, ("shell", {"command": '["a"]'})),
        # What other agents have a model say of its call.
        ("Bash", {"command": "ls", "description": "List files"}, ("shell", {"command": "ls"})),
    ],
)
def test_what_has_one_meaning_is_repaired(name: str, args: Any, meant: tuple[str, Any]) -> None:
    assert REGISTRY.action(name, args) == CallTool(tool=meant[0], args=meant[1])


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("python", '{"code": "1"}', "1"),
        ("pyexe", {"code": "1"}, "1"),
        ("execute_code", {"script": "1"}, "1"),
        ("execute", {"code": "1"}, "1"),
        ("run_python", {"source": "1"}, "1"),
        ("python", {"code": "1", "language": "python", "session": 3}, "1"),
    ],
)
def test_code_under_another_name_is_still_a_cell(name: str, args: Any, code: str) -> None:
    assert REGISTRY.action(name, args) == RunCell(code=code)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        # Two values for one argument, nothing known, two tools that both fit or neither.
        ("read_file", {"path": "a", "file_path": "b"}),
        ("read_file", {"file_path": "a", "filename": "b"}),
        ("frobnicate", {"command": "ls"}),
        ("execute", {}),
        ("shell", ["ls"]),
        ("shell", {"command": "ls", "dry_run": True}),
        ("python", {"code": "1", "source": "2"}),
    ],
)
async def test_what_is_not_clear_stays_and_fails_in_words(name: str, args: Any) -> None:
    action = REGISTRY.action(name, args)
    assert isinstance(action, CallTool)
    with pytest.raises(ToolFailed, match=r"wrong arguments|no tool is called"):
        await REGISTRY.call(action.tool, action.args)


async def test_an_alias_never_stands_for_a_tool_that_is_there() -> None:
    @tool(name="bash")
    def mine(script: str) -> str:
        return f"mine: {script}"

    registry = Registry([mine, shell])
    assert registry.action("bash", {"script": "x"}) == CallTool(tool="bash", args={"script": "x"})
    assert (await registry.call("bash", {"script": "x"})).text == "mine: x"


def test_an_alias_never_stands_for_an_argument_that_is_there() -> None:
    @tool
    def copy(path: str, file_path: str = "") -> str:
        return path + file_path

    assert Registry([copy]).action("copy", {"file_path": "b", "path": "a"}) == CallTool(
        tool="copy", args={"file_path": "b", "path": "a"}
    )


def test_a_tool_may_have_aliases_of_its_own() -> None:
    @tool(aliases={"where": "city"})
    def weather(city: str) -> str:
        return city

    assert Registry([weather]).action("weather", {"where": "Bern"}) == CallTool(tool="weather", args={"city": "Bern"})


async def test_what_was_judged_under_one_name_is_not_run_under_another() -> None:
    """Names are repaired where a call is proposed, and there only."""
    with pytest.raises(ToolFailed, match=r"^no tool is called 'bash'; did you mean shell\?$"):
        await REGISTRY.call("bash", {"command": "ls"})
    with pytest.raises(ToolFailed, match=r"unknown argument 'cmd'"):
        await REGISTRY.call("shell", {"cmd": "ls"})
    assert (await REGISTRY.call("shell", {"command": "ls"})).text == "ls in None"


async def test_numbers_may_come_as_text_and_text_as_numbers() -> None:
    assert (await REGISTRY.call("read_file", {"path": 7, "start_line": "3"})).text == "7 3 None"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ["python", "bash", "shell", "execute", "read_file", "update_file", "grep", "todo", "x", "functions.", ""]
KEYS = ["path", "file_path", "command", "cmd", "code", "arguments", "items", "pattern", "query", "old", ""]


@given(
    st.sampled_from(NAMES) | st.text(max_size=10),
    json_values | st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4),
)
def test_repairing_never_fails_and_is_done_once(name: str, args: Any) -> None:
    action = REGISTRY.action(name, args)
    if isinstance(action, CallTool) and action.args is not None:
        again = REGISTRY.action(action.tool, action.args)
        assert repr(again) == repr(action)


def test_a_bare_text_is_the_only_argument_that_takes_one() -> None:
    for args in ("ls -la", {"input": "ls -la"}, {"command": "ls -la"}):
        assert REGISTRY.action("bash", args) == CallTool(tool="shell", args={"command": "ls -la"})
    assert REGISTRY.action("python", "print(1)") == RunCell(code="print(1)")
