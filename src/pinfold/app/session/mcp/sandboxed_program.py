"""A program in a sandbox of its own, whose standard streams are relayed by the calls of one long cell."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from pinfold.app.session.mcp.placement import Launch
from pinfold.app.session.protected_files import add_closing_notices
from pinfold.app.tasks import background
from pinfold.events import Json
from pinfold.sandbox import Answer, GuardedSession, Outcome, Session, Stream

TAIL_BYTES = 8_000


class Tail:
    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > 2 * TAIL_BYTES:
            del self._kept[:-TAIL_BYTES]

    @property
    def text(self) -> str:
        return bytes(self._kept[-TAIL_BYTES:]).decode("utf-8", "replace")


logger = logging.getLogger(__name__)
_PIECE = 256 << 10
"""Bytes that one call brings to the program."""
_WAITING = 16
"""Unread pieces of its output; with more it has to wait."""
_HELD_S = 600.0
"""How long a call is kept that has nothing to come back with."""
_LASTS_S = 7 * 24 * 3600.0
"""Of the cell's own time, which does not count what it spends in calls."""
_GRACE_S = 1.0
"""For the program to end by itself when there is nothing more to read."""
_START = "from _pinfold_guest.tool_calls import relay\nrelay.start({argv!r}, {env!r}, {cwd!r})\nrelay.relay()"
_GO_ON = "relay.relay()"


class SandboxedProgram:
    """Its streams on this side."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stdin: ByteSendStream = _Stdin(self)
        self._give, taken = anyio.create_memory_object_stream[bytes](_WAITING)
        self.stdout: ByteReceiveStream = _Stdout(taken)
        self._said = Tail()
        self._code: int | None = None
        self._ended = anyio.Event()
        self._unread = bytearray()
        """For the program."""
        self._is_over = False
        self._stirred, self._taken = anyio.Event(), anyio.Event()

    @property
    def said(self) -> str:
        return self._said.text

    async def wait_for_exit(self) -> int | None:
        await self._ended.wait()
        return self._code

    async def send(self, data: bytes) -> None:
        """Returns once there is room for more. Raises BrokenResourceError."""
        if self._ended.is_set() or self._is_over:
            raise anyio.BrokenResourceError
        self._unread += data
        self._wake()
        while len(self._unread) > _PIECE:
            if self._ended.is_set():
                raise anyio.BrokenResourceError
            await self._taken.wait()

    def close_input(self) -> None:
        """Nothing more comes for it to read."""
        self._is_over = True
        self._wake()

    def on_output(self, stream: Stream, _text: str) -> None:
        """The bell: it has something to hand over."""
        if stream == "stdout":
            self._wake()

    def _wake(self) -> None:
        self._stirred.set()

    async def on_call(self, tool: str, args: Mapping[str, Json]) -> Answer:
        """What is called is up to the program inside, which can only harm what it says itself."""
        match args:
            case {"out": str(out), "err": str(err), "full": bool(is_full)} if tool == "relay":
                pass
            case _:
                return Answer(status="refused", value="there is nothing to call but relay")
        try:
            written, said = out.encode("latin-1"), err.encode("latin-1")
        except UnicodeEncodeError:
            return Answer(status="refused", value="that is no stream of bytes")
        self._said.add(said)
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
            self._wake()
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
            self._said.add(_describe_end(outcome).encode())
        finally:
            self._ended.set()
            self._taken.set()
            self._give.close()


def _describe_end(outcome: Outcome) -> str:
    """The last line is the error itself; the rest is our own program."""
    lines = (outcome.error or "").strip().splitlines()
    return f"{lines[-1]}\n" if lines else ""


class _Stdin(ByteSendStream):
    def __init__(self, program: SandboxedProgram) -> None:
        self._program = program

    async def send(self, item: bytes) -> None:
        await self._program.send(item)

    async def aclose(self) -> None:
        self._program.close_input()


class _Stdout(ByteReceiveStream):
    def __init__(self, pieces: anyio.abc.ObjectReceiveStream[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        data = self._rest or await self._pieces.receive()
        self._rest = data[max_bytes:]
        return data[:max_bytes]

    async def aclose(self) -> None:
        await self._pieces.aclose()


@asynccontextmanager
async def run_sandboxed(session: Session, started: Launch, where: str) -> AsyncGenerator[SandboxedProgram]:
    """It runs for as long as this lasts; the session is closed at the end, and all that runs in it with it."""
    program = SandboxedProgram(where)
    try:
        async with background() as tasks:
            tasks.start_soon(program.run, session, started)
            try:
                yield program
            finally:
                program.close_input()
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
