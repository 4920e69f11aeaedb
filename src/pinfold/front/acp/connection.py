"""JSON-RPC 2.0 as lines of JSON over two byte streams. Both sides send requests, which are answered in any order.

It knows nothing of the Agent Client Protocol except how a request is cancelled.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import BinaryIO, TypeAlias, cast

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from pinfold.events import Json, PinfoldError

logger = logging.getLogger(__name__)
Params: TypeAlias = Mapping[str, Json]
Reply: TypeAlias = Callable[[Json], Awaitable[None]]
"""Answers the request; its handler may continue afterwards."""
RequestHandler: TypeAlias = Callable[[Params, Reply], Awaitable[None]]
NotificationHandler: TypeAlias = Callable[[Params], Awaitable[None]]

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
CANCELLED, AUTH_REQUIRED, NOT_FOUND = -32800, -32000, -32002
CANCEL = "$/cancel_request"
LONGEST = 64 << 20
"""Most bytes of one message: a picture of the largest size, and some room."""
_WAITING = 256
"""How many messages may wait to be written before senders must wait."""
_LAST_S = 5.0
"""How long the last messages may take to be read."""


class RpcError(PinfoldError):
    """The error that answers a request. Its message is one line."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Connection:
    def __init__(self, reads: BinaryIO, writes: BinaryIO, first: bytes = b"") -> None:
        """`first`: a line that was read already."""
        self._reads = reads
        self._first = first
        self._writes = writes
        self.requests: dict[str, RequestHandler] = {}
        self.notifications: dict[str, NotificationHandler] = {}
        """Handlers run one at a time, before the next message is read, so they must not wait for the other side."""
        self._out, self._queued = anyio.create_memory_object_stream[bytes](_WAITING)
        self._asked: dict[int, tuple[anyio.Event, dict[str, Json]]] = {}
        """Requests that this side sent; the event is set once the answer is there."""
        self._handled: dict[int | str, anyio.CancelScope] = {}
        """Requests of the other side that are being handled."""
        self._last_id = 0

    async def serve(self) -> None:
        """Serve until the other side closes its stream; then cancel the handlers and write all answers."""
        async with anyio.create_task_group() as writing:
            writing.start_soon(self._write_all)
            async with anyio.create_task_group() as tasks:
                while line := self._first or await self._read_line():
                    self._first = b""
                    if line.strip():
                        await self._receive(line, tasks)
                tasks.cancel_scope.cancel()
            await self._out.aclose()
            writing.cancel_scope.deadline = anyio.current_time() + _LAST_S

    # To the other side

    async def notify(self, method: str, params: Json) -> None:
        await self._send({"method": method, "params": params})

    async def request(self, method: str, params: Json) -> Json:
        """Send a request and return the result. If cancelled, cancel it on the other side. Raises RpcError."""
        self._last_id += 1
        id_ = self._last_id
        answered, answer = self._asked[id_] = anyio.Event(), dict[str, Json]()
        await self._send({"id": id_, "method": method, "params": params})
        try:
            await answered.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(_LAST_S):
                await self.notify(CANCEL, {"requestId": id_})
            raise
        finally:
            del self._asked[id_]
        if (error := answer.get("error")) is not None:
            raise RpcError(int(error.get("code", INTERNAL)), str(error.get("message", "the request failed")))
        return answer.get("result")

    async def _send(self, message: dict[str, Json]) -> None:
        message = {"jsonrpc": "2.0", **message}
        try:
            line = msgspec.json.encode(message)
        except UnicodeEncodeError:  # lone surrogates, which no JSON text may hold
            line = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the other side has gone
            await self._out.send(line + b"\n")

    async def _write_all(self) -> None:
        async for line in self._queued:
            lines = [line]
            with suppress(anyio.WouldBlock, anyio.EndOfStream):
                while True:
                    lines.append(self._queued.receive_nowait())
            try:
                # In a thread, because a client that does not read must block nothing but this write.
                await anyio.to_thread.run_sync(self._write, b"".join(lines), abandon_on_cancel=True)
            except OSError:
                self._queued.close()
                return

    def _write(self, data: bytes) -> None:
        self._writes.write(data)
        self._writes.flush()

    # From the other side

    async def _read_line(self) -> bytes:
        """Return the next line, empty at the end. A line that is too long is cut, which makes it invalid JSON."""
        read = partial(self._reads.readline, LONGEST)
        first = line = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
        while len(line) == LONGEST and not line.endswith(b"\n"):
            line = await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
        return first

    async def _receive(self, line: bytes, tasks: TaskGroup) -> None:
        try:
            message: Json = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            what = f"a message is longer than {LONGEST >> 20} MB" if len(line) >= LONGEST else "the line is not JSON"
            await self._fail(None, PARSE_ERROR, what)
            return
        match message:
            case {"method": str(method), "id": int() | str() | None as id_}:
                tasks.start_soon(self._handle, id_, method, _params_of(message))
            case {"method": str(method)}:
                await self._take_notification(method, _params_of(message))
            case {"id": int(id_), **answer} if "result" in answer or "error" in answer:
                if id_ in self._asked:
                    answered, place = self._asked[id_]
                    place.update(cast("dict[str, Json]", answer))
                    answered.set()
            case _:
                await self._fail(
                    None, INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message; batches are not supported"
                )

    async def _take_notification(self, method: str, params: Params) -> None:
        try:
            if method == CANCEL:
                if scope := self._handled.get(params.get("requestId", "")):
                    scope.cancel()
            elif method in self.notifications:
                await self.notifications[method](params)
        except PinfoldError:  # a notification has no answer
            logger.exception("%s failed", method)

    async def _handle(self, id_: int | str | None, method: str, params: Params) -> None:
        has_replied = False

        async def reply(result: Json) -> None:
            nonlocal has_replied
            has_replied = True
            await self._send({"id": id_, "result": result})

        error: tuple[int, str] | None = None
        with anyio.CancelScope() as scope:
            if id_ is not None:
                self._handled[id_] = scope
            try:
                if handler := self.requests.get(method):
                    await handler(params, reply)
                else:
                    error = NO_METHOD, f"there is no method {method!r}"
            except RpcError as failed:
                error = failed.code, str(failed)
            except PinfoldError as failed:
                error = INVALID_PARAMS if failed.exit_code == 2 else INTERNAL, str(failed)
            except msgspec.ValidationError as failed:
                error = INVALID_PARAMS, f"{method}: {failed}"
            except Exception as failed:  # a request that fails must not end the connection
                logger.exception("unexpected")
                error = INTERNAL, f"unexpected error, please report it: {type(failed).__name__}: {failed}"
            finally:
                if id_ is not None:
                    self._handled.pop(id_, None)
        if scope.cancelled_caught:
            error = CANCELLED, "the request was cancelled"
        if error and has_replied:
            logger.error("%s failed after its answer: %s", method, error[1])
        elif error:
            await self._fail(id_, *error)

    async def _fail(self, id_: int | str | None, code: int, words: str) -> None:
        await self._send({"id": id_, "error": {"code": code, "message": " ".join(words.split())}})


def _params_of(message: Mapping[str, Json]) -> Params:
    params = message.get("params")
    return cast("Params", params) if isinstance(params, dict) else {}
