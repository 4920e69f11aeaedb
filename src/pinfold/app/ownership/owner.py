"""Connect to a session from any process: through its owner's socket, or by becoming the owner."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias, TypeVar, cast, get_args

import anyio
import msgspec
from anyio.abc import SocketStream

from pinfold.app.errors import ConfigError, OwnerGone, SessionBusy
from pinfold.app.ownership.daemon_handoff import hand_over
from pinfold.app.ownership.ipc import (
    BROKEN,
    LineReader,
    answer_request,
    open_listener,
    open_stream,
    send_line,
    send_request,
)
from pinfold.app.paths import private_dir
from pinfold.app.session.live_session import Listing, LiveSession, load, open_session
from pinfold.app.session.options import Options, SessionStatus
from pinfold.app.storage.session_store import claim, holder_of
from pinfold.app.tasks import background
from pinfold.engine import CommandRefused
from pinfold.events import (
    BadEvent,
    BlobId,
    Command,
    Configure,
    Delta,
    Entry,
    Json,
    Redo,
    Rename,
    Rewind,
    SessionChanged,
    SessionId,
    Undo,
    convert,
    decode_command,
    decode_line,
    encode,
    entry_line,
    parse_json,
)
from pinfold.log import Blobs, Damage, Log, summarise
from pinfold.sandbox import PageQuery, VariablePage
from pinfold.sandbox.kernel.folders import remove_folder

T = TypeVar("T")
logger = logging.getLogger(__name__)
_SOCKET = "owner.sock"
_QUESTION = 64 << 20
_ANSWER_S = 10.0
_RESTORE_S = 300.0
"""How long a request that restores or saves state, or looks into the sandbox, may take."""
_TAKE_OVER_S = 10.0
"""How long an owner may take from locking the session to answering its socket; it restores variables first."""
_LOOK_AGAIN_S = 0.05
_FAREWELL_S = 5.0
"""How long clients may take to read one event while the owner shuts down."""


@asynccontextmanager
async def acquire(folder: Path, session: SessionId, options: Options) -> AsyncGenerator[LiveSession]:
    """Own the session and serve its socket. Raises SessionBusy if another process owns it."""
    private_dir(folder)
    claimed = claim(folder)
    if claimed is None:
        raise SessionBusy(f"{session} is in use by process {holder_of(folder)}; end that process first")
    begun = False
    try:
        async with open_session(folder, session, options) as live, _serve_clients(live, folder):
            begun = True
            yield live
    finally:
        if not begun and (summary := summarise(folder)) and not summary.events:
            remove_folder(folder)
        claimed.release()


def acquire_or_open(
    folder: Path | None, session: SessionId, options: Options
) -> AbstractAsyncContextManager[LiveSession]:
    """Own the session in `folder`; without a folder, open an ephemeral session. Raises SessionBusy."""
    return acquire(folder, session, options) if folder else open_session(None, session, options)


@asynccontextmanager
async def connect(folder: Path, session: SessionId, options: Options) -> AsyncGenerator[Link]:
    """Connect to the live owner, else let `pinfold up` own the session, else own it here. Raises SessionBusy."""
    give_up_at = anyio.current_time() + _TAKE_OVER_S
    handed, began = False, None
    while True:
        if holder_of(folder) is None and not handed:
            handed, began = True, await hand_over(folder, session, options)
        if holder_of(folder) is None:
            async with AsyncExitStack() as stack:
                try:
                    live = await stack.enter_async_context(acquire(folder, session, options))
                except SessionBusy:
                    continue  # another process was faster; connect to it
                yield live
            return
        remote = RemoteSession(session, folder, began)
        if await remote.answers():
            if began is None and (other := _difference(options, await remote.status())):
                raise ConfigError(
                    f"{session} is open with {other}; leave that out, or close the session first "
                    f"(pinfold up --close {session}, or end process {holder_of(folder)})"
                )
            yield remote
            return
        if anyio.current_time() > give_up_at:
            raise SessionBusy(
                f"{session} is held by process {holder_of(folder)}, which does not answer; "
                "end that process or try again later"
            )
        await anyio.sleep(_LOOK_AGAIN_S)


def _difference(options: Options, status: SessionStatus) -> str | None:
    """Return the requested option that differs from the live session, in words; None if none does."""
    if options.workspace is not None and str(options.workspace) != status.workspace:
        return "another workspace"
    if options.data is not None and {name: str(path) for name, path in options.data.items()} != status.data:
        return "other data"
    if options.mounts is not None and {str(mount.path): mount.writable for mount in options.mounts} != status.mounts:
        return "other mounts"
    return None


async def configure(folder: Path, session: SessionId, change: Rename | Configure) -> None:
    """Change the name, the checkpoints or the grants of a session, through its owner if it has one."""
    claimed = claim(folder)
    if claimed is None:
        await RemoteSession(session, folder).submit(change)
        return
    with contextlib.ExitStack() as ends:
        ends.callback(claimed.release)
        log = ends.enter_context(contextlib.closing(Log(folder, session)))
        if isinstance(change, Rename):
            changed = SessionChanged(title=change.title)
        else:
            _, state = load(log, Damage())
            changed = SessionChanged(title=state.title, checkpoints=change.checkpoints, revoked=change.revoke)
        await log.append(changed)


class RemoteSession:
    """A session that another process owns. Its requests raise PinfoldError with the owner's reason."""

    def __init__(self, session: SessionId, folder: Path, began: int | None = None) -> None:
        """`began`: the last event before the session was opened, if it was opened for this process."""
        self.session = session
        self._folder = folder
        self._began = began

    async def answers(self) -> bool:
        try:
            await self.status()
        except (OwnerGone, SessionBusy):
            return False
        return True

    async def status(self) -> SessionStatus:
        status = self._read(await self._ask({"op": "hello"}), SessionStatus)
        return status if self._began is None else msgspec.structs.replace(status, seq=self._began)

    async def submit(self, command: Command) -> None:
        limit_s = _RESTORE_S if isinstance(command, Undo | Rewind | Redo) else _ANSWER_S  # answered when done
        await self._ask({"op": "submit", "command": parse_json(encode(command))}, limit_s)

    async def restore(self, number: int) -> str:
        answer = await self._ask({"op": "restore", "number": number}, _RESTORE_S)
        return str(answer.get("words", ""))

    async def save(self) -> None:
        """Have the owner save its variables, as they are after the last finished cell."""
        await self._ask({"op": "save"}, _RESTORE_S)

    async def query(self, what: Listing) -> Json:
        return (await self._ask({"op": "look", "what": what}, _RESTORE_S)).get("seen")

    async def variable_page(self, name: str, query: PageQuery) -> VariablePage:
        question = {"op": "page", "name": name, "query": msgspec.to_builtins(query)}
        return self._read((await self._ask(question, _RESTORE_S)).get("page"), VariablePage)

    async def blob(self, id_: BlobId) -> bytes:
        return await anyio.to_thread.run_sync(Blobs(self._folder / "blobs").get, id_)

    @asynccontextmanager
    async def subscribe(self, after: int = 0) -> AsyncGenerator[_RemoteFeed]:
        async with open_stream(self._folder / _SOCKET) as stream:
            with contextlib.suppress(*BROKEN):  # reading will raise OwnerGone
                await send_line(stream, {"op": "subscribe", "after": after})
            yield _RemoteFeed(LineReader(stream))

    def _read(self, answer: Json, kind: type[T]) -> T:
        try:
            return convert(answer, kind)
        except msgspec.ValidationError as error:
            raise OwnerGone(f"the owner of {self.session} sent an invalid answer: {error}") from error

    async def _ask(self, question: Json, limit_s: float = _ANSWER_S) -> dict[str, Json]:
        path, who = self._folder / _SOCKET, f"the owner of {self.session}"
        answer = await send_request(path, question, who, limit_s)
        if isinstance(words := answer.get("refused"), str):
            raise CommandRefused(words)
        return answer


Link: TypeAlias = LiveSession | RemoteSession
"""A session as a front end sees it, in this process or another."""


class _RemoteFeed:
    """Events of a session that another process owns. Raises OwnerGone when that process ends.

    Not a generator, because cancelling a wait for the next event would end a generator for good.
    """

    def __init__(self, lines: LineReader) -> None:
        self._lines = lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry | Delta:
        return decode_line(await self._lines.next())


@asynccontextmanager
async def _serve_clients(live: LiveSession, folder: Path) -> AsyncGenerator[None]:
    """Serve other processes while the block runs; at the end, finish what they requested."""
    listener = await open_listener(folder / _SOCKET)
    connections = _Connections(live)
    try:
        async with listener, background() as tasks:
            tasks.start_soon(listener.serve, connections.answer)
            yield
            await live.idle()
            (folder / _SOCKET).unlink(missing_ok=True)
            # Serve clients accepted before the unlink; later ones become the owner.
            await live.idle()
            connections.is_leaving = True
            live.log.end_subscriptions()
            await connections.wait_for_readers()
    finally:
        (folder / _SOCKET).unlink(missing_ok=True)


class _Connections:
    """Connections of other processes of the same user. Nothing they send can break the session."""

    def __init__(self, live: LiveSession) -> None:
        self.is_leaving = False
        """True once requests are not answered any more; their clients then become the owner."""
        self._live = live
        self._open = 0
        self._moved = anyio.Event()

    async def answer(self, stream: SocketStream) -> None:
        self._open += 1
        try:
            await answer_request(stream, _QUESTION, partial(self._respond, stream))
        finally:
            self._open -= 1
            self._move()

    async def wait_for_readers(self) -> None:
        """Wait until all clients have read all events, or have stopped reading."""
        while self._open:
            with anyio.move_on_after(_FAREWELL_S) as patience:
                await self._moved.wait()
            if patience.cancelled_caught:
                return

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def _respond(self, stream: SocketStream, question: Json) -> None:
        if not self.is_leaving:
            await _respond(self._live, stream, question, self._move)


async def _respond(live: LiveSession, stream: SocketStream, question: Json, moved: Callable[[], None]) -> None:
    match question:
        case {"op": "hello"}:
            status = live.status_after(live.log.seq)
            await send_line(stream, msgspec.structs.asdict(status))
        case {"op": "submit", "command": command}:
            logger.debug("%s: another process submits %s", live.session, command)
            await live.submit(decode_command(command))
            await send_line(stream, {"ok": True})
        case {"op": "restore", "number": int(number)}:
            await send_line(stream, {"words": await live.restore(number)})
        case {"op": "save"}:
            await live.save()
            await send_line(stream, {"ok": True})
        case {"op": "look", "what": str(what)} if what in get_args(Listing):
            await send_line(stream, {"seen": await live.query(cast("Listing", what))})
        case {"op": "page", "name": str(name), "query": query}:
            try:
                asked = convert(query, PageQuery)
            except msgspec.ValidationError as error:
                raise BadEvent(f"not a query of ours: {error}") from error
            await send_line(stream, {"page": msgspec.to_builtins(await live.variable_page(name, asked))})
        case {"op": "subscribe", "after": int(after)} if 0 <= after <= live.log.seq:
            await _stream_events(live, stream, after, moved)
        case _:
            raise BadEvent("an unknown request")


async def _stream_events(live: LiveSession, stream: SocketStream, after: int, moved: Callable[[], None]) -> None:
    async with live.subscribe(after) as feed, background() as tasks:

        async def wait_for_hangup() -> None:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await stream.receive(1)
            feed.close()

        tasks.start_soon(wait_for_hangup)
        async for item in feed:
            line = entry_line(item) if isinstance(item, Entry) else encode(item)
            await stream.send(line.encode() + b"\n")
            moved()
