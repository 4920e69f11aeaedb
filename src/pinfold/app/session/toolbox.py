"""The tools of a session, Pinfold's own and the user's, and how they reach the sandbox, the host and the web."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
from msgspec import Struct, field

from pinfold.app.config.layers import Loaded
from pinfold.app.config.schema import Config
from pinfold.app.paths import config_dir
from pinfold.app.session.egress import Flows, SessionEgress, current_action
from pinfold.app.trust.project_files import SERVERS, TOOLS
from pinfold.app.trust.secrets import Secrets
from pinfold.events import Sent
from pinfold.sandbox import CommandOutcome, FileRefused, NotSupported, Resumable, Session, Spec
from pinfold.tools import AnyTool, BadCall
from pinfold.tools.ports import Fetched, Inside, Kept, Ports

if TYPE_CHECKING:
    from pinfold.net import Destination, How
    from pinfold.net import Fetched as Page


class SessionCommands:
    """Runs programs in the sandbox for tools. If an action counts as a cell, its first program is that cell."""

    def __init__(self, started: Callable[[], Awaitable[Session]]) -> None:
        self._started = started

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        env: Mapping[str, str] | None = None,
    ) -> CommandOutcome:
        """Run a program. Raises BadCall if this sandbox cannot."""
        session = await self._started()
        what = current_action()
        more: dict[str, Any] = {"on_output": what.on_output} if what else {}
        if what and what.read_only:
            if not session.capabilities.read_only_commands:
                what.stopped = "impossible"
                return CommandOutcome(status="error", read_only="impossible")
            more["read_only"] = True
        if what and what.cell is not None and isinstance(session, Resumable):
            more["cell"], what.cell = what.cell, None
        try:
            ran = await session.command(argv, timeout_s=timeout_s, stdin=stdin, workdir=workdir, env=env, **more)
        except (NotSupported, FileRefused) as error:
            raise BadCall(str(error)) from error
        if what and ran.read_only in ("refused", "impossible"):
            what.stopped = ran.read_only
        return ran


class WebAccess:
    """Web requests of tools.

    `headers_for` gives the user's headers for a host; they go over https or to this machine only.
    """

    def __init__(self, egress: SessionEgress, headers_for: Callable[[str], Mapping[str, str]] | None = None) -> None:
        self._egress = egress
        self._headers_for = headers_for

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout_s: float, max_bytes: int
    ) -> Fetched:
        """Raises BadCall."""
        from pinfold.net import FetchLimits, NetError, Unreachable, fetch, read_url

        what = current_action()
        if what is None:
            raise BadCall("requests can only be made for an action")
        try:
            address = read_url(url)
            to = address.destination
            stays = to.address is not None and to.address.is_loopback
            if self._headers_for and (address.scheme == "https" or stays):
                headers = {**self._headers_for(to.host), **headers}
        except NetError as error:
            raise BadCall(str(error)) from error
        cleared = {*what.cleared}

        async def gate(destination: Destination, how: How) -> str | None:
            refused = None if destination in cleared else await what.ask_to_connect(destination, how)
            if refused is None:
                cleared.add(destination)
            return refused

        said = sum(map(len, (*headers, *headers.values()))) + len(body or b"")
        try:
            page = await fetch(
                url,
                egress=self._egress.egress(gate),
                method=method,
                headers=headers,
                body=body,
                limits=FetchLimits(body_bytes=max_bytes, whole_s=timeout_s),
            )
        except NetError as error:
            # The first request may have been sent and only a redirect failed: report it, never less than was sent.
            gone = (Sent(to=str(to), out=len(url) + said, back=0),) if to in cleared else ()
            arrived = isinstance(error, Unreachable) and error.may_have_arrived
            raise BadCall(str(error), may_have_happened=arrived, sent=gone) from error
        return Fetched(
            status=page.status,
            url=page.url,
            mime=page.mime,
            body=page.body,
            is_cut=not page.is_whole,
            sent=_list_sent(page, said),
        )


def _list_sent(page: Page, said: int) -> tuple[Sent, ...]:
    """Count bytes per server: each got its own URL, the first also headers and body; the last sent the answer."""
    from pinfold.net import read_url

    last = len(page.hops) - 1
    return tuple(
        Sent(
            to=str(read_url(hop).destination),
            out=len(hop) + (said if number == 0 else 0),
            back=len(page.body) if number == last else 0,
        )
        for number, hop in enumerate(page.hops)
    )


class ToolOptions(Struct, frozen=True, kw_only=True):
    loaded: Loaded = field(default_factory=lambda: Loaded(config=Config(), origins={}))
    """The configuration, and the trusted files of the workspace."""
    flows: Flows = field(default_factory=Flows)
    carries: bool = False
    """True if clients of a server may copy files in and out, with `put_file` and `get_file`."""
    remembers: bool = False
    """True if notes may be kept although the session is not."""
    more_mcp: tuple[str, bytes] | None = None
    """MCP servers that the caller names: the origin, and the content in the format of `.mcp.json`."""
    client_mcp: bytes | None = None
    """MCP servers that an editor names, in the same format. They get no more rights than a project's."""
    starts_servers: bool = True
    """False for a sub-agent, which uses the servers of its parent session."""
    served: tuple[AnyTool, ...] = ()
    """Tools of the parent session's servers, grouped by server."""

    @property
    def declared(self) -> list[tuple[str, bytes]]:
        """The trusted YAML tool files of the workspace, by name."""
        return [(name, data) for name, data in self.loaded.obeyed.items() if name.startswith(f"{TOOLS}/")]

    @property
    def mcp(self) -> bytes | None:
        """`.mcp.json` of the workspace, if it is trusted."""
        return self.loaded.obeyed.get(SERVERS)


def build_tools(
    options: ToolOptions,
    own: Iterable[AnyTool],
    *,
    inside: Inside,
    kept: Kept,
    egress: SessionEgress,
    spec: Spec,
) -> tuple[list[AnyTool], tuple[str, ...]]:
    """Return all tools, and a line for each that could not be loaded."""
    from pinfold.tools.builtin.files import file_tools, transfer_tools
    from pinfold.tools.builtin.shell import shell_tool
    from pinfold.tools.builtin.small import small_tools
    from pinfold.tools.builtin.web import fetch_tool
    from pinfold.tools.registry import load_plugins

    web = WebAccess(egress)
    made: list[AnyTool] = [
        shell_tool(inside, str(spec.workspace), host=HostShell(spec.workspace), default_s=spec.limits.shell_s),
        *file_tools(inside, kept),
        fetch_tool(WebAccess(egress, Secrets().headers_for)),
        *small_tools(),
    ]
    if options.carries:
        made += transfer_tools(inside)
    faults: list[str] = []
    folder = config_dir() / "tools"
    if options.declared or folder.is_dir():
        from pinfold.tools.declared.tools import load_folder, yaml_tool

        ports = Ports(inside=inside, web=web, secret=Secrets().get)
        loaded = load_folder(folder, ports)
        faults += loaded.faults
        made += [*loaded.tools, *(yaml_tool(content, name, ports) for name, content in options.declared)]
    others = load_plugins()
    made += others.tools
    faults += others.faults
    return [*made, *own], tuple(faults)


KEPT = 1 << 20
"""Bytes kept of each output stream."""
_KILLED_S = 5.0


class HostShell:
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def run(self, command: str, *, workdir: str, timeout_s: float) -> CommandOutcome:
        """Run in the workspace with the user's environment and an empty stdin; kill the whole group at the end."""
        folder = self._workspace / workdir
        try:
            process = await anyio.open_process(
                ["/bin/bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return CommandOutcome(status="error", stderr=f"{error.filename}: {error.strerror}\n".encode())
        out, err = bytearray(), bytearray()
        dropped = 0

        async def read(stream: anyio.abc.ByteReceiveStream | None, kept: bytearray) -> None:
            nonlocal dropped
            assert stream
            async for piece in stream:
                room = KEPT - len(kept)
                kept += piece[:room]
                dropped += max(0, len(piece) - room)

        in_time = False
        try:
            with anyio.move_on_after(timeout_s):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(read, process.stdout, out)
                    tasks.start_soon(read, process.stderr, err)
                await process.wait()
                in_time = True
        finally:
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):  # and all its descendants in the same group
                    os.killpg(process.pid, signal.SIGKILL)
                with anyio.move_on_after(_KILLED_S):
                    await process.wait()
                await process.aclose()
        status = "timeout" if not in_time else "ok" if process.returncode == 0 else "error"
        return CommandOutcome(
            status=status, code=process.returncode, stdout=bytes(out), stderr=bytes(err), dropped_bytes=dropped
        )
