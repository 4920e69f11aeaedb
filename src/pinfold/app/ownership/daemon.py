"""`pinfold up`: a process that keeps a launcher warm for everyone, and owns the sessions it is asked to own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic

import anyio
import msgspec
from anyio.abc import SocketStream, TaskGroup, TaskStatus

from pinfold.app.config.layers import load_config
from pinfold.app.errors import ConfigError, OwnerGone, SessionBusy
from pinfold.app.ownership.daemon_handoff import daemon_socket, decode_options
from pinfold.app.ownership.ipc import BROKEN, LineReader, is_same_user_stream, open_listener, send_line, send_request
from pinfold.app.ownership.owner import acquire
from pinfold.app.paths import private_dir, state_dir, up_dir
from pinfold.app.session.live_session import LiveSession
from pinfold.app.session.options import Options
from pinfold.app.storage.lock import claim, holder_of
from pinfold.app.tasks import background
from pinfold.engine import CommandRefused
from pinfold.events import BadEvent, Interrupt, Json, PinfoldError, SessionId, parse_json
from pinfold.sandbox import SandboxUnavailable, provider_named
from pinfold.sandbox.providers.launcher import Warmable

logger = logging.getLogger(__name__)
IDLE_S = 30 * 60.0
"""A session unused for this long is closed; its variables go with it."""
POOL = 2
_QUESTION = 1 << 20
_STOP: dict[str, Json] = {"op": "stop"}
_ANSWER_S = 10.0
_LOOK_AGAIN_S = 0.02
_STOP_S = 10.0
"""How long sessions may take to end; then they are left to end with us."""


class Daemon:
    """Everything `pinfold up` holds."""

    def __init__(self, *, idle_s: float = IDLE_S, pool: int = POOL) -> None:
        self._idle_s = idle_s
        self._pool = pool
        self._began = monotonic()
        self._over = anyio.Event()
        self._warm: str | None = None
        self._held: dict[SessionId, anyio.Event] = {}
        """Each with the word to let go of it."""
        self._left = anyio.Event()

    def stop(self) -> None:
        self._over.set()

    async def serve(self, on_ready: Callable[[str], None]) -> None:
        """Until `stop`, leaving nothing. `on_ready` gets what to tell the user. Raises SessionBusy if another runs."""
        folder = private_dir(private_dir(state_dir()) / up_dir().name)
        claimed = claim(folder)
        if claimed is None:
            raise SessionBusy(f"pinfold up runs already, as process {holder_of(folder)}; see pinfold up --status")
        try:
            for stale in folder.glob("*.sock"):
                stale.unlink(missing_ok=True)
            await self._serve(on_ready)
        finally:
            daemon_socket().unlink(missing_ok=True)
            claimed.release()

    async def _serve(self, on_ready: Callable[[str], None]) -> None:
        async with AsyncExitStack() as stack:
            warmth = await stack.enter_async_context(background())
            notice = await self._start_launcher(warmth)
            sessions = await stack.enter_async_context(background())
            listener = await stack.enter_async_context(await open_listener(daemon_socket()))
            talks = await stack.enter_async_context(background())

            async def answer(stream: SocketStream) -> None:
                await self._answer(stream, sessions)

            talks.start_soon(listener.serve, answer)
            on_ready(notice or f"{self._warm} is warm")
            await self._over.wait()
            daemon_socket().unlink(missing_ok=True)
            for let_go in self._held.values():
                let_go.set()
            with anyio.move_on_after(_STOP_S):
                while self._held:
                    await self._left.wait()

    async def _start_launcher(self, tasks: TaskGroup) -> str | None:
        """Keep warm what the configuration names, where that can be; otherwise the words to say so."""
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

    # --- what others ask

    async def _answer(self, stream: SocketStream, sessions: TaskGroup) -> None:
        async with stream:
            if not is_same_user_stream(stream):
                return
            with suppress(OwnerGone, *BROKEN):
                try:
                    question = parse_json(await LineReader(stream).next(_QUESTION))
                    await send_line(stream, await self._response(question, sessions))
                    if question == _STOP:
                        self.stop()
                except OwnerGone:
                    return
                except PinfoldError as error:
                    await send_line(stream, {"refused": str(error), "code": error.exit_code})

    async def _response(self, question: Json, sessions: TaskGroup) -> Json:
        match question:
            case {"op": "own", "session": str(name), "folder": str(folder), "options": options}:
                place = Path(folder)
                if not place.is_absolute() or place.name != name:
                    raise BadEvent(f"{folder} is not the folder of {name}")
                try:
                    given = decode_options(options)
                except msgspec.ValidationError as error:
                    why = f"pinfold up is of another version, end it with pinfold up --stop: {error}"
                    raise ConfigError(why) from error
                if self._over.is_set():
                    raise SessionBusy("pinfold up is ending")
                return {"began": await sessions.start(self._serve_session, place, SessionId(name), given)}
            case {"op": "status"}:
                return {
                    "pid": os.getpid(),
                    "warm": self._warm,
                    "sessions": list(self._held),
                    "up_s": round(monotonic() - self._began, 1),
                    "idle_s": self._idle_s,
                }
            case {"op": "close", "session": str(name)} if name in self._held:
                self._held[SessionId(name)].set()
                return {"ok": True}
            case {"op": "close", "session": str(name)}:
                raise CommandRefused(f"pinfold up does not hold {name}")
            case {"op": "stop"}:  # once it was answered
                return {"ok": True}
            case _:
                raise BadEvent("not a question of ours")

    async def _serve_session(
        self, folder: Path, session: SessionId, options: Options, *, task_status: TaskStatus[int]
    ) -> None:
        opened = False
        try:
            async with acquire(folder, session, options) as live:
                self._held[session] = let_go = anyio.Event()
                opened = True
                task_status.started(live.began)
                await self._wait_until_unused(live, let_go)
        except Exception:
            # Who asked is told; once it is open, one broken session must not end the others.
            if not opened:
                raise
            logger.exception("%s ended", session)
        finally:
            self._held.pop(session, None)
            self._left.set()
            self._left = anyio.Event()

    async def _wait_until_unused(self, live: LiveSession, let_go: anyio.Event) -> None:
        seen = -1
        while live.log.seq != seen or await live.is_wanted():
            seen = live.log.seq
            with anyio.move_on_after(self._idle_s):
                await let_go.wait()
                with suppress(CommandRefused):
                    await live.submit(Interrupt())
                return


async def _run_launcher(provider: Warmable, pool: int, *, task_status: TaskStatus[None]) -> None:
    """Says when it is warm for the first time; the provider makes later losses good itself, or goes without."""
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
    """What a running `pinfold up` answers; None if none runs."""
    try:
        answer = await send_request(daemon_socket(), question, "pinfold up", _ANSWER_S)
    except OwnerGone:
        return None
    if isinstance(words := answer.get("refused"), str):
        raise ConfigError(words)
    return answer


async def stop_daemon() -> bool:
    """End a running `pinfold up` and wait until it has; False if none ran."""
    if await ask_daemon(_STOP) is None:
        return False
    with anyio.move_on_after(2 * _STOP_S) as patience:
        while holder_of(up_dir()) is not None:  # noqa: ASYNC110 - a lock of another process cannot be awaited
            await anyio.sleep(_LOOK_AGAIN_S)
    if patience.cancelled_caught:
        raise SessionBusy(f"pinfold up, process {holder_of(up_dir())}, does not end; try again later")
    return True
