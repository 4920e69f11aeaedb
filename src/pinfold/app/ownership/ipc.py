"""Requests and answers between processes of one user: lines of JSON over a Unix socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream, UNIXSocketStream

from pinfold.app.errors import OwnerGone, SessionBusy
from pinfold.events import BadEvent, Json, PinfoldError, parse_json, plain_json
from pinfold.sandbox.kernel.processes import is_same_user, short_path

BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError)
_LINE = 256 << 20


class LineReader:
    def __init__(self, stream: SocketStream) -> None:
        from anyio.streams.buffered import BufferedByteReceiveStream

        self._buffer = BufferedByteReceiveStream(stream)

    async def next(self, limit: int = _LINE) -> bytes:
        try:
            return await self._buffer.receive_until(b"\n", limit)
        except (anyio.EndOfStream, anyio.IncompleteRead, *BROKEN) as error:
            raise OwnerGone("the process that held the session ended; `pinfold resume` takes it over") from error
        except anyio.DelimiterNotFound as error:
            raise BadEvent(f"a line of more than {limit >> 20} MiB") from error


async def send_line(stream: SocketStream, words: Json) -> None:
    await stream.send(plain_json(words).encode() + b"\n")


async def send_request(path: Path, question: Json, who: str, limit_s: float) -> dict[str, Json]:
    """Send one request and return its answer. Raises OwnerGone if no process listens, SessionBusy on a timeout."""
    async with open_stream(path) as stream:
        try:
            with anyio.fail_after(limit_s):
                await send_line(stream, question)
                answer = parse_json(await LineReader(stream).next())
        except BROKEN as error:
            raise OwnerGone(f"{who} ended") from error
        except TimeoutError as error:
            raise SessionBusy(f"{who} does not answer; try again later") from error
    if not isinstance(answer, dict):
        raise OwnerGone(f"{who} sent an invalid answer")
    return cast("dict[str, Json]", answer)


@asynccontextmanager
async def open_stream(path: Path) -> AsyncGenerator[UNIXSocketStream]:
    with short_path(path) as short:
        try:
            stream = await anyio.connect_unix(short)
        except OSError as error:
            raise OwnerGone(f"no process listens at {path}") from error
    async with stream:
        yield stream


async def open_listener(path: Path) -> SocketListener:
    path.unlink(missing_ok=True)  # noqa: ASYNC240 - a name only
    with short_path(path) as short:
        return await anyio.create_unix_listener(short, mode=0o600)


async def answer_request(stream: SocketStream, limit: int, respond: Callable[[Json], Awaitable[None]]) -> None:
    """Answer one request of a process of the same user; `limit` is in bytes. A PinfoldError is sent as the answer."""
    async with stream:
        if not is_same_user(stream.extra(SocketAttribute.raw_socket)):  # noqa: S610 - no SQL here
            return
        with suppress(OwnerGone, *BROKEN):
            try:
                await respond(parse_json(await LineReader(stream).next(limit)))
            except OwnerGone:
                return
            except PinfoldError as error:
                await send_line(stream, {"refused": str(error), "code": error.exit_code})
