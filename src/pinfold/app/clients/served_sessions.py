"""The user's sessions, for clients of `pinfold serve`: find, open, fork and remove them by name, in any process."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from pinfold.app.clients.client_sessions import OpenTerms
from pinfold.app.clients.session_fork import fork
from pinfold.app.clients.submit import rewind
from pinfold.app.errors import SessionBusy
from pinfold.app.ownership.daemon import Daemon
from pinfold.app.ownership.owner import Link, RemoteSession
from pinfold.app.session.live_session import LiveSession
from pinfold.app.session.options import SessionStatus, new_session_options, resume_options
from pinfold.app.storage.session_store import SessionStore, holder_of, read_entries
from pinfold.app.tasks import background
from pinfold.events import (
    ActionFinished,
    ActionStarted,
    Entry,
    Mode,
    PinfoldError,
    Rewind,
    SessionId,
    TurnId,
    Undo,
    UserSpoke,
    new_session_id,
)

TURNS = 64
"""Maximum number of concurrent turns."""
MOST = 256
"""Maximum number of open sessions."""
PER_CLIENT = 128
"""Maximum number of open sessions that one client created."""
_OTHER_OWNER_S = 10.0
"""How long another owner may take to answer: it restores the variables first."""
_LOOK_AGAIN_S = 0.05
_OWN = ("model.name", "run.mode", "sandbox.provider")
"""Settings that a resumed session keeps, whatever the server's flags say."""


class ServedSessions:
    """Sessions owned by this process while `held` is active, except those that another process owns."""

    def __init__(self, terms: OpenTerms, daemon: Daemon | None = None, *, turns: int = TURNS, most: int = MOST) -> None:
        self.terms = terms
        self.store = SessionStore()
        self._daemon = daemon or Daemon()
        self._most = most
        self._turns = turns
        self._begun = 0
        self._clients: dict[SessionId, str] = {}

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[str]:
        """Allow sessions to be opened, also by the user's other commands. At the end all are closed and can be resumed.

        Yields a notice for the user. Raises SandboxUnavailable.
        """
        ended = anyio.Event()

        async def serve(*, task_status: TaskStatus[str]) -> None:
            try:
                await self._daemon.serve(task_status.started, beside=True)
            finally:
                ended.set()

        async with background() as tasks:
            notice: str = await tasks.start(serve)
            try:
                yield notice
            finally:
                self._daemon.stop()
                with anyio.CancelScope(shield=True):
                    await ended.wait()

    async def find(self, name: str) -> tuple[SessionId, Path]:
        """Raises NoSuchSession."""
        held = self._daemon.find(SessionId(name))
        if held and held.log.folder:
            return held.session, held.log.folder
        return await anyio.to_thread.run_sync(self.store.find, name)

    async def create(
        self,
        *,
        title: str = "",
        model: str | None = None,
        mode: Mode | None = None,
        workspace: Path | None = None,
        attended: bool = False,
        client: str = "",
    ) -> Link:
        """Create a session that counts towards this client's limit while it is open. Raises PinfoldError."""
        session = new_session_id()
        chosen = {"model.name": model, "run.mode": mode}
        flags = {**self.terms.flags, **{key: value for key, value in chosen.items() if value is not None}}
        place = workspace or self.terms.workspace
        options = await anyio.to_thread.run_sync(new_session_options, session, place, flags)
        options = replace(options, title=title or None, **self.terms.mounted)
        self._make_room(client)
        self._refuse_more(client)
        live = await self._daemon.own(self.store.folder_of(session), session, options)
        self._clients[session] = client
        if attended:
            live.attend()
        return live

    async def link(self, name: str, *, attended: bool = False) -> Link:
        """Connect to a session; resume it if no process owns it. Raises NoSuchSession, SessionBusy, ConfigError.

        With `attended`, its approvals wait for an answer from now on.
        """
        session, folder = await self.find(name)
        link = self._daemon.find(session) or await self._take(session, folder)
        if session in self._clients:  # the last used one comes last
            self._clients[session] = self._clients.pop(session)
        if attended and isinstance(link, LiveSession):
            link.attend()
        return link

    async def fork(self, name: str, *, title: str = "", to: int | None = None, attended: bool = True) -> Link:
        """Fork a session as it is now, or with the variables it had after cell `to`.

        Both work in the same folder, and its files stay as they are. Raises CommandRefused if the variables of that
        cell are not kept.
        """
        source, _ = await self.find(name)
        session, _ = await fork(self.store, source, title or None)
        link = await self.link(session, attended=attended)
        if to is not None:
            try:
                await self._go_back(link, to)
            except PinfoldError:
                await self.remove(session)
                raise
        return link

    async def _go_back(self, link: Link, to: int) -> None:
        later = _turn_after(self.entries(link.session), to)
        await rewind(link, Undo(to=to, what="variables"), (await status_now(link)).seq)
        if later:
            await rewind(link, Rewind(turn=later, what="chat"), (await status_now(link)).seq)

    async def remove(self, name: str) -> None:
        """Raises NoSuchSession, SessionBusy."""
        session, folder = await self.find(name)
        give_up_at = anyio.current_time() + _OTHER_OWNER_S
        while True:
            await self._daemon.close_session(session)
            try:
                return await anyio.to_thread.run_sync(self.store.remove, session)
            except SessionBusy:  # perhaps a listing of sessions, which holds each lock for a moment
                if holder_of(folder) not in (None, os.getpid()) or anyio.current_time() > give_up_at:
                    raise
            await anyio.sleep(_LOOK_AGAIN_S)

    def entries(self, name: str) -> list[Entry]:
        """Return all logged entries without opening the session."""
        session, folder = self.store.find(name)
        return read_entries(folder, session)

    @asynccontextmanager
    async def turn_slot(self) -> AsyncGenerator[None]:
        """Count a turn while it is followed to its end. Raises SessionBusy if too many run."""
        self.check_turns()
        self._begun += 1
        try:
            yield
        finally:
            self._begun -= 1

    def check_turns(self) -> None:
        """Raises SessionBusy if the maximum number of turns is running."""
        if max(self._begun, self._daemon.running) >= self._turns:
            raise SessionBusy(f"{self._turns} turns run at once already; try again when one has ended")

    async def _take(self, session: SessionId, folder: Path) -> Link:
        self._refuse_more()
        flags = {key: value for key, value in self.terms.flags.items() if key not in _OWN}
        give_up_at = anyio.current_time() + _OTHER_OWNER_S
        while True:
            try:
                options = await anyio.to_thread.run_sync(resume_options, session, folder, None, flags)
                return await self._daemon.own(folder, session, options)
            except SessionBusy:
                if live := self._daemon.find(session):  # opened meanwhile for another request
                    return live
                remote = RemoteSession(session, folder)
                if holder_of(folder) != os.getpid() and await remote.answers():
                    return remote
                if anyio.current_time() > give_up_at:
                    raise
            await anyio.sleep(_LOOK_AGAIN_S)

    def _make_room(self, client: str) -> None:
        """Close the client's least recently used idle sessions if it has too many; naming one resumes it."""
        held = [live for one, name in self._clients.items() if name == client and (live := self._daemon.find(one))]
        unused = (live for live in held if not (live.is_attended or live.is_busy or live.log.subscribers > 1))
        for live in islice(unused, max(0, len(held) + 1 - PER_CLIENT)):
            self._daemon.let_go(live.session)

    def _refuse_more(self, client: str = "") -> None:
        self._clients = {session: name for session, name in self._clients.items() if self._daemon.find(session)}
        own = sum(name == client for name in self._clients.values()) if client else 0
        if self._daemon.holds >= self._most:
            raise SessionBusy(f"{self._most} sessions are open already; close one first")
        if own >= PER_CLIENT:
            raise SessionBusy(f"this client has {own} sessions open already; close one first")


async def status_now(link: Link) -> SessionStatus:
    """Return the current status; its `seq` is always that of the last event."""
    return link.status_after(link.log.seq) if isinstance(link, LiveSession) else await link.status()


def _turn_after(entries: list[Entry], cell: int) -> TurnId | None:
    """The first turn that began after this cell had ended."""
    running, ended = None, cell == 0
    for entry in entries:
        match entry.event:
            case ActionStarted(id=id_, cell=number) if number == cell:
                running = id_
            case ActionFinished(id=id_) if id_ == running:
                ended = True
            case UserSpoke(turn=turn) if ended:
                return turn
            case _:
                pass
    return None
