"""Runs the programs of MCP servers that use their standard streams: on this machine, or in a sandbox of their own.

In a sandbox, a long cell relays the streams by its calls.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

from pinfold.app.session.mcp.placement import Launch, launch_in_sandbox, launch_on_host
from pinfold.app.session.protected_files import add_closing_notices
from pinfold.app.tasks import background
from pinfold.app.trust.mcp_reach import is_sandboxed
from pinfold.events import Json
from pinfold.sandbox import (
    Answer,
    GuardedSession,
    Limits,
    NotSupported,
    Provider,
    SandboxUnavailable,
    Session,
    Spec,
    Stream,
)
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.providers.auto import Auto
from pinfold.tools import BadCall
from pinfold.tools.mcp.ports import Process
from pinfold.tools.mcp.spec import ServerSpec

_GRACE_S = 1.0
"""Time to end by itself once its stdin is closed, and again after SIGTERM."""
_KILLED_S = 5.0
_LOOK_S = 0.01
TAIL_BYTES = 8_000
"""Bytes of its stderr that are kept, to show why it ended."""
_PIECE = 256 << 10
"""Most bytes that one call brings to a program in a sandbox."""
_WAITING = 16
"""Most unread pieces of its output; then the program has to wait."""
_HELD_S = 600.0
"""How long a call waits for input before it returns without any."""
_LASTS_S = 7 * 24 * 3600.0
"""Time limit of the cell; time spent in calls does not count."""
_START = "from _pinfold_guest.tool_calls import relay\nrelay.start({argv!r}, {env!r}, {cwd!r})\nrelay.relay()"
_GO_ON = "relay.relay()"


class Programs:
    """Starts the programs. `provider` makes their sandboxes: it is the one of the session they serve."""

    def __init__(self, workspace: Path, provider: Provider, limits: Limits) -> None:
        self._workspace = workspace
        self._provider = provider
        self._limits = limits

    def start(self, spec: ServerSpec) -> AbstractAsyncContextManager[Process]:
        return self._run_in_sandbox(spec) if is_sandboxed(spec) else self._run_on_host(spec)

    @asynccontextmanager
    async def _run_in_sandbox(self, spec: ServerSpec) -> AsyncGenerator[Process]:
        if spec.reach == "network" and not spec.hosts:
            raise BadCall(f'{spec.name} wants the network: name what it may reach in {spec.origin}, `"hosts": [...]`')
        started = await anyio.to_thread.run_sync(launch_in_sandbox, spec, self._workspace)
        provider = self._provider
        provider = await provider.resolve() if isinstance(provider, Auto) else provider
        can = provider.capabilities
        if not (can.isolated and can.calls) or can.remote or (spec.hosts and not can.egress):
            lacks = "cannot isolate it" if not can.isolated or can.remote else "cannot exchange messages with it"
            lacks = "cannot allow network access to listed hosts" if can.calls and not can.egress else lacks
            instead = f"remove `reach` from its entry in {spec.origin}"
            if spec.is_confined:
                instead = f"let it run on this machine: pinfold mcp trust {spec.name} --reach outside"
            raise BadCall(
                f"{spec.name} is to run in a sandbox of its own (reach {spec.reach}), and {provider.name} {lacks}; "
                f"choose another --sandbox, or {instead}"
            )
        async with AsyncExitStack() as stack:
            place = stack.enter_context(folder("workspace"))
            egress = await stack.enter_async_context(_open_egress(spec)) if spec.hosts else None
            box = Spec(workspace=place, mounts=started.mounts, egress=egress, limits=self._limits)
            try:
                session = await provider.open(box)
            except (SandboxUnavailable, NotSupported) as error:
                raise BadCall(f"{spec.name} cannot run in a sandbox: {error}") from error
            yield await stack.enter_async_context(_run_sandboxed(session, started))

    @asynccontextmanager
    async def _run_on_host(self, spec: ServerSpec) -> AsyncGenerator[Process]:
        started = launch_on_host(spec, self._workspace)
        try:
            process = await anyio.open_process(
                started.argv, env=started.env, cwd=started.cwd, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise BadCall(f"{spec.name} cannot be started: {error.filename}: {error.strerror}") from error
        hosted = _HostProgram(process)
        try:
            async with background() as tasks:
                tasks.start_soon(hosted.listen)
                yield hosted
        finally:
            with anyio.CancelScope(shield=True):
                await hosted.end()


@asynccontextmanager
async def _open_egress(spec: ServerSpec) -> AsyncGenerator[Path]:
    """Run a proxy for this server only, which reaches exactly the server's hosts and asks for no approval."""
    from pinfold.net import AllowList, BadPattern, Egress, Proxy

    try:
        listed = AllowList(spec.hosts)
    except BadPattern as error:
        raise BadCall(f"{spec.name}: `hosts` in {spec.origin}: {error}") from error
    with folder("egress") as place:
        async with Proxy(Egress(listed)).listening(place / "proxy"):
            yield place / "proxy"


class _Program:
    """Keeps the end of what a program writes to stderr."""

    _said = b""

    def hear(self, piece: bytes) -> None:
        self._said = (self._said + piece)[-TAIL_BYTES:]

    @property
    def said(self) -> str:
        return self._said.decode("utf-8", "replace")


class _HostProgram(_Program):
    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin
        assert process.stdout
        self.stdin: ByteSendStream = process.stdin
        self.stdout: ByteReceiveStream = process.stdout
        self._process = process
        self.wait_for_exit = process.wait

    async def listen(self) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for piece in self._process.stderr or ():
                self.hear(piece)

    async def end(self) -> None:
        """End the program and all processes of its group."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self.stdin.aclose()
        with anyio.move_on_after(_GRACE_S):
            await self._process.wait()
        for sign, grace_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _KILLED_S)):
            if not self._send_signal(sign):
                break
            with anyio.move_on_after(grace_s):
                await self._process.wait()
                # The end of a process that is not our child is not reported, so poll for it.
                while self._send_signal(0):
                    await anyio.sleep(_LOOK_S)
        with suppress(anyio.BrokenResourceError, OSError):
            await self._process.aclose()

    def _send_signal(self, sign: int) -> bool:
        """Signal the group; return True if a process of it was still there."""
        with suppress(PermissionError):
            try:
                os.killpg(self._process.pid, sign)
            except ProcessLookupError:
                return False
        return True


class _SandboxedProgram(_Program, ByteSendStream):
    """The host's side of the streams of a program in a sandbox. The object is its own stdin."""

    def __init__(self) -> None:
        self.stdin: ByteSendStream = self
        self._give, taken = anyio.create_memory_object_stream[bytes](_WAITING)
        self.stdout: ByteReceiveStream = BufferedByteReceiveStream(taken)
        self._code: int | None = None
        self._ended = anyio.Event()
        self._unread = bytearray()
        """Input that the program has not read yet."""
        self._is_over = False
        self._stirred, self._taken = anyio.Event(), anyio.Event()

    async def wait_for_exit(self) -> int | None:
        await self._ended.wait()
        return self._code

    async def send(self, item: bytes) -> None:
        """Send input; return once there is room for more. Raises BrokenResourceError."""
        if self._ended.is_set() or self._is_over:
            raise anyio.BrokenResourceError
        self._unread += item
        self._stirred.set()
        while len(self._unread) > _PIECE:
            if self._ended.is_set():
                raise anyio.BrokenResourceError
            await self._taken.wait()

    async def aclose(self) -> None:
        """Close the program's stdin."""
        self._is_over = True
        self._stirred.set()

    def on_output(self, stream: Stream, _text: str) -> None:
        """Wake up the waiting call: output of the cell itself means that the program has something to hand over."""
        if stream == "stdout":
            self._stirred.set()

    async def on_call(self, tool: str, args: Mapping[str, Json]) -> Answer:
        """Answer a call of the relay. The program inside can forge calls, but that affects only its own output."""
        match args:
            case {"out": str(out), "err": str(err), "full": bool(is_full)} if tool == "relay":
                pass
            case _:
                return Answer(status="refused", value="only relay can be called here")
        try:
            written, said = out.encode("latin-1"), err.encode("latin-1")
        except UnicodeEncodeError:
            return Answer(status="refused", value="the text is not a stream of bytes")
        self.hear(said)
        if written:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the reader is gone
                await self._give.send(written)
        if isinstance(code := args.get("code"), int):
            self._code = code
            return Answer(status="ok", value={"in": "", "over": True})
        if not is_full:
            with anyio.move_on_after(_HELD_S):
                await self._stirred.wait()
            self._stirred = anyio.Event()
        piece = b"" if is_full else bytes(self._unread[:_PIECE])
        del self._unread[: len(piece)]
        if self._unread:
            self._stirred.set()
        self._taken.set()
        self._taken = anyio.Event()
        return Answer(status="ok", value={"in": piece.decode("latin-1"), "over": self._is_over and not self._unread})

    async def run(self, session: Session, started: Launch) -> None:
        code = _START.format(argv=list(started.argv), env=dict(started.env), cwd=started.cwd)
        try:
            while True:
                outcome = await session.run(code, timeout_s=_LASTS_S, on_call=self.on_call, on_output=self.on_output)
                if outcome.status != "ok" or outcome.value != "False":
                    break
                code = _GO_ON
            lines = (outcome.error or "").strip().splitlines()
            if lines:  # the last line is the error; the rest is Pinfold's own relay
                self.hear(f"{lines[-1]}\n".encode())
        finally:
            self._ended.set()
            self._taken.set()
            self._give.close()


@asynccontextmanager
async def _run_sandboxed(session: Session, started: Launch) -> AsyncGenerator[_SandboxedProgram]:
    """Run the program inside this context. At the end the session is closed, with everything that runs in it."""
    program = _SandboxedProgram()
    try:
        async with background() as tasks:
            tasks.start_soon(program.run, session, started)
            try:
                yield program
            finally:
                await program.aclose()
                with anyio.CancelScope(shield=True):
                    with anyio.move_on_after(_GRACE_S):
                        await program.wait_for_exit()
                    await session.close()
    finally:
        with anyio.CancelScope(shield=True):
            await session.close()
            if isinstance(session, GuardedSession):
                add_closing_notices(session.parting, is_broken=bool(session.lost_files))
            await program.stdout.aclose()
