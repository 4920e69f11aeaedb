"""An action while it is done, and its way out: the proxy code goes through, and `fetch`. Who is asked, what was sent to whom.

Nothing here decides: a new destination becomes an action like any other, and policy and user say whether it may be reached.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
from msgspec import Struct, field

from pinfold.app.errors import ConfigError
from pinfold.engine import OnCall, OnOutput, Performed, Stopped
from pinfold.events import Json, Sent
from pinfold.sandbox.kernel.folders import folder

if TYPE_CHECKING:
    from pathlib import Path

    from pinfold.net import AllowList, Destination, Egress, Gate, How, Proxy

logger = logging.getLogger(__name__)
FLOW_HOSTS, FLOW_TOOLS = "flows.hosts", "flows.tools"
"""Flags by which flows are typed; no keys of the configuration."""
NETWORK = "network"
"""What code does that opens a connection, as an action. No model calls it by name."""
_TURNS = 20
"""Of the event loop, for what is cut to say what it moved."""
NO_ACTION = "{} is not reached from the background: only a cell or a command that runs can be asked about"


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
    moved: dict[Destination, list[int]] = field(default_factory=dict["Destination", "list[int]"])
    """Bytes out and back."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Destinations it did not get to, and why."""

    async def ask_to_connect(self, to: Destination, how: How) -> str | None:
        """Have a connection judged, as a part of this action: why it may not be made, if so."""
        performed = await self.call_part(NETWORK, {"host": to.host, "port": to.port, "how": how}, self.wanted)
        return None if performed.outcome == "ok" else performed.error or performed.observation

    async def call_part(self, tool: str, args: dict[str, Json], wanted: list[dict[str, Json]]) -> Performed:
        """Carry a part of this action to its end, its clock standing still. It is in `wanted` meanwhile."""
        wanted.append(args)
        try:
            with self.held():
                return await self.on_call(tool, args)
        finally:
            wanted.remove(args)

    @property
    def sent(self) -> tuple[Sent, ...]:
        return tuple(Sent(to=str(to), out=out, back=back) for to, (out, back) in self.moved.items())


_doing: ContextVar[ActionContext | None] = ContextVar("doing", default=None)


def current_action() -> ActionContext | None:
    return _doing.get()


@contextmanager
def action_scope(what: ActionContext) -> Generator[None]:
    """It is the `current_action` meanwhile."""
    token = _doing.set(what)
    try:
        yield
    finally:
        _doing.reset(token)


class Flows(Struct, frozen=True, kw_only=True, dict=True):
    """Where a session may send although it has read private data and text of others: what the user typed for this run.

    Words in a file are no flow: a file is written once and forgotten.
    """

    hosts: tuple[str, ...] = ()
    """As in `network.allow`."""
    tools: tuple[str, ...] = ()
    """Names or patterns."""

    def allows(self, tool: str, to: Destination | None) -> bool:
        """Send by this tool, to this destination where it has one."""
        if to is not None and self.hosts and self._listed.lists(to):
            return True
        return any(fnmatchcase(tool, pattern) for pattern in self.tools)

    @cached_property
    def _listed(self) -> AllowList:
        from pinfold.net import AllowList, BadPattern

        named: list[str] = []
        for name in self.hosts:
            with suppress(BadPattern):  # the name of a tool
                named += AllowList((name,)).patterns
        return AllowList(named)


class SessionEgress:
    """Nothing is loaded before code or a tool connects."""

    def __init__(self, allowed: Iterable[str], **how: Any) -> None:
        """`how` is for the Egress: who resolves names, which addresses are out of bounds. Raises ConfigError."""
        self._allowed = tuple(allowed)
        self._how = how
        self._running: ActionContext | None = None
        self._between: dict[Destination, list[int]] = {}
        """Moved while nothing ran; told with what runs next."""
        self.wanted: list[dict[str, Json]] = []
        """Connections that wait for a verdict: nothing else may be asked about under that name."""
        self._proxy: Proxy | None = None
        self._wanted, self._is_open = anyio.Event(), anyio.Event()
        self._socket: Path | None = None
        if self._allowed:
            _ = self.listed

    @cached_property
    def listed(self) -> AllowList:
        from pinfold.net import AllowList, BadPattern

        try:
            return AllowList(self._allowed)
        except BadPattern as error:
            raise ConfigError(f"network.allow: {error}") from error

    def egress(self, gate: Gate) -> Egress:
        from pinfold.net import Egress

        return Egress(self.listed, gate, unlisted="ask", **self._how)

    async def serve(self) -> None:
        """From when it is wanted, for as long as the session lives."""
        await self._wanted.wait()
        from pinfold.net import Proxy

        self._proxy = Proxy(self.egress(self._gate), on_traffic=self._on_traffic)
        try:
            with folder("egress") as place:
                async with self._proxy.listening(place / "proxy"):
                    self._socket = place / "proxy"
                    self._is_open.set()
                    await anyio.sleep_forever()
        except OSError as error:
            logger.warning("code has no way out: %s", error)
            self._is_open.set()
        finally:
            self._socket = None

    async def socket(self) -> Path | None:
        """Where code asks for connections; None if that could not be had."""
        self._wanted.set()
        await self._is_open.wait()
        return self._socket

    @property
    def is_running(self) -> bool:
        """A cell or a command; what it calls for is a part of it."""
        return self._running is not None

    @asynccontextmanager
    async def track_action(self, what: ActionContext, *, cut: Callable[[], bool]) -> AsyncGenerator[None]:
        """A cell or a command runs; a command that a cell calls for is a part of the cell.

        `cut`, asked at its end, however it ends: whether nothing that is connected may outlive it.
        """
        if self._running is not None:
            yield
            return
        self._running, what.moved, self._between = what, self._between, {}
        told = False
        try:
            yield
            told = True
        finally:
            if self._proxy is not None:
                self._proxy.report()
            self._running = None  # before the cut: who connects from here on is refused
            if cut():
                with anyio.CancelScope(shield=True):
                    await self.disconnect_all()
            if told:
                _add_all(what.moved, self._between)
                self._between = {}
            else:
                _add_all(self._between, what.moved)

    async def disconnect_all(self) -> None:
        """End what is connected, and have it counted."""
        if self._proxy is None:
            return
        self._proxy.close_all()
        for _ in range(_TURNS):
            if not self._proxy.live:
                break
            await anyio.lowlevel.checkpoint()

    async def _gate(self, destination: Destination, how: How) -> str | None:
        if self._running is None:
            return NO_ACTION.format(destination)
        # Each connection anew: the one before may have brought in what makes this one dangerous.
        running = self._running
        if reason := await running.ask_to_connect(destination, how):
            running.refused[str(destination)] = reason
        return reason

    def _on_traffic(self, to: Destination, sent: int, received: int) -> None:
        moved = self._running.moved if self._running else self._between
        _add_all(moved, {to: [sent, received]})


def _add_all(moved: dict[Destination, list[int]], more: dict[Destination, list[int]]) -> None:
    for to, (out, back) in more.items():
        both = moved.setdefault(to, [0, 0])
        both[0] += out
        both[1] += back
