"""A program's standard streams as messages. Anything else it prints is counted and reported once."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio
import mcp_types as types
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from pinfold.events import Json
from pinfold.text import presentable_line
from pinfold.tools.mcp.ports import Process
from pinfold.tools.mcp.traffic import Streams, Watch, WatchedWriting

_LAST_WORDS_S = 1.0
"""Time for a program whose output has ended to exit, so that its exit code is known."""
_QUOTED = 120
_SAID_LINES = 5


@asynccontextmanager
async def over_stdio(process: Process, watch: Watch, notice: Callable[[str], None]) -> AsyncGenerator[Streams]:
    to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_it = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks, to_us, incoming, outgoing, to_it:
        tasks.start_soon(_read, process, to_us, watch, notice)
        tasks.start_soon(_write, process, to_it)
        try:
            yield incoming, WatchedWriting(outgoing, watch)
        finally:
            tasks.cancel_scope.cancel()
            # A server whose connection broke gets less time to exit.
            grace_s = _LAST_WORDS_S / 10 if watch.over.event.is_set() else watch.limits.close_s
            with anyio.move_on_after(grace_s, shield=True):
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    await process.stdin.aclose()
                await process.wait_for_exit()


async def _read(
    process: Process,
    to_us: MemoryObjectSendStream[SessionMessage | Exception],
    watch: Watch,
    notice: Callable[[str], None],
) -> None:
    lines = BufferedByteReceiveStream(process.stdout)
    has_noticed = False
    async with to_us:
        while not watch.over.event.is_set():
            try:
                line = await lines.receive_until(b"\n", watch.limits.frame_bytes)
            except anyio.DelimiterNotFound:
                watch.over.end(f"it sent a message of more than {watch.limits.frame_bytes:,} bytes")
                return
            except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                watch.over.end(await _ending(process))
                return
            message = _decode_message(line)
            if not watch.comes_in(message, len(line)):
                return
            if message is not None:
                try:
                    await to_us.send(SessionMessage(message))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
            elif line.strip() and not has_noticed:
                has_noticed = True
                notice(f"it writes to its standard output what is no message: {_quote_line(line)}")


async def _write(process: Process, to_it: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with to_it:
        async for item in to_it:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
            try:
                await process.stdin.send(line.encode())
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                # `_read` reports that it ended, and how.
                return


def _decode_message(line: bytes) -> types.JSONRPCMessage | None:
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _answer_gone_wrong(line)


def _answer_gone_wrong(line: bytes) -> types.JSONRPCError | None:
    """An answer that cannot be read still ends the request: no better one will come."""
    try:
        loose: Json = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(loose, dict) or "method" in loose:
        return None
    request = cast("dict[str, Json]", loose).get("id")
    if isinstance(request, bool) or not isinstance(request, int | str):
        return None
    said = f"it answered with what is no JSON-RPC: {_quote_line(line)}"
    return types.JSONRPCError(jsonrpc="2.0", id=request, error=types.ErrorData(code=types.PARSE_ERROR, message=said))


async def _ending(process: Process) -> str:
    code = None
    with anyio.move_on_after(_LAST_WORDS_S) as scope:
        code = await process.wait_for_exit()
    if scope.cancelled_caught:
        return "it closed its standard output" + last_words(process)
    how = "it ended"
    if code is not None:
        how = f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
    return how + last_words(process)


def last_words(process: Process) -> str:
    lines = [line.strip() for line in process.said.splitlines() if line.strip()]
    said = presentable_line(" / ".join(lines[-_SAID_LINES:]))
    return f"; it said: {said[-600:]}" if said else ""


def _quote_line(line: bytes) -> str:
    text = presentable_line(line[:_QUOTED].decode("utf-8", "replace"))
    return f"{text!r}{'...' if len(line) > _QUOTED else ''}"
