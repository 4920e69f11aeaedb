"""The action a tool is called for, and the commands tools run in its session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from pinfold.app.session.egress import NETWORK
from pinfold.engine import OnCall, OnOutput, Stopped
from pinfold.events import Json
from pinfold.sandbox import CommandOutcome, FileRefused, NotSupported, Resumable, Session
from pinfold.tools import BadCall

if TYPE_CHECKING:
    from pinfold.net import Destination


class ActionContext(Struct, kw_only=True):
    """An action, while it is done."""

    on_call: OnCall
    on_output: OnOutput
    cell: int | None = None
    """Its number, if it counts as a cell."""
    nested: bool = field(default_factory=lambda: current_action() is not None)
    """A cell that runs has called for it."""
    cleared: frozenset[Destination] = frozenset()
    """What it was judged by, and may reach."""
    wanted: list[dict[str, Json]] = field(default_factory=list[dict[str, Json]])
    """Of the session: connections that are asked about."""
    held: Callable[[], AbstractContextManager[None]] = nullcontext
    """Its clock stands still meanwhile."""
    read_only: bool = False
    """Its programs may change no file."""
    stopped: Stopped = ""
    """One of them has to, or cannot be held to reading."""

    async def ask_to_connect(self, args: dict[str, Json]) -> str | None:
        """Have a connection judged, as a part of this action: why it may not be made, if so."""
        self.wanted.append(args)
        try:
            with self.held():
                performed = await self.on_call(NETWORK, args)
        finally:
            self.wanted.remove(args)
        return None if performed.outcome == "ok" else performed.error or performed.observation


_doing: ContextVar[ActionContext | None] = ContextVar("doing", default=None)


def current_action() -> ActionContext | None:
    return _doing.get()


class action_scope:  # noqa: N801 - used as `with action_scope(what)`
    """Makes it the `current_action` meanwhile. A class, not a generator: a cell may make thousands of calls a second."""

    def __init__(self, what: ActionContext) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._token = _doing.set(self._what)

    def __exit__(self, *_: object) -> None:
        _doing.reset(self._token)


class SessionCommands:
    """Programs that tools run inside. The first of an action that counts as a cell is that cell."""

    def __init__(self, started: Callable[[], Awaitable[Session]]) -> None:
        self._started = started

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        env: Mapping[str, str] | None = None,
    ) -> CommandOutcome:
        """Raises BadCall where this sandbox cannot."""
        session = await self._started()
        what = current_action()
        more: dict[str, Any] = {"on_output": what.on_output} if what else {}
        if what and what.read_only:
            if not session.capabilities.read_only_commands:
                what.stopped = "impossible"
                return CommandOutcome(status="error", read_only="impossible")
            more["read_only"] = True
        if what and what.cell is not None and isinstance(session, Resumable):
            more["cell"], what.cell = what.cell, None
        try:
            ran = await session.command(argv, timeout_s=timeout_s, stdin=stdin, workdir=workdir, env=env, **more)
        except (NotSupported, FileRefused) as error:
            raise BadCall(str(error)) from error
        if what and ran.read_only in ("refused", "impossible"):
            what.stopped = ran.read_only
        return ran
