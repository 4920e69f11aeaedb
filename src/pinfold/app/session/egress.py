"""The context of a running action, and its network access: the proxy for code, the approvals, and what was sent where.

Nothing is decided here: a new destination becomes an action like any other, and policy and user judge it.
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
"""Flags with which the user types flows; they are not keys of the configuration."""
QUESTION = "ask_user"
NETWORK = "network"
"""The action of code that opens a connection. The model cannot call it by name."""
_TURNS = 20
"""Turns of the event loop in which closed connections can report their traffic."""
NO_ACTION = "{} was refused: code in the background cannot connect; connect from a running cell or command"


class ActionContext(Struct, kw_only=True):
    """A running action."""

    on_call: OnCall
    on_output: OnOutput
    cell: int | None = None
    """Its number, if it counts as a cell."""
    nested: bool = field(default_factory=lambda: current_action() is not None)
    """True if a running cell has called it."""
    cleared: frozenset[Destination] = frozenset()
    """The destination that its own verdict allowed."""
    wanted: list[dict[str, Json]] = field(default_factory=list[dict[str, Json]])
    """The session's connections that wait for a verdict."""
    held: Callable[[], AbstractContextManager[None]] = nullcontext
    """Pauses the action's time limit."""
    read_only: bool = False
    """True if its programs must not change files."""
    stopped: Stopped = ""
    """Set if a read-only program tried to write, or if the sandbox cannot enforce reading."""
    moved: dict[Destination, list[int]] = field(default_factory=dict["Destination", "list[int]"])
    """Bytes sent and received."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Destinations that were refused, and why."""

    async def ask_to_connect(self, to: Destination, how: How) -> str | None:
        """Have a connection judged as a part of this action. Returns why it is refused; None if it is allowed."""
        performed = await self.call_part(NETWORK, {"host": to.host, "port": to.port, "how": how}, self.wanted)
        return None if performed.outcome == "ok" else performed.error or performed.observation

    async def call_part(self, tool: str, args: dict[str, Json], wanted: list[dict[str, Json]]) -> Performed:
        """Run a call as a part of this action, whose time limit is paused; the call is in `wanted` until it ends."""
        wanted.append(args)
        try:
            with self.held():
                return await self.on_call(tool, args)
        finally:
            wanted.remove(args)

    async def ask_user(self, question: str, options: Iterable[str]) -> Performed:
        return await self.call_part(QUESTION, {"question": question, "options": list(options)}, [])

    @property
    def sent(self) -> tuple[Sent, ...]:
        return tuple(Sent(to=str(to), out=out, back=back) for to, (out, back) in self.moved.items())


_current: ContextVar[ActionContext | None] = ContextVar("current_action", default=None)


def current_action() -> ActionContext | None:
    return _current.get()


@contextmanager
def action_scope(what: ActionContext) -> Generator[None]:
    """Make this the `current_action` inside the context."""
    token = _current.set(what)
    try:
        yield
    finally:
        _current.reset(token)


class Flows(Struct, frozen=True, kw_only=True, dict=True):
    """Where a session may send even after reading private data and outside text: what the user typed for this run.

    Configuration files cannot add flows: a file is written once and forgotten.
    """

    hosts: tuple[str, ...] = ()
    """Patterns, as in `network.allow`."""
    tools: tuple[str, ...] = ()
    """Names of tools, or patterns."""

    def allows(self, tool: str, to: Destination | None) -> bool:
        """Return True if this tool, or the destination of this call, is among the flows."""
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
    """The network access of one session. Loads nothing before code or a tool connects."""

    def __init__(self, allowed: Iterable[str], **how: Any) -> None:
        """`how` is passed to Egress: the resolver, and which addresses are forbidden. Raises ConfigError."""
        self._allowed = tuple(allowed)
        self._how = how
        self._running: ActionContext | None = None
        self._between: dict[Destination, list[int]] = {}
        """Traffic while nothing ran; reported with the next action."""
        self.wanted: list[dict[str, Json]] = []
        """Connections that wait for a verdict; any other action named NETWORK is denied."""
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
        """Run the proxy from its first use to the end of the session."""
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
            logger.warning("code has no network access: %s", error)
            self._is_open.set()
        finally:
            self._socket = None

    async def socket(self) -> Path | None:
        """Return the proxy's socket, and start the proxy on first use; None if it could not start."""
        self._wanted.set()
        await self._is_open.wait()
        return self._socket

    @property
    def is_running(self) -> bool:
        """True while a cell or a command runs; what it calls is a part of it."""
        return self._running is not None

    @asynccontextmanager
    async def track_action(self, what: ActionContext, *, cut: Callable[[], bool]) -> AsyncGenerator[None]:
        """Track a cell or a command while it runs; a command that a cell calls is a part of the cell.

        `cut` is called at its end, however it ends: if it returns True, all connections are closed.
        """
        if self._running is not None:
            yield
            return
        self._running, what.moved, self._between = what, self._between, {}
        has_returned = False
        try:
            yield
            has_returned = True
        finally:
            if self._proxy is not None:
                self._proxy.report()
            self._running = None  # before connections are closed: new ones are refused from here on
            if cut():
                with anyio.CancelScope(shield=True):
                    await self.disconnect_all()
            if has_returned:
                _add_all(what.moved, self._between)
                self._between = {}
            else:
                _add_all(self._between, what.moved)

    async def disconnect_all(self) -> None:
        """Close all connections, after they report their traffic."""
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
        # Ask for each connection: an earlier one may have brought in text that makes this one dangerous.
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
