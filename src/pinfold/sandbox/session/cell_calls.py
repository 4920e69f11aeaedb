"""Serves the tool calls of one cell: several at once, with commands that run in the cell's slot meanwhile.

Commands for a guest are checked and encoded here, and their output is decoded as it arrives.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import TypeAlias, cast

import anyio
from msgspec.structs import replace

from pinfold.events import Arrow, Json
from pinfold.sandbox.contract import (
    COMMAND_BYTES,
    Answer,
    CommandOutcome,
    FileRefused,
    Limits,
    OnCall,
    OnOutput,
    Stream,
)
from pinfold.sandbox.kernel.seccomp import compile_read_only_filter
from pinfold.sandbox.session.channel import (
    ANSWER_BYTES,
    ANSWERS_BYTES,
    BESIDE_BYTES,
    RAN_BYTES,
    GuestCall,
    OnPiece,
    Reply,
)
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.limits import Deadline
from pinfold.sandbox.session.output import OutputListener

END_S = 5.0
"""Time for ending the processes that a command left running."""


class Command:
    """A program to run, checked and encoded for the guest."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        timeout_s: float,
        env: Mapping[str, str] | None,
        stdin: bytes,
        workdir: str,
        on_output: OnOutput | None,
        read_only: bool,
    ) -> None:
        """Check and encode a program to run. Raises FileRefused."""
        if not argv:
            raise FileRefused("a command needs the name of a program")
        if len(stdin) > limits.file_bytes:
            raise FileRefused(f"{argv[0]!r} has {len(stdin)} bytes of input; the limit is {limits.file_bytes}")
        environment = None if env is None else dict(env)
        bound = compile_read_only_filter().hex() if read_only else ""
        self.name = argv[0]
        self.head = _head(argv=[*argv], env=environment, workdir=workdir, timeout_s=timeout_s, read_only=bound)
        self.body = self.head + stdin
        self.timeout_s = timeout_s
        self.heard = None if on_output is None else CommandListener(on_output)
        self.on_piece: OnPiece | None = None if self.heard is None else self.heard.piece

    def finish(self) -> None:
        """Stop calling `on_output`, and raise what it raised."""
        if self.heard is not None:
            self.heard.finish()


class CommandListener(OutputListener):
    """Passes on what a command writes, which arrives as bytes."""

    def __init__(self, on_output: OnOutput) -> None:
        super().__init__(on_output)
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders: dict[Stream, codecs.IncrementalDecoder] = {
            "stdout": decoder("replace"),
            "stderr": decoder("replace"),
        }

    def piece(self, stream: Stream, data: bytes) -> None:
        self.tell(stream, self._decoders[stream].decode(data))

    def finish(self) -> None:
        for stream, decoder in self._decoders.items():
            self.tell(stream, decoder.decode(b"", final=True))
        super().finish()


async def end_group(guest: Guest, pid: int) -> bool:
    """End what an earlier command left running in its process group. Returns True if the guest still lives.

    The group's number may have been reused by an unrelated process. So a process of the guest's session joins the
    group and kills it from inside: a process can join only groups of its own session.
    """
    head = _head(argv=["/bin/sh", "-c", "kill -KILL 0"], env=None, workdir="", timeout_s=END_S, group=pid)
    end = await guest.ask("command", head, RAN_BYTES, 2 * END_S, head=len(head), tell=0)
    return isinstance(end, Reply)


def _head(*, group: int = 0, **request: object) -> bytes:
    """Encode a command. `group`: the process group it joins; 0 is a new one."""
    return json.dumps({**request, "group": group, "limit": COMMAND_BYTES}).encode()


def not_run(why: str) -> CommandOutcome:
    """Return the outcome of a command that was not run, or whose end is unknown."""
    return CommandOutcome(status="error", stderr=f"{why}\n".encode("utf-8", "backslashreplace"))


GONE = "the cell that made the call has ended, or does not wait for it any more"
TOO_MUCH = "a cell can be given {:,} MB by tools, and this cell has reached that; continue in another cell"
DROPPED = "the cell no longer waits for this call"
_working_on: ContextVar[int | None] = ContextVar("working_on", default=None)
"""The number of the call that the current task answers."""


class _Call:
    """A call being answered. Cancelled by a scope, not by its task, so that what a tool shields stays shielded."""

    def __init__(self) -> None:
        self._scope: anyio.CancelScope | None = None
        """Set once the task runs: under plain asyncio, anyio cannot create a scope outside a task."""
        self._dropped = False

    def droppable(self) -> anyio.CancelScope:
        self._scope = anyio.CancelScope()
        if self._dropped:
            self._scope.cancel()
        return self._scope

    def drop(self) -> None:
        self._dropped = True
        if self._scope:
            self._scope.cancel()


class CellCalls:
    def __init__(self, guest: Guest, deadline: Deadline, on_call: OnCall) -> None:
        self._guest = guest
        self._deadline = deadline
        self._on_call = on_call
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[asyncio.Task[None], _Call]] = {}
        self._failure: Exception | None = None
        self._turn = asyncio.Lock()
        self._given = 0

    @property
    def is_open(self) -> bool:
        """True while code inside waits for an answer."""
        return bool(self._open)

    async def serve(self) -> None:
        """Serve calls until the cell has ended, then cancel tools that still run. Raises what `on_call` raised."""
        try:
            await self._guest.serve_calls(self._take)
        finally:
            await self._give_up()
        if self._failure is not None:
            raise self._failure

    def _take(self, call: GuestCall | int) -> None:
        if isinstance(call, GuestCall):
            self._deadline.pause()
            worked_on = _Call()
            task = self._loop.create_task(self._answer(call, worked_on))
            self._open[call.number] = task, worked_on
        elif call in self._open:
            self._open[call][1].drop()

    async def _answer(self, call: GuestCall, worked_on: _Call) -> None:
        _working_on.set(call.number)
        answer = Answer(status="failed", value=DROPPED)
        try:
            with worked_on.droppable():
                answer = await self._on_call(call.tool, call.args)
        except Exception as error:  # noqa: BLE001 - the caller's: `run` raises it again, as it is
            self._failure = error
            self._guest.stop_serving_calls()
        else:
            # A dropped call is answered too: until then both sides count it as open.
            header, parts = encode_answer(answer)
            self._given += sum(map(len, parts))
            # The total is bounded too: a cell may ask for the same result again and again.
            if self._given > ANSWERS_BYTES:
                header, parts = _failure(TOO_MUCH.format(ANSWERS_BYTES >> 20))
            self._guest.answer(call, header, parts)
        finally:
            del self._open[call.number]
            self._deadline.go_on()

    async def _give_up(self) -> None:
        given_up = list(self._open.values())
        for _, worked_on in given_up:
            worked_on.drop()
        with anyio.CancelScope(shield=True):
            for task, _ in given_up:
                await asyncio.wait([task])

    async def run(self, command: Command, reply_s: float) -> CommandOutcome:
        """Run a command in the cell's slot, by the program that waits. Never raises for what the cell does."""
        async with self._turn:
            started = perf_counter()
            await self._guest.settle_interrupt()
            number = _working_on.get()
            if number not in self._open:
                number = next(iter(self._open), 0)
            ran = await self._guest.run_nested(
                number, command.body, len(command.head), command.timeout_s + reply_s, command.on_piece
            )
        outcome = not_run(f"{command.name}: {GONE}") if ran is None else ran.outcome
        return replace(outcome, duration_s=perf_counter() - started)


EncodedAnswer: TypeAlias = tuple[Mapping[str, Json], tuple[bytes, ...]]
"""The header of the frame, and the parts of its body."""


def encode_answer(answer: Answer) -> EncodedAnswer:
    """Encode an answer; one that is too large becomes a failure."""
    if answer.status != "ok":
        return _failure(str(answer.value), refused=answer.status == "refused")
    beside: list[tuple[list[str | int], bytes]] = []
    value = _without_bytes(answer.value, [], beside)
    body = json.dumps(value).encode()
    if len(body) > ANSWER_BYTES:
        return _failure(f"its result has {len(body):,} bytes; a cell can be given {ANSWER_BYTES:,}")
    if not beside:
        return {"ok": True}, (body,)
    parts = tuple(data for _, data in beside)
    if (size := sum(map(len, parts))) > BESIDE_BYTES:
        return _failure(f"its result has {size:,} bytes; a cell can be given {BESIDE_BYTES:,}")
    told = [(path, "arrow" if isinstance(data, Arrow) else "bytes", len(data)) for path, data in beside]
    return {"ok": True, "json": len(body), "beside": told}, (body, *parts)


def _failure(reason: str, *, refused: bool = False) -> EncodedAnswer:
    return {"ok": False}, (json.dumps({"refused": refused, "reason": reason}).encode(),)


def _without_bytes(value: Json, path: list[str | int], beside: list[tuple[list[str | int], bytes]]) -> Json:
    match value:
        case bytes():
            beside.append((path, value))
            return None
        case dict():
            inside = cast("dict[str, Json]", value)
            return {key: _without_bytes(item, [*path, key], beside) for key, item in inside.items()}
        case list() | tuple():
            items = cast("list[Json]", value)
            return [_without_bytes(item, [*path, place], beside) for place, item in enumerate(items)]
        case _:
            return value
