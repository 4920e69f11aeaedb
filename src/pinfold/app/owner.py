"""Reaching a session from any process: through its owner's socket, or by becoming the owner."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import socket
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol, Self, cast

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream, UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from pinfold.app.errors import OwnerGone, SessionBusy
from pinfold.app.live import LiveSession, Options, Standing, own
from pinfold.app.lock import claim, holder_of
from pinfold.app.paths import private_dir
from pinfold.app.tasks import background
from pinfold.engine import CommandRefused
from pinfold.events import (
    BadEvent,
    Command,
    Delta,
    Entry,
    Json,
    PinfoldError,
    Rename,
    SessionChanged,
    SessionId,
    decode_command,
    decode_line,
    delta_line,
    encode,
    entry_line,
    parse_json,
    plain_json,
)
from pinfold.log import Log, summarise

logger = logging.getLogger(__name__)
_SOCKET = "owner.sock"
_BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError)
_LINE = 256 << 20
_QUESTION = 64 << 20
_ANSWER_S = 10.0
_TAKE_OVER_S = 5.0
"""How long an owner may take between holding the lock and answering its socket."""
_LOOK_AGAIN_S = 0.05
_FAREWELL_S = 5.0
"""How long other processes may take to read one event, once we want to leave."""


class Feed(Protocol):
    """Events and deltas, without end."""

    async def __aenter__(self) -> AsyncIterator[Entry | Delta]: ...

    async def __aexit__(self, *_: object) -> None: ...


class Link(Protocol):
    """A session as a front end sees it, wherever it lives."""

    session: SessionId

    async def standing(self) -> Standing: ...

    async def submit(self, command: Command) -> None: ...

    def subscribe(self, after: int = 0) -> Feed: ...


@asynccontextmanager
async def take(folder: Path, session: SessionId, options: Options) -> AsyncGenerator[LiveSession]:
    """Own the session and answer for it. Raises SessionBusy if another process does already."""
    private_dir(folder)
    claimed = claim(folder)
    if claimed is None:
        raise SessionBusy(
            f"{session} is in use by process {holder_of(folder)}; end that first or work through it"
        )
    begun = False
    try:
        async with own(folder, session, options) as live, _serving(live, folder):
            begun = True
            yield live
    finally:
        if not begun and _is_empty(folder):
            shutil.rmtree(folder, ignore_errors=True)
        claimed.release()


def _is_empty(folder: Path) -> bool:
    summary = summarise(folder)
    return summary is not None and summary.events == 0


@asynccontextmanager
async def attach(
    folder: Path, session: SessionId, options: Options
) -> AsyncGenerator[LiveSession | RemoteSession]:
    """The session's live owner if there is one, else become it. Raises SessionBusy."""
    give_up_at = anyio.current_time() + _TAKE_OVER_S
    while True:
        if holder_of(folder) is None:
            async with AsyncExitStack() as stack:
                try:
                    live = await stack.enter_async_context(take(folder, session, options))
                except SessionBusy:
                    continue  # someone was faster; work through them
                yield live
            return
        remote = RemoteSession(session, folder)
        if await remote.answers():
            yield remote
            return
        if anyio.current_time() > give_up_at:
            raise SessionBusy(
                f"{session} is held by process {holder_of(folder)}, which does not answer; end it or try again later"
            )
        await anyio.sleep(_LOOK_AGAIN_S)


async def rename(folder: Path, session: SessionId, title: str) -> None:
    """Give a session a name, through its owner if it has one."""
    if claimed := claim(folder):
        log = Log(folder, session)
        try:
            await log.append(SessionChanged(title=title))
        finally:
            log.close()
            claimed.release()
    else:
        await RemoteSession(session, folder).submit(Rename(title=title))


class RemoteSession:
    """A session that another process owns."""

    def __init__(self, session: SessionId, folder: Path) -> None:
        self.session = session
        self._folder = folder

    async def answers(self) -> bool:
        try:
            await self.standing()
        except (OwnerGone, SessionBusy):
            return False
        return True

    async def standing(self) -> Standing:
        answer = await self._ask({"op": "hello"})
        try:
            return msgspec.convert(answer, Standing)
        except msgspec.ValidationError as error:
            raise OwnerGone(f"the owner of {self.session} answered nonsense: {error}") from error

    async def submit(self, command: Command) -> None:
        await self._ask({"op": "submit", "command": parse_json(encode(command))})

    def subscribe(self, after: int = 0) -> RemoteFeed:
        return RemoteFeed(self._folder, after)

    async def _ask(self, question: Json) -> dict[str, Json]:
        async with _connected(self._folder) as stream:
            try:
                with anyio.fail_after(_ANSWER_S):
                    await stream.send(plain_json(question).encode() + b"\n")
                    answer = parse_json(await _Lines(stream).next())
            except _BROKEN as error:
                raise OwnerGone(f"the owner of {self.session} ended") from error
            except TimeoutError as error:
                raise SessionBusy(f"the owner of {self.session} does not answer; try again later") from error
        match answer:
            case {"refused": str(words)}:
                raise CommandRefused(words)
            case dict():
                return cast("dict[str, Json]", answer)
            case _:
                raise OwnerGone(f"the owner of {self.session} answered nonsense")


class RemoteFeed:
    """Events of a session that another process owns. Raises OwnerGone when that process ends."""

    def __init__(self, folder: Path, after: int) -> None:
        self._connection = _connected(folder)
        self._after = after

    async def __aenter__(self) -> Self:
        stream = await self._connection.__aenter__()
        with contextlib.suppress(*_BROKEN):  # reading will find it gone
            await stream.send(plain_json({"op": "subscribe", "after": self._after}).encode() + b"\n")
        self._lines = _Lines(stream)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.__aexit__(None, None, None)

    def __aiter__(self) -> RemoteFeed:
        return self

    async def __anext__(self) -> Entry | Delta:
        return decode_line(await self._lines.next())


class _Lines:
    def __init__(self, stream: SocketStream) -> None:
        self._buffer = BufferedByteReceiveStream(stream)

    async def next(self, limit: int = _LINE) -> bytes:
        try:
            return await self._buffer.receive_until(b"\n", limit)
        except (anyio.EndOfStream, anyio.IncompleteRead, *_BROKEN) as error:
            raise OwnerGone(
                "the process that held the session ended; `pinfold resume` takes it over"
            ) from error
        except anyio.DelimiterNotFound as error:
            raise BadEvent(f"a line of more than {limit >> 20} MiB") from error


@asynccontextmanager
async def _connected(folder: Path) -> AsyncGenerator[UNIXSocketStream]:
    with _short(folder) as path:
        try:
            stream = await anyio.connect_unix(path)
        except OSError as error:
            raise OwnerGone(f"nobody answers at {folder / _SOCKET}") from error
    async with stream:
        yield stream


@contextlib.contextmanager
def _short(folder: Path) -> Generator[str]:
    """The socket's path; a long one through a descriptor, since the kernel takes 108 bytes at most."""
    path = str(folder / _SOCKET)
    if len(os.fsencode(path)) < 104:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _serving(live: LiveSession, folder: Path) -> AsyncGenerator[None]:
    """Answer other processes meanwhile; at the end, finish what they asked for."""
    (folder / _SOCKET).unlink(missing_ok=True)
    with _short(folder) as path:
        listener = await anyio.create_unix_listener(path, mode=0o600)
    talks = _Talks(live)
    try:
        async with listener, background() as tasks:
            tasks.start_soon(listener.serve, talks.answer)
            yield
            await live.idle()
            (folder / _SOCKET).unlink(missing_ok=True)
            # Whoever came in between is served too; whoever comes now finds nobody, and takes over.
            await live.idle()
            live.log.end_subscriptions()
            await talks.over()
    finally:
        (folder / _SOCKET).unlink(missing_ok=True)


class _Talks:
    """Questions from other processes of the same user. Nothing they send can hurt the session."""

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self._open = 0
        self._moved = anyio.Event()

    async def answer(self, stream: SocketStream) -> None:
        self._open += 1
        try:
            async with stream:
                if _same_user(stream):
                    await self._one(stream)
        finally:
            self._open -= 1
            self._move()

    async def over(self) -> None:
        """Until they have all read what there is, or do not read on."""
        while self._open:
            with anyio.move_on_after(_FAREWELL_S) as patience:
                await self._moved.wait()
            if patience.cancelled_caught:
                return

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def _one(self, stream: SocketStream) -> None:
        with contextlib.suppress(OwnerGone, *_BROKEN):
            try:
                question = await _Lines(stream).next(_QUESTION)
                await _respond(self._live, stream, parse_json(question), self._move)
            except OwnerGone:
                return
            except PinfoldError as error:
                await stream.send(plain_json({"refused": str(error)}).encode() + b"\n")


async def _respond(
    live: LiveSession, stream: SocketStream, question: Json, moved: Callable[[], None]
) -> None:
    match question:
        case {"op": "hello"}:
            standing = live.standing_after(live.log.seq)
            await stream.send(plain_json(dataclasses.asdict(standing)).encode() + b"\n")
        case {"op": "submit", "command": command}:
            logger.debug("%s: another process submits %s", live.session, command)
            await live.submit(decode_command(command))
            await stream.send(b'{"ok":true}\n')
        case {"op": "subscribe", "after": int(after)} if 0 <= after <= live.log.seq:
            await _feed(live, stream, after, moved)
        case _:
            raise BadEvent("not a question of ours")


async def _feed(live: LiveSession, stream: SocketStream, after: int, moved: Callable[[], None]) -> None:
    async with live.subscribe(after) as feed, background() as tasks:

        async def until_hung_up() -> None:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await stream.receive(1)
            feed.close()

        tasks.start_soon(until_hung_up)
        async for item in feed:
            line = entry_line(item) if isinstance(item, Entry) else delta_line(item)
            await stream.send(line.encode() + b"\n")
            moved()


def _same_user(stream: SocketStream) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is 0700 and the socket 0600
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - no SQL here
    credentials = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] == os.getuid()
