"""Tools of other packages: loaded by name, and a broken one harms nobody."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pinfold.tools import Registry
from pinfold.tools.registry import find_entry_points, load_plugins

pytestmark = pytest.mark.unit

CODE = """
from pinfold import tool
@tool(effect="pure")
def weather(city: str) -> str:
    "Tell the weather."
    return f"fine in {city}"
def plain(n: int) -> int:
    return n + 1
several = [weather, plain]
number = 5
def untyped(x): ...
"""
POINTS = {
    "weather": "acme_tools_of_test:weather",
    "plain": "acme_tools_of_test:plain",
    "zz_untyped": "acme_tools_of_test:untyped",
    "zz_number": "acme_tools_of_test:number",
    "broken": "acme_broken_of_test:x",
    "exits": "acme_exits_of_test:x",
    "missing": "acme_tools_of_test:nothing",
    "pair": "acme_tools_of_test:several",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    info = site / "acme_tools-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_tools_of_test.py").write_text(CODE)
    (site / "acme_broken_of_test.py").write_text("raise RuntimeError('no licence')")
    (site / "acme_exits_of_test.py").write_text("raise SystemExit(3)")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tools\nVersion: 1.0\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    return info


def declare(package: Path, *names: str) -> None:
    lines = ["[pinfold.tools]", *(f"{name} = {POINTS[name]}" for name in names)]
    (package / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(autouse=True)
def forgotten() -> None:
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


def test_names_are_known_before_anything_is_imported(package: Path) -> None:
    declare(package, "weather", "plain", "broken")
    assert {"weather", "plain", "broken"} <= set(find_entry_points())
    assert "acme_tools_of_test" not in sys.modules


async def test_a_tool_and_a_function_are_taken(package: Path) -> None:
    declare(package, "weather", "plain")
    found = load_plugins()
    assert found.faults == ()
    assert [tool.name for tool in found.tools] == ["plain", "weather"]
    assert (await Registry(found.tools).call("weather", {"city": "Bern"})).text == "fine in Bern"


def test_a_list_of_them_is_taken_too(package: Path) -> None:
    declare(package, "pair")
    assert [tool.name for tool in load_plugins().tools] == ["weather", "plain"]


def test_a_broken_one_is_named_and_the_others_work(package: Path) -> None:
    declare(package, "weather", "broken", "exits", "missing", "zz_untyped", "zz_number")
    found = load_plugins()
    assert [tool.name for tool in found.tools] == ["weather"]
    assert found.faults == (
        "the tool 'broken' of acme-tools is left out: RuntimeError: no licence",
        "the tool 'exits' of acme-tools is left out: SystemExit: 3",
        "the tool 'missing' of acme-tools is left out: AttributeError: module 'acme_tools_of_test' has no attribute 'nothing'",
        "the tool 'zz_number' of acme-tools is left out: it is a int, not a tool, a function or a list of them",
        "the tool 'zz_untyped' of acme-tools is left out: untyped cannot be a tool: parameter 'x' has no type; write one, as in `x: str`",
    )
