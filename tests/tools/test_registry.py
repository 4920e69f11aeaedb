"""Which tools there are, which the model is told of, and what comes of a call."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from pinfold.events import CallTool, RunCell, Sent
from pinfold.tools import PYTHON, SHOWN, BadCall, BadTool, Registry, Result, Tool, ToolFailed, tool

pytestmark = pytest.mark.unit


def named(name: str) -> Tool[..., Any]:
    @tool(name=name, effect="pure")
    def f() -> str:
        return name

    return f


def dotted(name: str) -> Tool[..., Any]:
    return Tool(function=lambda: name, name=name, description="", effect="once", server=name.partition(".")[0])


TOOLS = [named(name) for name in ("shell", "read_file", "web_fetch", "web_search", "mine")]


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ({}, "python shell read_file web_fetch web_search mine"),
        ({"disable": ["shell"]}, "python read_file web_fetch web_search mine"),
        ({"disable": ["web_*", "python"]}, "shell read_file mine"),
        ({"enable": ["python", "web_*"]}, "python web_fetch web_search"),
        ({"enable": ["*"], "disable": ["*_f*"]}, "python shell web_search mine"),
        ({"enable": []}, ""),
        ({"disable": ["servers.github.*", "install"]}, "python shell read_file web_fetch web_search mine"),
    ],
)
def test_names_and_patterns_choose_the_tools(how: dict[str, Any], names: str) -> None:
    registry = Registry(TOOLS, **how)
    assert registry.names == tuple(names.split())
    assert [schema.name for schema in registry.schemas()] == names.split()


async def test_a_tool_that_is_off_is_neither_told_nor_callable_and_says_so() -> None:
    registry = Registry(TOOLS, disable=["shell"])
    assert "shell" not in registry.catalogue()
    assert registry.get("shell") is None
    for name in ("shell", "bash"):
        assert registry.action(name, {}) == CallTool(tool="shell", args={})
    with pytest.raises(ToolFailed, match=r"^shell is switched off in this session; do without it$"):
        await registry.call("shell", {})
    assert (await Registry(TOOLS).call("shell", {})).text == "shell"


async def test_python_can_be_off_too() -> None:
    registry = Registry(TOOLS, disable=["python"])
    assert registry.action("python", {"code": "1"}) == CallTool(tool="python", args={"code": "1"})
    with pytest.raises(ToolFailed, match="python is switched off"):
        await registry.call("python", {"code": "1"})
    assert Registry(TOOLS).action("python", {"code": "1"}) == RunCell(code="1")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"disable": ["shel"]}, "tools.disable names 'shel': no tool is called 'shel'; did you mean shell?"),
        ({"enable": ["bash"]}, "tools.enable names 'bash': no tool is called 'bash'; did you mean shell?"),
        (
            {"enable": ["zzz"]},
            "tools.enable names 'zzz': no tool is called 'zzz'; there are python, shell, read_file, web_fetch, web_search, mine",
        ),
    ],
)
def test_a_name_that_is_none_is_told_with_the_nearest(how: dict[str, Any], words: str) -> None:
    with pytest.raises(BadTool) as caught:
        Registry(TOOLS, **how)
    assert str(caught.value) == words


async def test_what_is_not_told_in_full_is_named_in_one_line_and_called_all_the_same() -> None:
    registry = Registry(TOOLS)
    registry.show([*SHOWN, "mine"])
    assert [schema.name for schema in registry.schemas()] == ["python", "shell", "read_file", "mine"]
    assert registry.catalogue() == (
        "More tools are Python functions: `from servers.tools import web_fetch`, then call or await it; "
        '`servers.search("words")` finds them, `help(f)` explains one. Servers: tools.'
    )
    assert (await registry.call("web_search", {})).text == "web_search"
    assert Registry(TOOLS).catalogue() == ""


async def test_what_a_tool_leaves_untold_is_taken_all_the_same() -> None:
    @tool(effect="pure")
    def cut(text: str, width: int = 80, mark: Literal["...", "~"] = "...") -> str:
        """Cut it."""
        return text[:width] + mark

    registry = Registry([replace(cut, untold=("width", "mark.default"))])
    [_, told] = registry.schemas()
    assert told.parameters == {
        "type": "object",
        "properties": {"text": {"type": "string"}, "mark": {"enum": ["...", "~"], "type": "string"}},
        "required": ["text"],
    }
    given = {"text": "abc", "width": 2}
    assert registry.action("cut", given) == CallTool(tool="cut", args=given)
    assert (await registry.call("cut", given)).text == "ab..."


def test_the_line_does_not_grow_with_the_tools() -> None:
    few, many = Registry([named("t0")]), Registry([named(f"t{number}") for number in range(1000)])
    for registry in (few, many):
        registry.show(["python"])
    assert many.schemas() == few.schemas() == (PYTHON,)
    assert many.catalogue() == few.catalogue()
    for number in range(300):
        many.put(f"s{number}", [dotted(f"s{number}.tool_{one}") for one in range(10)])
    assert len(many.catalogue()) < len(few.catalogue()) + 100


def test_what_a_server_has_is_put_in_the_place_of_what_it_had() -> None:
    registry = Registry(TOOLS, disable=["git.push"])
    registry.put("git", [dotted("git.log"), dotted("git.push")])
    assert [tool.name for tool in registry.servers["git"]] == ["git.log"]
    assert registry.get("git.log")
    assert registry.get("git.push") is None
    registry.put("git", [dotted("git.diff")])
    assert (registry.get("git.log"), [tool.name for tool in registry.servers["git"]]) == (None, ["git.diff"])
    registry.put("tools", [dotted("tools.mine")])
    assert [tool.name for tool in registry.servers["tools"]] == ["tools.mine"]
    assert registry.get("mine")


async def test_a_cached_tool_is_called_once_for_the_same_arguments() -> None:
    calls: list[int] = []

    @tool(effect="pure", cache=True)
    def double(n: int, note: str = "") -> int:
        calls.append(n)
        return 2 * n

    registry = Registry([double])
    asked = [{"n": 1, "note": "a"}, {"note": "a", "n": 1}, {"n": 2}, {"n": 1, "note": "a"}]
    assert [(await registry.call("double", args)).value for args in asked] == [2, 2, 4, 2]
    assert calls == [1, 2]
    await Registry([double]).call("double", {"n": 1, "note": "a"})
    assert calls == [1, 2, 1]


async def test_what_is_not_said_to_be_cached_is_not() -> None:
    calls: list[int] = []

    @tool(effect="pure")
    def count() -> int:
        calls.append(1)
        return len(calls)

    registry = Registry([count])
    assert [(await registry.call("count", {})).value for _ in range(3)] == [1, 2, 3]


async def test_failures_are_not_cached_and_the_cache_is_bounded() -> None:
    calls: list[int] = []

    @tool(effect="pure", cache=True)
    def big(n: int) -> str:
        calls.append(n)
        if n < 0:
            raise BadCall("less than nothing")
        return "x" * 100_000

    registry = Registry([big])
    for _ in range(2):
        with pytest.raises(ToolFailed, match="less than nothing"):
            await registry.call("big", {"n": -1})
    assert calls == [-1, -1]
    for n in range(60):
        await registry.call("big", {"n": n})
    await registry.call("big", {"n": 0})
    await registry.call("big", {"n": 59})
    assert calls.count(0) == 2, "forgotten"
    assert calls.count(59) == 1, "kept"


@pytest.mark.parametrize("effect", ["once", "keyed"])
def test_only_pure_tools_can_be_cached(effect: Any) -> None:
    def f() -> None: ...

    with pytest.raises(BadTool, match=f"f has effects \\({effect}\\) and cannot be cached"):
        tool(effect=effect, cache=True)(f)
    assert tool(effect="pure", cache=True)(f).cache


@dataclass
class Row:
    name: str
    raw: bytes


@pytest.mark.parametrize(
    ("returned", "text", "value"),
    [
        ("plain", "plain", "plain"),
        (None, "null", None),
        ({"a": [1, None]}, '{"a":[1,null]}', {"a": [1, None]}),
        ([Row("x", b"\xff\xfb")], '[{"name":"x","raw":"[2 bytes]"}]', [{"name": "x", "raw": b"\xff\xfb"}]),
        (b"\x00\x01", "[2 bytes]", b"\x00\x01"),
        (Result(text="short", value=[1, 2]), "short", [1, 2]),
    ],
)
async def test_code_gets_values_and_the_model_text(returned: Any, text: str, value: Any) -> None:
    @tool
    def give() -> Any:
        return returned

    result = await Registry([give]).call("give", {})
    assert (result.text, result.value) == (text, value)
    assert not result.untrusted


async def test_what_an_untrusted_tool_says_is_marked_also_when_it_fails() -> None:
    @tool(trust="untrusted")
    def page(good: bool) -> str:
        if not good:
            raise BadCall("the page says no", sent=(Sent(to="h:1", out=1, back=2),))
        return "the page"

    registry = Registry([page])
    assert (await registry.call("page", {"good": True})).untrusted
    with pytest.raises(ToolFailed) as caught:
        await registry.call("page", {"good": False})
    assert caught.value.untrusted
    assert caught.value.sent == (Sent(to="h:1", out=1, back=2),)
    with pytest.raises(ToolFailed) as ours:
        await registry.call("page", {})
    assert not ours.value.untrusted, "these are our own words"


def test_the_front_door_is_light() -> None:
    code = (
        "import sys, pinfold.tools\n"
        "from pinfold import tool\n"
        "import pinfold.tools.builtin.small, pinfold.tools.builtin.shell, pinfold.tools.builtin.web\n"
        "import pinfold.tools.declared, pinfold.tools.registry\n"
        "heavy = {'pydantic', 'pydantic_core', 'yaml', 'httpx2', 'statistics', 'zoneinfo'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
