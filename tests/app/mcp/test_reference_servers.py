"""The reference servers of MCP, used from code in a real sandbox."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.app.mcp.reference import Reference, Unreachable, installed
from tests.app.test_session_tools import Asked, Script, seen, turn

from pinfold import Agent

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


@pytest.fixture(scope="session")
def reference() -> Reference:
    try:
        return installed()
    except Unreachable as error:
        pytest.skip(f"the reference servers could not be installed: {error}")


@pytest.fixture
def used(workspace: Path, script: Script, cell: Any) -> Any:
    """What a cell says that uses a server; the user says yes to whatever is asked."""

    async def use(server: dict[str, Any], *cells: str, **more: Any) -> list[str]:
        model = script(*(cell(code) for code in cells), {"text": "ok"})
        config = {"mcpServers": {"it": {"timeout_s": 200, **server}}}
        asked = Asked(True)
        async with Agent(
            model=model, workspace=workspace, sandbox="namespaces", mode="full", approve=asked, mcp=config, **more
        ) as agent:
            return seen(await turn(agent))

    return use


async def test_filesystem(reference: Reference, workspace: Path, used: Any) -> None:
    (workspace / "a.txt").write_text("words")
    code = (
        f"from servers.it import list_directory, read_text_file\nprint(list_directory(path={str(workspace)!r}))\n"
        f"print(read_text_file(path={str(workspace / 'a.txt')!r}))\n"
        "try: read_text_file(path='/etc/hostname')\nexcept ToolError as error: print(type(error).__name__, error)"
    )
    told = (await used(reference.node("server-filesystem", str(workspace)), code))[-1]
    assert "[FILE] a.txt" in told
    assert "words" in told
    assert "ToolFailed" in told
    assert "outside allowed directories" in told


async def test_everything(reference: Reference, used: Any) -> None:
    code = (
        "import asyncio, servers.it as it\n"
        "print(await it.echo(message='hello'))\nprint(await it.get_sum(a=2, b=3))\n"
        "print(await asyncio.gather(*(it.echo(message=str(n)) for n in range(20))) == [f'Echo: {n}' for n in range(20)])\n"
        "picture = await it.get_tiny_image()\nprint([type(one['data']).__name__ if isinstance(one, dict) and 'data' in one else type(one).__name__ for one in picture])\n"
        "print(await it.get_structured_content(location='Chicago'))\n"
        "print(len(await it.list_resources()), (await it.list_prompts())[0]['name'])"
    )
    told = (await used(reference.node("server-everything"), code))[-1]
    assert told.startswith("Echo: hello\n")
    assert "The sum of 2 and 3 is 5" in told
    assert "True" in told
    assert "bytes" in told
    assert "'temperature'" in told


async def test_memory(reference: Reference, workspace: Path, used: Any) -> None:
    server = reference.node("server-memory")
    server["env"] = {"MEMORY_FILE_PATH": str(workspace / "memory.json")}
    entity = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
    code = (
        f"from servers.it import create_entities, search_nodes\ncreate_entities(entities=[{entity!r}])\n"
        "found = search_nodes(query='Ada')\nprint(found['entities'][0]['observations'])"
    )
    assert (await used(server, code))[-1].startswith("['counts']\n")


@pytest.fixture
def repository(workspace: Path) -> Path:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the first"]):
        subprocess.run([*git, *command], cwd=workspace, check=True)
    return workspace


@pytest.mark.slow
async def test_git(reference: Reference, repository: Path, used: Any) -> None:
    code = f"from servers.it import git_log\nprint(git_log(repo_path={str(repository)!r}))"
    assert "the first" in (await used(reference.python("mcp-server-git"), code))[-1]


@pytest.mark.slow
async def test_time(reference: Reference, used: Any) -> None:
    code = (
        "from servers.it import convert_time\n"
        "there = convert_time(source_timezone='UTC', time='12:00', target_timezone='Asia/Tokyo')\n"
        "print(there['target']['datetime'][11:16])"
    )
    assert (await used(reference.python("mcp-server-time"), code))[-1].startswith("21:00\n")


@pytest.fixture
def page() -> Generator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html><body><article><h1>Mills</h1><p>They grind slowly but exceedingly fine.</p></article></body></html>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
async def test_fetch(reference: Reference, page: str, used: Any) -> None:
    code = f"from servers.it import fetch\nprint(fetch(url={page!r}))"
    told = (await used(reference.python("mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"), code))[-1]
    assert "exceedingly fine" in told


async def test_servers_that_declare_little_reach_run_in_a_sandbox_of_their_own(
    reference: Reference, workspace: Path, used: Any
) -> None:
    (workspace / "a.txt").write_text("words")
    code = (
        "from servers.it import list_directory, write_file\n"
        f"write_file(path={str(workspace / 'b.txt')!r}, content='made')\nprint(list_directory(path={str(workspace)!r}))"
    )
    server = {**reference.node("server-filesystem", str(workspace)), "reach": "workspace"}
    assert "[FILE] b.txt" in (await used(server, code))[-1]
    assert (workspace / "b.txt").read_text() == "made"
    server = {**reference.python("mcp-server-time"), "reach": "nothing"}
    code = "from servers.it import get_current_time\nprint(get_current_time(timezone='UTC')['timezone'])"
    assert (await used(server, code))[-1].startswith("UTC\n")
