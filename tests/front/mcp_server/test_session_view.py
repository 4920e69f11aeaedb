"""The view for hosts with MCP Apps: who is offered it, and what it does in a real browser with results of the real server."""

from __future__ import annotations

import base64
import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextResourceContents
from tests.front.mcp_server.sdk_clients import ERAS, over_stdio, structure
from tests.front.mcp_server.test_export import FULL, Up, up

from pinfold.front.mcp_server import session_view
from pinfold.front.mcp_server.session_view import ABOUT, EXTENSION, MIME, TOOLS, URI

__all__ = ["up"]
pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOST = Path(__file__).with_name("fake_host.html")
APPS = [advertise(EXTENSION, {"mimeTypes": [MIME]})]
HOSTILE = "<img src=x onerror='window.ran = 1'><script>window.ran = 1</script></script>"


def png(width: int) -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress(b"".join(b"\0" + b"\x33\x66\xcc" * width for _ in range(20)))
    head = struct.pack(">IIBBBBB", width, 20, 8, 2, 0, 0, 0)
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    ).decode()


SHOWS = f"""\
import base64
class Plot:
    def _repr_png_(self): return base64.b64decode({png(120)!r})
class Table:
    def __repr__(self): return "a table as text"
    def _repr_html_(self): return "<table><tr><th>town<th>people<tr><td>{HOSTILE}Ulm<td>126</table>"
print({HOSTILE!r})
display(Plot())
Table()"""


def wire(result: CallToolResult) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def read_page(client: Client) -> str:
    (page,) = (await client.read_resource(URI)).contents
    assert isinstance(page, TextResourceContents)
    assert (page.mime_type, page.meta) == (MIME, {"ui": {"prefersBorder": True}})
    return page.text


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_with_the_extension_finds_the_view_and_the_cells_of_its_session(
    workspace: Path, mode: str
) -> None:
    async with over_stdio(workspace, mode=mode, extensions=APPS) as client:
        if mode == "legacy":  # the other one has no handshake
            assert client.server_capabilities is not None
            assert client.server_capabilities.resources is not None
            assert client.server_capabilities.extensions == {EXTENSION: {"mimeTypes": [MIME]}}
        (listed,) = (await client.list_resources()).resources
        assert (listed.uri, listed.mime_type) == (URI, MIME)
        assert (await client.list_resource_templates()).resource_templates == []
        assert (await read_page(client)).startswith("<!doctype html>")
        linked = {one.name: one.meta for one in (await client.list_tools()).tools}
        assert {name for name, meta in linked.items() if meta} == {*TOOLS} - {"ask"}
        assert linked["run_python"] == {"ui": {"resourceUri": URI}}
        await client.call_tool("run_python", {"code": "x = 1\ny = 2"})
        failed = await client.call_tool("run_python", {"code": "1 / 0"})
        undone = await client.call_tool("undo", {"to": 0})
    assert failed.meta is not None
    assert failed.meta[ABOUT]["cells"] == [
        {"cell": 1, "code": "x = 1", "status": "ok", "undone": False},
        {"cell": 2, "code": "1 / 0", "status": "error", "undone": False},
    ]
    assert undone.meta is not None
    assert undone.meta[ABOUT]["redo"] is True
    assert [one["undone"] for one in undone.meta[ABOUT]["cells"]] == [True, True]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_without_the_extension_sees_nothing_of_it(workspace: Path, mode: str) -> None:
    async with over_stdio(workspace, mode=mode, extensions=[advertise(EXTENSION, {"mimeTypes": ["text/x"]})]) as client:
        assert client.server_capabilities is not None
        assert client.server_capabilities.resources is None
        assert EXTENSION not in (client.server_capabilities.extensions or {})
        assert not any(one.meta for one in (await client.list_tools()).tools)
        ran = await client.call_tool("run_python", {"code": "1 + 1"})
        assert structure(ran)["value"] == "2"
        assert ABOUT not in (ran.meta or {})
        for request in (client.list_resources(), client.read_resource(URI)):
            with pytest.raises(MCPError, match="not found"):
                await request


async def test_tables_and_cells_of_the_agents_turn_come_with_its_answer(
    workspace: Path, script: Callable[..., str], cell: Callable[..., dict[str, Any]]
) -> None:
    model = script(cell(SHOWS), {"text": "Done."})
    async with over_stdio(workspace, "--agent", "--model", model, extensions=APPS) as client:
        before = await client.call_tool("run_python", {"code": "x = 41"})
        answer = await client.call_tool("ask", {"prompt": "show it"})
    assert before.meta is not None
    assert before.meta[ABOUT]["tables"] == []
    assert answer.meta is not None
    assert [one["code"] for one in answer.meta[ABOUT]["cells"]] == ["x = 41", "import base64"]
    (table,) = answer.meta[ABOUT]["tables"]
    assert "Ulm" in table


@pytest.mark.parametrize("mode", ERAS)
async def test_the_view_stands_beside_resources_of_exported_servers(workspace: Path, up: Up, mode: str) -> None:
    async with over_stdio(workspace, *FULL, mode=mode, extensions=APPS) as client:
        assert [one.uri for one in (await client.list_resources()).resources] == [URI, "note://one"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == ["note://{name}/more"]
        (note,) = (await client.read_resource("note://one")).contents
        assert isinstance(note, TextResourceContents)
        assert note.text == "the note"
        assert "Pinfold" in await read_page(client)
        linked = {one.name for one in (await client.list_tools()).tools if one.meta and "ui" in one.meta}
        assert linked == {*TOOLS} - {"ask"}
    assert up.did == ["note"]


def test_the_page_names_no_address_and_makes_no_markup_of_text() -> None:
    html = Path(session_view.__file__).with_name("session_view.html").read_text("utf-8")
    assert "default-src 'none'" in html
    loads = r"//\w|url\(|@import|\bsrc=|href|fetch\(|XMLHttpRequest|WebSocket|sendBeacon"
    markup = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval|srcdoc|new Function"
    assert re.findall(f"{loads}|{markup}", html) == []


def open_in_host(plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the host saw of the view."""
    assert BROWSER is not None
    page = folder / "host.html"
    page.write_text(HOST.read_text("utf-8").replace("PLAN", json.dumps(plan).replace("<", "\\u003c")), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"]
    own = [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000"]
    done = subprocess.run([BROWSER, *flags, *own, page.as_uri()], capture_output=True, timeout=200, check=False)
    found = re.search(r'id="seen">(.*?)</script>', done.stdout.decode("utf-8", "replace"), re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(found[1])


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here (Debian: apt-get install chromium)")
async def test_the_view_shows_a_result_and_takes_a_cell_back_through_the_host(workspace: Path, tmp_path: Path) -> None:
    async with over_stdio(workspace, extensions=APPS) as client:
        html = await read_page(client)
        ran = await client.call_tool("run_python", {"code": SHOWS})
        undone = await client.call_tool("undo", {})
        redone = await client.call_tool("redo", {})
    session = structure(ran)["session"]
    context = {"theme": "dark", "styles": {"variables": {"--color-background-primary": "rgb(1, 2, 3)"}}}
    can: dict[str, Any] = {"serverTools": {}, "updateModelContext": {}}
    steps = [
        {"send": {"method": "ui/notifications/tool-input", "params": {"arguments": {"code": SHOWS}}}},
        {"send": {"method": "ui/notifications/tool-result", "params": wire(ran)}},
        *({"click": tool} for tool in ("undo", "redo", "undo")),
        {"send": {"id": 7, "method": "ping"}},
        {"send": {"id": 8, "method": "tools/list"}},
        {"send": {"method": "ui/notifications/host-context-changed", "params": {"theme": "light"}}},
    ]
    seen = open_in_host(
        {
            "html": html,
            "initialize": {"protocolVersion": "2026-01-26", "hostCapabilities": can, "hostContext": context},
            "steps": steps,
            "results": [wire(undone), wire(redone)],  # the third call is refused
        },
        tmp_path,
    )
    assert seen["methods"][0] == "ui/initialize"
    assert seen["initialize"]["protocolVersion"] == "2026-01-26"
    assert "ui/notifications/initialized" in seen["methods"]
    waiting, running, shown, taken_back, again, refused, *_ = seen["pages"]
    assert "Waiting" in waiting
    assert "Running" in running
    assert "class Plot" in running
    head, _, output = shown.partition("Output\n")
    assert "ok" in head
    assert output.startswith(HOSTILE)
    assert re.search(r"Table\s+town\s+people\s.*Ulm\s+126", output)
    assert "a table as text" not in output
    assert "undid cell 1" in taken_back
    assert "undone" in taken_back
    assert "redid cell 1" in again
    assert "undo did not work: the user said no" in refused
    assert seen["calls"] == [{"name": name, "arguments": {"session": session}} for name in ("undo", "redo", "undo")]
    assert [one["content"][0]["text"].partition(" in the")[0] for one in seen["context"]] == [
        "The user pressed undo",
        "The user pressed redo",
    ]
    assert seen["images"] == [["data:image/png;base64,", 120]]
    assert (seen["scheme"], seen["ground"]) == ("light", "rgb(1, 2, 3)")
    assert seen["sizes"][-1]["height"] > 300
    assert seen["hidden"] == 0
    assert [one.get("result") for one in seen["answers"]] == [{}, None]
    assert seen["answers"][1]["error"]["code"] == -32601
    assert (seen["ran"], seen["elements"], seen["violations"]) == (None, 0, [])


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here (Debian: apt-get install chromium)")
async def test_what_a_result_holds_would_run_in_a_page_that_takes_it_as_markup(tmp_path: Path) -> None:
    """The control: the same text, the same host."""
    careless = """<script>
    parent.postMessage({ jsonrpc: "2.0", id: 1, method: "ui/initialize", params: {} }, "*");
    parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/initialized" }, "*");
    addEventListener("message", ({ data }) => { if (data.params) document.body.innerHTML = data.params.text; });
    </script>"""
    result = {"send": {"method": "ui/notifications/tool-result", "params": {"text": HOSTILE}}}
    plan: dict[str, Any] = {"html": careless, "initialize": {}, "steps": [result, result], "results": []}
    assert open_in_host(plan, tmp_path)["ran"] == 1
