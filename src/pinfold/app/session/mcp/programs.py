"""The programs of MCP servers that speak over their standard streams: on this machine, or in a sandbox of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from pinfold.app.session.mcp.placement import Launch, launch_in_sandbox, launch_on_host
from pinfold.app.session.mcp.sandboxed_program import Tail, run_sandboxed
from pinfold.app.tasks import background
from pinfold.app.trust.mcp_reach import is_sandboxed
from pinfold.sandbox import Limits, NotSupported, Provider, SandboxUnavailable, Spec
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.sandbox.providers.auto import Auto
from pinfold.tools import BadCall
from pinfold.tools.mcp.ports import Process
from pinfold.tools.mcp.spec import ServerSpec

_GRACE_S = 1.0
"""For it to end by itself when there is nothing more to read, and again when it is told to."""
_KILLED_S = 5.0
_LOOK_S = 0.01


class Programs:
    """`provider` gives the sandboxes: the one of the session they serve."""

    def __init__(self, workspace: Path, provider: Provider, limits: Limits) -> None:
        self._workspace = workspace
        self._provider = provider
        self._limits = limits

    def start(self, spec: ServerSpec) -> AbstractAsyncContextManager[Process]:
        return (
            self._run_in_sandbox(spec)
            if is_sandboxed(spec)
            else _run_on_host(launch_on_host(spec, self._workspace), spec)
        )

    @asynccontextmanager
    async def _run_in_sandbox(self, spec: ServerSpec) -> AsyncGenerator[Process]:
        if spec.reach == "network" and not spec.hosts:
            raise BadCall(f'{spec.name} wants the network: name what it may reach in {spec.origin}, `"hosts": [...]`')
        started = await anyio.to_thread.run_sync(launch_in_sandbox, spec, self._workspace)
        provider = self._provider
        provider = await provider.resolve() if isinstance(provider, Auto) else provider
        can = provider.capabilities
        if not (can.isolated and can.calls) or can.remote or (spec.hosts and not can.egress):
            lacks = "cannot shut it in" if not can.isolated or can.remote else "has no way to speak with it there"
            lacks = "gives no way out to listed hosts" if can.calls and not can.egress else lacks
            raise BadCall(
                f"{spec.name} is to run in a sandbox of its own (reach {spec.reach}), and {provider.name} {lacks}; "
                f"choose another --sandbox, or {_suggest_host_run(spec)}"
            )
        folder = TemporaryFolder("workspace")
        async with AsyncExitStack() as stack:
            stack.callback(folder.remove)
            way = await stack.enter_async_context(_open_egress(spec)) if spec.hosts else None
            box = Spec(workspace=folder.path, mounts=started.mounts, egress=way, limits=self._limits)
            try:
                session = await provider.open(box)
            except (SandboxUnavailable, NotSupported) as error:
                raise BadCall(f"{spec.name} cannot run in a sandbox: {error}") from error
            yield await stack.enter_async_context(run_sandboxed(session, started, f"a sandbox ({provider.name})"))


def _suggest_host_run(spec: ServerSpec) -> str:
    if spec.is_confined:
        return f"let it run on this machine: pinfold mcp trust {spec.name} --reach outside"
    return f"remove `reach` from its entry in {spec.origin}"


@asynccontextmanager
async def _open_egress(spec: ServerSpec) -> AsyncGenerator[Path]:
    """A proxy of its own that reaches exactly its hosts, asks for no approval and ends with it."""
    from pinfold.net import AllowList, BadPattern, Egress, Proxy

    try:
        listed = AllowList(spec.hosts)
    except BadPattern as error:
        raise BadCall(f"{spec.name}: `hosts` in {spec.origin}: {error}") from error
    folder = TemporaryFolder("egress")
    try:
        async with Proxy(Egress(listed)).listening(folder.path / "proxy"):
            yield folder.path / "proxy"
    finally:
        folder.remove()


class _HostProcess:
    where = "this machine"

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin
        assert process.stdout
        self.stdin: ByteSendStream = process.stdin
        self.stdout: ByteReceiveStream = process.stdout
        self._process = process
        self._said = Tail()

    @property
    def said(self) -> str:
        return self._said.text

    async def listen(self) -> None:
        stream = self._process.stderr
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for piece in stream or ():
                self._said.add(piece)

    async def wait_for_exit(self) -> int | None:
        return await self._process.wait()

    async def end(self) -> None:
        """And whatever it started that did not leave its group."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self.stdin.aclose()
        with anyio.move_on_after(_GRACE_S):
            await self._process.wait()
        for sign, grace_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _KILLED_S)):
            if not self._send_signal(sign):
                break
            with anyio.move_on_after(grace_s):
                await self._process.wait()
                # The end of a process that is not our child is not reported.
                while self._send_signal(0):  # noqa: ASYNC110
                    await anyio.sleep(_LOOK_S)
        with suppress(anyio.BrokenResourceError, OSError):
            await self._process.aclose()

    def _send_signal(self, sign: int) -> bool:
        """True if a process of its group was still there."""
        try:
            os.killpg(self._process.pid, sign)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


@asynccontextmanager
async def _run_on_host(started: Launch, spec: ServerSpec) -> AsyncGenerator[Process]:
    try:
        process = await anyio.open_process(
            started.argv,
            env=started.env,
            cwd=started.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise BadCall(f"{spec.name} cannot be started: {error.filename}: {error.strerror}") from error
    hosted = _HostProcess(process)
    try:
        async with background() as tasks:
            tasks.start_soon(hosted.listen)
            yield hosted
    finally:
        with anyio.CancelScope(shield=True):
            await hosted.end()
