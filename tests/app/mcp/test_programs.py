"""Where the programs of MCP servers run: real processes, a real sandbox, and what they get at from there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from pinfold.app.session.mcp.placement import launch_in_sandbox
from pinfold.app.session.mcp.programs import Programs
from pinfold.app.session.protected_files import pop_closing_notices
from pinfold.sandbox import Limits, provider_named
from pinfold.tools import BadCall
from pinfold.tools.mcp.ports import Process
from pinfold.tools.mcp.spec import ServerSpec

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
LIMIT_S = 200
ASKED = """
import http.client, json, os, socket, subprocess, sys
sys.stderr.write("it is up\\n")
sys.stderr.flush()
for line in sys.stdin:
    code = json.loads(line)
    try:
        answer = eval(code)
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(answer) + "\\n")
    sys.stdout.flush()
"""
"""A program that says what an expression gives where it runs."""


class Asked:
    """The program above, once it is started."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._rest = b""

    async def says(self, code: str) -> Any:
        await self.process.stdin.send(json.dumps(code).encode() + b"\n")
        pieces = [self._rest]
        with anyio.fail_after(LIMIT_S):
            while b"\n" not in pieces[-1]:
                pieces.append(await self.process.stdout.receive())
        line, self._rest = b"".join(pieces).split(b"\n", 1)
        return json.loads(line)


def spec_of(program: Path | str, **more: Any) -> ServerSpec:
    args = ("-c", ASKED) if program == "-c" else (str(program),)
    given: dict[str, Any] = {"command": sys.executable, "args": args, **more}
    return ServerSpec(name="asked", transport="stdio", origin="mcp.json", **given)


@asynccontextmanager
async def running(workspace: Path, spec: ServerSpec, sandbox: str = "namespaces") -> AsyncGenerator[Asked]:
    async with Programs(workspace, provider_named(sandbox), Limits()).start(spec) as process:
        yield Asked(process)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A server's program in a folder of its own, which is neither the workspace nor the home folder."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("", encoding="utf-8")
    (folder / "asked.py").write_text(ASKED, encoding="utf-8")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "canary.txt").write_text("the canary sings", encoding="utf-8")
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def listener() -> Generator[str]:
    """`host:port` of a page on this machine."""

    class Page(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"page")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def probes(home: Path, workspace: Path, listener: str) -> dict[str, str]:
    host, port = listener.split(":")
    return {
        "canary": f"open({str(home / 'canary.txt')!r}).read()",
        "listing": f"os.listdir({str(home)!r})",
        "connection": f"socket.create_connection(({host!r}, {port}), 2) and 'connected'",
        "workspace": f"open({str(workspace / 'data.txt')!r}).read()",
        "secret": f"open({str(workspace / '.env')!r}).read()",
        "key": "os.environ.get('OPENAI_API_KEY')",
        "write": f"open({str(workspace / 'made.txt')!r}, 'w').write('x')",
    }


async def found(asked: Asked, home: Path, workspace: Path, listener: str) -> dict[str, Any]:
    return {name: await asked.says(code) for name, code in probes(home, workspace, listener).items()}


@pytest.fixture
def filled(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (workspace / "data.txt").write_text("the data", encoding="utf-8")
    (workspace / ".env").write_text("OPENAI_API_KEY=sk-hidden", encoding="utf-8")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ours-0123456789")
    return workspace


@pytest.mark.parametrize("reach", ["nothing", "files", "workspace"])
async def test_a_sandboxed_server_sees_the_workspace_and_nothing_of_the_home_folder_or_the_network(
    filled: Path, home: Path, elsewhere: Path, listener: str, reach: Any
) -> None:
    async with running(filled, spec_of(elsewhere / "asked.py", reach=reach)) as asked:
        got = await found(asked, home, filled, listener)
    assert got.pop("canary").startswith("FileNotFoundError")
    assert got.pop("listing").startswith("FileNotFoundError")
    assert "Error" in got.pop("connection")
    written = got.pop("write")
    assert written == 1 if reach == "workspace" else written.startswith(("OSError", "PermissionError"))
    assert got == {"workspace": "the data", "secret": "", "key": None}
    assert (filled / "made.txt").exists() == (reach == "workspace")


async def test_the_user_is_told_what_a_sandboxed_server_leaves_for_other_programs(
    workspace: Path, elsewhere: Path, home: Path
) -> None:
    pop_closing_notices()
    async with running(workspace, spec_of(elsewhere / "asked.py", reach="workspace")) as asked:
        for name in ("plain.txt", ".envrc"):
            assert await asked.says(f"open({str(workspace / name)!r}, 'w').write('x')") == 1
    (line,) = pop_closing_notices()[0]
    assert f"In {workspace}: " in line
    assert ".envrc (direnv)" in line
    assert "plain.txt" not in line


async def test_the_same_server_on_this_machine_gets_at_all_of_it_but_our_keys(
    filled: Path, home: Path, elsewhere: Path, listener: str
) -> None:
    async with running(filled, spec_of(elsewhere / "asked.py")) as asked:
        got = await found(asked, home, filled, listener)
        assert await asked.says("sorted(os.environ)") == sorted(
            name
            for name in ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ", "USER")
            if name in os.environ
        )
        assert await asked.says("os.getcwd()") == str(home)
    assert got == {
        "canary": "the canary sings",
        "listing": ["canary.txt"],
        "connection": "connected",
        "workspace": "the data",
        "secret": "OPENAI_API_KEY=sk-hidden",
        "key": None,
        "write": 1,
    }


async def test_a_server_with_hosts_reaches_them_from_its_sandbox_and_no_other(
    workspace: Path, elsewhere: Path, listener: str
) -> None:
    host, port = listener.split(":")
    # By hand: its usual ways speak with this machine's own addresses without the proxy.
    proxy = "http.client.HTTPConnection(*os.environ['HTTP_PROXY'].removeprefix('http://').strip('/').split(':'))"
    fetch = f"[c := {proxy}, c.request('GET', 'http://{listener}/'), c.getresponse().status][2]"
    for hosts, status in ((listener, 200), (f"{host}:1", 403)):
        spec = spec_of(elsewhere / "asked.py", reach="network", hosts=(hosts,))
        async with running(workspace, spec) as asked:
            assert await asked.says(fetch) == status
            assert "Error" in await asked.says(f"socket.create_connection(({host!r}, {port}), 2) and 'out'")


@pytest.mark.parametrize("way", ["pyvenv.cfg", "first line", "link", "linked folder", "command"])
async def test_a_project_does_not_choose_which_folders_its_server_sees(
    workspace: Path, home: Path, tmp_path: Path, way: str
) -> None:
    """Its own Python works, whatever its files say of where that is."""
    diary = tmp_path / "private" / "diary.txt"
    (diary.parent / "bin").mkdir(parents=True)
    diary.write_text("the diary", encoding="utf-8")
    tool = diary.parent / "bin" / "tool"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    venv = workspace / ".venv"
    (venv / "bin").mkdir(parents=True)
    program = venv / "bin" / "python"
    program.symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n", encoding="utf-8")  # noqa: ASYNC240
    (workspace / "server.py").write_text(ASKED, encoding="utf-8")
    command = ".venv/bin/python"
    match way:
        case "pyvenv.cfg":
            (venv / "pyvenv.cfg").write_text(f"home = {diary.parent}\n", encoding="utf-8")
        case "first line":
            (workspace / "run").write_text(f"#!{tool}\n{ASKED}", encoding="utf-8")
            (workspace / "run").chmod(0o755)
            command = "./run"
        case "link":
            program.unlink()
            program.symlink_to(tool)
        case "linked folder":
            (workspace / "linked").symlink_to(diary.parent)
            command = "linked/bin/tool"
        case _:
            command = str(tool)
    placed = launch_in_sandbox(spec_of("server.py", command=command, reach="nothing", is_confined=True), workspace)
    assert not [mount for mount in placed.mounts if diary.is_relative_to(mount.path)]
    # The control: of a server of the user's own, it is believed where it is installed.
    own = launch_in_sandbox(spec_of("server.py", command=command, reach="nothing"), workspace)
    assert [mount for mount in own.mounts if diary.is_relative_to(mount.path)]
    if way == "pyvenv.cfg":
        spec = spec_of("server.py", command=command, reach="nothing", is_confined=True)
        async with running(workspace, spec) as asked:
            assert (await asked.says(f"open({str(diary)!r}).read()")).startswith("FileNotFoundError")


async def test_what_has_a_way_out_is_never_what_the_agent_wrote(
    workspace: Path, elsewhere: Path, home: Path, listener: str
) -> None:
    (workspace / "server.py").write_text(ASKED, encoding="utf-8")
    out: dict[str, Any] = {"reach": "network", "hosts": (listener,)}
    for given in (
        {"args": (str(workspace / "server.py"),)},
        {"args": ("server.py",), "cwd": str(workspace)},
        {"args": ("-m", "server"), "env": {"PYTHONPATH": str(workspace)}},
    ):
        with pytest.raises(BadCall, match=r"with access to .* and the agent can change it"):
            async with running(workspace, spec_of("-c", **given, **out)):
                pass
    (workspace / "json.py").write_text("raise SystemExit('hijacked')", encoding="utf-8")
    async with running(workspace, spec_of("-c", **out)) as asked:
        assert await asked.says("os.getcwd()") == "/"
        assert await asked.says(f"open({str(workspace / 'server.py')!r}).read()") == ASKED
    # The control: where there is no way out, it runs.
    async with running(elsewhere, spec_of(elsewhere / "asked.py", reach="nothing")) as asked:
        assert await asked.says("1 + 1") == 2


async def test_what_runs_on_this_machine_is_never_what_the_agent_wrote(
    workspace: Path, elsewhere: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "server.py").write_text(ASKED, encoding="utf-8")
    (workspace / "package").mkdir()
    (workspace / "bin").mkdir()
    program = workspace / "bin" / "python3"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    (elsewhere / "link.py").symlink_to(workspace / "server.py")
    inside = [
        {"args": (str(workspace / "server.py"),)},
        {"args": ("-u", str(workspace / "server.py"))},
        {"args": (str(workspace / "package"),)},
        {"args": (str(elsewhere / "link.py"),)},
        {"args": (f"../{workspace.name}/server.py",)},
        {"args": (f"--config={workspace / 'server.py'}", "x")},
        {"command": str(program), "args": ()},
        {"command": "uv", "args": ("--directory", str(workspace), "run", "server")},
        {"args": ("-m", "x"), "env": {"PYTHONPATH": str(workspace)}},
        {"args": ("-m", "x"), "cwd": str(workspace)},
        {"command": "node", "args": ("x.js",), "env": {"NODE_OPTIONS": f"--require={workspace}/a.js"}},
        {"command": "bash", "args": ("-c", str(workspace / "bin"))},
    ]
    monkeypatch.setenv("PATH", f"{elsewhere}:{os.environ['PATH']}")
    for name in ("uv", "node"):
        (elsewhere / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (elsewhere / name).chmod(0o755)
    refused = 0
    for given in inside:
        with pytest.raises(BadCall, match="and the agent can change it; add"):
            async with running(workspace, spec_of("-c", **given)):
                pass
        refused += 1
    assert refused == len(inside) == 12
    # What only names the workspace as data runs.
    for args in (("-c", ASKED, str(workspace)), ("-c", ASKED, "--repository", str(workspace))):
        async with running(workspace, spec_of("-c", args=args)) as asked:
            assert await asked.says("1 + 1") == 2


async def test_a_program_of_the_workspace_is_not_found_by_its_plain_name_either(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = workspace / "bin" / "asked"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{ASKED}", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with pytest.raises(BadCall, match="there is no program 'asked'; install it"):
        async with running(workspace, spec_of("-c", command="asked", args=())):
            pass
    async with running(workspace, spec_of("-c", command="asked", args=(), reach="nothing")) as asked:
        assert await asked.says("1 + 1") == 2


async def test_a_module_in_the_workspace_is_not_imported_by_a_server_on_this_machine(
    workspace: Path, home: Path
) -> None:
    (workspace / "json.py").write_text("raise SystemExit('hijacked')", encoding="utf-8")
    async with running(workspace, spec_of("-c")) as asked:
        assert await asked.says("'json.py' in json.__file__") is False
    # The control: where it is started in the workspace, it is.
    async with running(workspace, spec_of("-c", reach="nothing")) as asked:
        with anyio.fail_after(LIMIT_S):
            assert await asked.process.wait_for_exit() == 1
        assert "hijacked" in asked.process.said


@pytest.mark.parametrize("reach", ["nothing", None])
async def test_a_server_that_ends_says_how_and_what_it_wrote_last(workspace: Path, home: Path, reach: Any) -> None:
    async with running(workspace, spec_of("-c", reach=reach)) as asked:
        assert await asked.says("[sys.stderr.write('x' * 100_000), sys.stderr.write('the end'), sys.stderr.flush()]")
        await asked.process.stdin.send(b'"os._exit(7)"\n')
        with anyio.fail_after(LIMIT_S):
            assert await asked.process.wait_for_exit() == 7
            with pytest.raises(anyio.EndOfStream):
                await asked.process.stdout.receive()
        assert asked.process.said.endswith("the end")
        assert len(asked.process.said) <= 8_000


@pytest.mark.parametrize("reach", ["nothing", None])
async def test_a_server_is_ended_with_all_that_it_started(workspace: Path, home: Path, reach: Any) -> None:
    async with running(workspace, spec_of("-c", reach=reach)) as asked:
        assert isinstance(await asked.says(f"subprocess.Popen(['sleep', '{NAP}']).pid"), int)
        with anyio.fail_after(LIMIT_S):
            while sleepers() != 1:  # for an instant after its start a process has no name
                await anyio.lowlevel.checkpoint()
    with anyio.fail_after(60):  # killed is not gone yet
        while sleepers():
            await anyio.lowlevel.checkpoint()


NAP = f"{1000 + os.getpid() / 1e7:.7f}"
"""Seconds that no other process of this machine sleeps."""


def sleepers() -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            count += entry.name.isdigit() and NAP.encode() in (entry / "cmdline").read_bytes().split(b"\0")
    return count


@pytest.mark.slow
@pytest.mark.parametrize("reach", ["nothing", None])
async def test_large_messages_and_many_of_them_come_through_whole(workspace: Path, home: Path, reach: Any) -> None:
    async with running(workspace, spec_of("-c", reach=reach)) as asked:
        assert await asked.says("'\\u00e9' * 3_000_000") == "é" * 3_000_000
        assert await asked.says(f"len({'x' * 2_000_000!r})") == 2_000_000
        for number in range(300):
            assert await asked.says(str(number)) == number


@pytest.mark.slow
async def test_a_server_that_reads_nothing_holds_up_nobody_but_itself(workspace: Path, elsewhere: Path) -> None:
    (elsewhere / "deaf.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)", encoding="utf-8")
    async with running(workspace, spec_of(elsewhere / "deaf.py", reach="nothing")) as asked:
        assert await asked.process.stdout.receive() == b"up\n"
        with anyio.move_on_after(1) as waited:
            await asked.process.stdin.send(b"x" * 4_000_000)
        assert waited.cancelled_caught


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"command": "no-such-program"}, "there is no program 'no-such-program'; install it, or change `command` in"),
        ({"command": "no-such-program", "reach": "nothing"}, "there is no program 'no-such-program'"),
        ({"reach": "network"}, "asked wants the network: name what it may reach"),
        ({"reach": "network", "hosts": ("*",)}, "`hosts` in mcp.json"),
        ({"reach": "nothing", "cwd": "nowhere"}, "does not exist; change `cwd`"),
    ],
)
async def test_what_cannot_be_started_is_said_in_a_line(
    workspace: Path, home: Path, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadCall) as failed:
        async with running(workspace, spec_of("-c", **given)):
            pass
    assert words in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_a_sandbox_that_was_declared_is_given_or_refused_never_lowered(workspace: Path) -> None:
    for sandbox in ("unsafe-local", "landlock"):
        with pytest.raises(BadCall, match=f"asked is to run in a sandbox of its own .* and {sandbox} "):
            async with running(workspace, spec_of("-c", reach="nothing"), sandbox):
                pass


@pytest.mark.parametrize("place", ["home", ".ssh/key", "config"])
async def test_no_argument_opens_the_home_folder_or_keys_to_a_sandbox(
    workspace: Path, home: Path, tmp_path: Path, place: str
) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "key").write_text("private", encoding="utf-8")
    own = tmp_path / "xdg" / "config" / "pinfold"
    own.mkdir(parents=True)
    named = {"home": home, ".ssh/key": home / ".ssh" / "key", "config": own}[place]
    with pytest.raises(BadCall, match="cannot run in a sandbox"):
        async with running(workspace, spec_of("-c", args=("-c", ASKED, str(named)), reach="nothing")):
            pass
    # The control: what is neither is there.
    (home / "notes").mkdir()
    (home / "notes" / "a.txt").write_text("a note", encoding="utf-8")
    notes = str(home / "notes")
    async with running(workspace, spec_of("-c", args=("-c", ASKED, notes), reach="nothing")) as asked:
        assert await asked.says(f"open({notes + '/a.txt'!r}).read()") == "a note"
        assert await asked.says(f"os.listdir({str(home)!r})") == ["notes"]
