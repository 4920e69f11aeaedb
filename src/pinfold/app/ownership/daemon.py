"""`pinfold up`: a process that keeps a sandbox launcher warm for all commands, and owns sessions on request.

`pinfold serve` does the same for its clients; its address is recorded here.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, time

import anyio
import msgspec
from anyio.abc import SocketStream, TaskGroup, TaskStatus
from msgspec import Struct, field

from pinfold.app.config.layers import load_config
from pinfold.app.errors import ConfigError, OwnerGone, SessionBusy
from pinfold.app.ownership.daemon_handoff import daemon_socket, decode_options
from pinfold.app.ownership.ipc import answer_request, open_listener, send_line, send_request
from pinfold.app.ownership.owner import acquire
from pinfold.app.paths import private_dir, read_private, state_dir, up_dir, write_private
from pinfold.app.session.live_session import LiveSession
from pinfold.app.session.options import Options
from pinfold.app.storage.session_store import claim, end_holder, holder_of
from pinfold.app.tasks import background
from pinfold.engine import CommandRefused
from pinfold.events import BadEvent, Interrupt, Json, SessionId, decode_json
from pinfold.sandbox import SandboxUnavailable, provider_named
from pinfold.sandbox.providers.launcher import Warmable

logger = logging.getLogger(__name__)
IDLE_S = 30 * 60.0
"""A session unused for this long is closed, with its live variables."""
POOL = 2
_QUESTION = 1 << 20
_STOP: dict[str, Json] = {"op": "stop"}
_ANSWER_S = 10.0
_LOOK_AGAIN_S = 0.02
_STOP_S = 10.0
"""How long sessions may take to close before the process exits anyway."""
_COLLECT_AFTER = (700, 10, 10)
"""Python's own thresholds of garbage collection."""


class _Held(Struct, frozen=True):
    live: LiveSession
    let_go: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)


class Daemon:
    """The launcher and the sessions that `pinfold up` or `pinfold serve` holds."""

    def __init__(self, *, idle_s: float = IDLE_S, pool: int = POOL) -> None:
        self._idle_s = idle_s
        self._pool = pool
        self._began = monotonic()
        self._over = anyio.Event()
        self._warm: str | None = None
        self._held: dict[SessionId, _Held] = {}
        self._sessions: TaskGroup | None = None

    def stop(self) -> None:
        self._over.set()

    async def serve(self, on_ready: Callable[[str], None], *, beside: bool = False) -> None:
        """Run until `stop`, then clean up. `on_ready` gets a message for the user. Raises SessionBusy if another runs.

        `beside`: if another runs, use its launcher; other commands keep finding that process.
        """
        folder = private_dir(private_dir(state_dir()) / up_dir().name)
        claimed = claim(folder)
        if claimed is None and not beside:
            raise SessionBusy(f"pinfold up is already running, as process {holder_of(folder)}; see pinfold up --status")
        if claimed is None:
            await self._hold_sessions(lambda: on_ready(f"pinfold up is running too, as process {holder_of(folder)}"))
            return
        try:
            for stale in folder.glob("*.sock"):
                stale.unlink(missing_ok=True)
            async with AsyncExitStack() as stack:
                warmth = await stack.enter_async_context(background())
                notice = await self._start_launcher(warmth)
                listener = await stack.enter_async_context(await open_listener(daemon_socket()))
                talks = await stack.enter_async_context(background())
                talks.start_soon(listener.serve, self._answer)
                await self._hold_sessions(lambda: on_ready(notice or f"{self._warm} is warm"))
        finally:
            daemon_socket().unlink(missing_ok=True)
            claimed.release()

    async def _hold_sessions(self, on_ready: Callable[[], None]) -> None:
        # Closed sessions leave reference cycles. With the thresholds of a short command, about 1,000 sessions would wait
        # for the next full collection.
        gc.set_threshold(*_COLLECT_AFTER)
        async with background() as self._sessions:
            on_ready()
            await self._over.wait()
            daemon_socket().unlink(missing_ok=True)
            held = tuple(self._held.values())
            for one in held:
                one.let_go.set()
            with anyio.move_on_after(_STOP_S):
                for one in held:
                    await one.gone.wait()

    @property
    def holds(self) -> int:
        """Number of open sessions."""
        return len(self._held)

    @property
    def running(self) -> int:
        """Number of sessions in which a turn or cell runs."""
        return sum(held.live.is_busy for held in self._held.values())

    def find(self, session: SessionId) -> LiveSession | None:
        """Return an open session that is not about to close."""
        held = self._held.get(session)
        return held.live if held and not held.let_go.is_set() else None

    async def own(self, folder: Path, session: SessionId, options: Options) -> LiveSession:
        """Open a session and hold it until it is unused. Raises SessionBusy and the errors of opening."""
        if self._sessions is None or self._over.is_set():
            raise SessionBusy("pinfold up is shutting down")
        return await self._sessions.start(self._serve_session, folder, session, options)

    def let_go(self, session: SessionId) -> _Held | None:
        """Begin to close a session, interrupting what runs in it. None if it is not open."""
        held = self._held.get(session)
        if held:
            held.let_go.set()
        return held

    async def close_session(self, session: SessionId) -> bool:
        """Close a session, interrupting what runs in it; False if it is not open."""
        if held := self.let_go(session):
            await held.gone.wait()
        return held is not None

    async def _start_launcher(self, tasks: TaskGroup) -> str | None:
        """Keep the configured provider's launcher warm; if that is impossible, return a notice."""
        name = load_config().config.sandbox.provider
        provider = provider_named("namespaces" if name == "auto" else name)
        if not isinstance(provider, Warmable):
            return f"{provider.name} cannot be kept warm; only sessions are kept"
        try:
            await tasks.start(_run_launcher, provider, self._pool)
        except SandboxUnavailable as error:
            if name != "auto":
                raise
            return f"nothing can be kept warm ({error}); only sessions are kept"
        self._warm = provider.name
        return None

    # Requests of other processes

    async def _answer(self, stream: SocketStream) -> None:
        async def respond(question: Json) -> None:
            await send_line(stream, await self._response(question))
            if question == _STOP:
                self.stop()

        await answer_request(stream, _QUESTION, respond)

    async def _response(self, question: Json) -> Json:
        match question:
            case {"op": "own", "session": str(name), "folder": str(folder), "options": options}:
                place = Path(folder)
                if not place.is_absolute() or place.name != name:
                    raise BadEvent(f"{folder} is not the folder of {name}")
                try:
                    given = decode_options(options)
                except msgspec.ValidationError as error:
                    why = f"pinfold up runs another version; end it with pinfold up --stop: {error}"
                    raise ConfigError(why) from error
                return {"began": (await self.own(place, SessionId(name), given)).began}
            case {"op": "status"}:
                return {
                    "pid": os.getpid(),
                    "warm": self._warm,
                    "sessions": list(self._held),
                    "up_s": round(monotonic() - self._began, 1),
                    "idle_s": self._idle_s,
                }
            case {"op": "close", "session": str(name)}:
                if not await self.close_session(SessionId(name)):
                    raise CommandRefused(f"pinfold up does not hold {name}")
                return {"ok": True}
            case {"op": "stop"}:  # `_answer` stops the daemon after the reply
                return {"ok": True}
            case _:
                raise BadEvent("an unknown request")

    async def _serve_session(
        self, folder: Path, session: SessionId, options: Options, *, task_status: TaskStatus[LiveSession]
    ) -> None:
        held: _Held | None = None
        try:
            async with acquire(folder, session, options) as live:
                self._held[session] = held = _Held(live)
                task_status.started(live)
                await self._wait_until_unused(live, held.let_go)
        except Exception:
            # Before it is open, the caller gets the error. After that, one broken session must not end the others.
            if held is None:
                raise
            logger.exception("%s ended", session)
        finally:
            if held:
                del self._held[session]
                held.gone.set()

    async def _wait_until_unused(self, live: LiveSession, let_go: anyio.Event) -> None:
        seen = -1
        while live.log.seq != seen or await live.is_wanted():
            seen = live.log.seq
            with anyio.move_on_after(self._idle_s):
                await let_go.wait()
                with suppress(CommandRefused):
                    await live.submit(Interrupt())
                return
        let_go.set()  # so that `find` skips it and the next request opens it again


async def _run_launcher(provider: Warmable, pool: int, *, task_status: TaskStatus[None]) -> None:
    """Keep a launcher warm, and report when it first is. The provider replaces a lost one if it can."""
    warm = False

    async def ready() -> None:
        nonlocal warm
        if not warm:
            task_status.started()
        warm = True

    try:
        await provider.keep_warm(up_dir(), pool, ready)
    except SandboxUnavailable as error:
        if not warm:
            raise
        logger.warning("the launcher could not be replaced: %s", error)


async def ask_daemon(question: dict[str, Json]) -> dict[str, Json] | None:
    """Ask a running `pinfold up`; None if none runs."""
    try:
        answer = await send_request(daemon_socket(), question, "pinfold up", _ANSWER_S)
    except OwnerGone:
        return None
    if isinstance(words := answer.get("refused"), str):
        raise ConfigError(words)
    return answer


async def stop_daemon() -> bool:
    """End a running `pinfold up` and wait for its end; False if none runs."""
    if await ask_daemon(_STOP) is None:
        return False
    with anyio.move_on_after(2 * _STOP_S) as patience:
        while holder_of(up_dir()) is not None:
            await anyio.sleep(_LOOK_AGAIN_S)
    if patience.cancelled_caught:
        raise SessionBusy(f"pinfold up, process {holder_of(up_dir())}, did not end in time; try again later")
    return True


# The record by which other commands find this user's `pinfold serve`; if several run, the first one.

_ENDING_S = 30.0
"""How long `pinfold serve` may take to close its sessions."""


class RunningServer(Struct, frozen=True, kw_only=True):
    pid: int
    url: str
    token_file: str
    began: float


def _server_folder() -> Path:
    return private_dir(private_dir(state_dir()) / "serve")


@contextmanager
def record_server(url: str, token_file: Path) -> Generator[None]:
    """Record the server while the block runs, unless another is recorded."""
    claimed = claim(_server_folder())
    if claimed is None:
        yield
        return
    record = RunningServer(pid=os.getpid(), url=url, token_file=str(token_file), began=time())
    write_private(_server_folder() / "server.json", msgspec.json.encode(record))
    try:
        yield
    finally:
        (_server_folder() / "server.json").unlink(missing_ok=True)
        claimed.release()


def running_server() -> RunningServer | None:
    if holder_of(_server_folder()) is None:
        return None
    data = read_private(_server_folder() / "server.json")
    return decode_json(data, RunningServer) if data else None


def stop_server() -> bool:
    """End the recorded server and wait until it has closed its sessions; False if none runs."""
    return end_holder(_server_folder(), "pinfold serve", _ENDING_S)
