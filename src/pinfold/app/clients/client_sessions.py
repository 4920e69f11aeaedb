"""Sessions for clients of a Pinfold server: opened on request, kept live, closed when idle or their client leaves."""

from __future__ import annotations

import itertools
import logging
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.clients.client_session import ClientSession
from pinfold.app.clients.session_fork import fork
from pinfold.app.errors import ConfigError, NoSuchSession, SessionBusy
from pinfold.app.ownership.owner import acquire_or_open
from pinfold.app.paths import forget_scratch, private_dir, read_private, state_dir, write_whole
from pinfold.app.session.approvals import answer_approvals
from pinfold.app.session.options import Options, new_session_options, resume_options
from pinfold.app.storage.session_store import SessionStore
from pinfold.app.tasks import background
from pinfold.engine import CommandRefused
from pinfold.events import Interrupt, PinfoldError, SessionId, new_session_id
from pinfold.log import summarise

logger = logging.getLogger(__name__)
MOST = 64
"""Maximum number of open sessions."""
IDLE_S = 30 * 60.0
"""A session unused for this long is closed; unless it is ephemeral, it can be resumed."""
ANYONE = "*"
"""Client name of a session that any client may use if it knows the id; no list shows it."""
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/=]{16,512}")
_STOP_S = 15.0
"""How long all sessions may take to close."""


class OpenTerms(Struct, frozen=True, kw_only=True):
    """How sessions are opened."""

    workspace: Path | None = None
    flags: Mapping[str, object] = {}
    """Settings by configuration key."""
    mounted: Mapping[str, Any] = {}
    """Options for the parts of the host that sessions may see."""
    ephemeral: bool = False


class ClientSessions:
    """All sessions of a server. Use as an async context manager; leaving it closes every session."""

    def __init__(self, terms: OpenTerms) -> None:
        self._terms = terms
        self._store = None if terms.ephemeral else SessionStore()
        self._held: dict[SessionId, ClientSession] = {}
        self._opening = anyio.Lock()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._ended = False

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(background())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await self.end()
        return await self._stack.__aexit__(kind, error, trace)

    async def end(self) -> None:
        """Close every session, and open no more."""
        self._ended = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_S):
            for one in tuple(self._held.values()):
                one.let_go.set()
            for one in tuple(self._held.values()):
                await one.gone.wait()

    def list_for(self, client: str) -> list[ClientSession]:
        """Return the client's own sessions and those that every client may use."""
        return [one for one in self._held.values() if one.client in ("", client)]

    def find(self, name: str, client: str) -> ClientSession | None:
        """Return an open session by id or title."""
        own = (one for one in self.list_for(client) if name in (one.id, one.title))
        anyones = (one for one in self._held.values() if one.client == ANYONE and name == one.id)
        return next(itertools.chain(own, anyones), None)

    async def open(self, title: str, client: str = "") -> ClientSession:
        """Open a new session. Raises PinfoldError."""
        session = new_session_id()
        options = new_session_options(session, self._terms.workspace, self._terms.flags)
        return await self._open(session, options, title, client)

    async def resume(self, name: str, title: str, client: str = "") -> ClientSession | None:
        """Reopen a closed session by id or title; None if there is none. Raises SessionBusy, ConfigError."""
        if self._store is None:
            return None
        try:
            session, folder = self._store.find(name)
        except NoSuchSession as missing:
            if missing.several:
                raise
            return None
        # The name may be that of a session of another folder. Refuse it: this server does not offer that folder's data.
        options = resume_options(session, folder, None, self._terms.flags)
        here = new_session_options(session, self._terms.workspace, self._terms.flags)
        known = summarise(folder)
        if known is None or Path(known.workspace) != here.workspace:
            raise ConfigError(f"{name!r} is a session of another folder; choose another name")
        return await self._open(session, options, title, client)

    async def fork(self, client_session: ClientSession, title: str) -> ClientSession:
        """Open a second session with the same conversation and variables, in the same workspace."""
        if self._store is None:
            raise CommandRefused("an ephemeral session cannot be forked: nothing of it is kept")
        if client_session.busy:
            raise CommandRefused("something runs in this session; wait for its end")
        session, _ = await fork(self._store, client_session.id, title)
        options = resume_options(session, self._store.folder_of(session), None, self._terms.flags)
        return await self._open(session, options, title, client_session.client)

    async def close(self, client_session: ClientSession) -> None:
        client_session.let_go.set()
        await client_session.gone.wait()

    async def forget(self, client: str) -> None:
        """Close the client's own sessions."""
        for one in [one for one in self._held.values() if client and one.client == client]:
            await self.close(one)

    async def _open(self, session: SessionId, options: Options, title: str, client: str) -> ClientSession:
        if self._tasks is None or self._ended:
            raise SessionBusy("the server is ending")
        async with self._opening:
            if len(self._held) >= MOST:
                raise SessionBusy(f"{MOST} sessions are open already; close one first")
            toolbox = replace(options.toolbox, carries=True)
            options = replace(options, title=title, toolbox=toolbox, **self._terms.mounted)
            return await self._tasks.start(self._serve_session, session, options, title, client)

    async def _serve_session(
        self, session: SessionId, options: Options, title: str, client: str, *, task_status: TaskStatus[ClientSession]
    ) -> None:
        client_session: ClientSession | None = None
        folder = self._store.folder_of(session) if self._store else None
        try:
            async with acquire_or_open(folder, session, options) as live, background() as tasks:
                client_session = ClientSession(live, tasks, title=title, client=client)
                tasks.start_soon(answer_approvals, live, client_session.find_approver)
                self._held[session] = client_session
                task_status.started(client_session)
                await self._wait_until_unused(client_session)
                with suppress(CommandRefused):
                    await live.submit(Interrupt())
        except PinfoldError:
            if client_session is None:
                raise  # `start` raises it in the task that asked
            logger.exception("%s ended", session)
        finally:
            self._held.pop(session, None)
            if folder is None:
                forget_scratch(session)
            if client_session:
                client_session.gone.set()

    async def _wait_until_unused(self, client_session: ClientSession) -> None:
        while not client_session.let_go.is_set():
            idle_s = monotonic() - client_session.used
            if idle_s >= IDLE_S and not client_session.busy:
                return
            with anyio.move_on_after(max(IDLE_S - idle_s, 1.0)):
                await client_session.let_go.wait()


def server_token(variable: str | None, name: str) -> tuple[str, str]:
    """Return the token that clients of the server `name` must send, and where it is stored. Created if missing."""
    if variable is not None:
        token = os.environ.get(variable, "")
        if not _TOKEN.fullmatch(token):
            raise ConfigError(f"{variable} holds no token: at least 16 letters, digits, - . _ ~ + / or =")
        return token, f"the environment variable {variable}"
    path = private_dir(state_dir()) / f"{name}.token"
    return read_or_make_token(path), str(path)


def read_or_make_token(path: Path) -> str:
    """Return the token in a file that only the user can read; create it if missing."""
    token = (read_private(path) or b"").decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(token):
        token = secrets.token_urlsafe(32)
        write_whole(path, f"{token}\n".encode())
    return token
