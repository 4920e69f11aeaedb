"""The lifecycle of one MCP server: started when needed, restarted after a failure, paused if it keeps failing."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from pinfold.text import join_names
from pinfold.tools.mcp.manifest import Difference, Manifest, compare, why_not
from pinfold.tools.mcp.ports import Limits, McpPorts, Patience
from pinfold.tools.mcp.spec import ServerSpec
from pinfold.tools.results import BadCall

if TYPE_CHECKING:
    from pinfold.tools.mcp.connection import Connection

T = TypeVar("T")
State: TypeAlias = Literal["idle", "starting", "ready", "paused", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    state: State
    tools: int = 0
    """Number of tools offered."""
    why: str = ""
    """The last error."""
    retry_in_s: float = 0.0
    """Time until the next attempt, if the server is paused."""


class _Start:
    """One attempt to start; any number of callers may wait for it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.connection: Connection | None = None
        self.why = ""


class ServerLifecycle:
    def __init__(self, spec: ServerSpec, world: McpPorts, limits: Limits, tasks: TaskGroup) -> None:
        self.spec = spec
        self._world = world
        self._limits = limits
        self._tasks = tasks
        self._start: _Start | None = None
        self._connection: Connection | None = None
        self._wake = anyio.Event()
        self._is_stopping = False
        self._heard = 0
        """Number of changes the server reported; `_read` counts those read. A call waits until all are read."""
        self._read = 0
        self._reread = anyio.Event()
        self._is_awaited = anyio.Event()
        self.idle = anyio.Event()
        """Set while the server is not running."""
        self.idle.set()
        self._failures = 0
        self._not_before = -math.inf
        self._why = ""
        self.now: Manifest | None = None
        """The server's last listing; None before the first."""
        self._told_of: frozenset[str] = frozenset()

    def status(self) -> Status:
        left = self._not_before - anyio.current_time()
        is_paused = left > 0 and self._failures >= self._limits.quick_failures
        live = self._connection if self._connection and not self._connection.over.event.is_set() else None
        why = "" if live else self._connection.over.why if self._connection else self._why
        states: tuple[tuple[State, bool], ...] = (
            ("ready", live is not None),
            ("starting", self._start is not None and self._connection is None),
            ("paused", is_paused),
            ("failed", bool(why)),
            ("idle", True),
        )
        pinned = self.load_pinned() or Manifest()
        there = pinned if self.now is None else pinned.only(self.now.entries)
        return Status(
            state=next(state for state, holds in states if holds),
            tools=len(there.entries),
            why=why,
            retry_in_s=max(0.0, left) if is_paused else 0.0,
        )

    def load_pinned(self) -> Manifest | None:
        kept = self._world.pins.get(self.spec.name)
        return None if kept is None else Manifest.from_json(kept)

    def difference(self) -> Difference:
        pinned = self.load_pinned()
        return Difference() if pinned is None or self.now is None else compare(pinned, self.now)

    def accept(self) -> None:
        """Record that the user agrees to the current listing. Raises BadCall if there is none yet."""
        if self.now is None:
            raise BadCall(f"{self.spec.name} has not listed its tools yet; start it first")
        self._world.pins.put(self.spec.name, self.now.offerable().to_json())
        self._world.on_changed(self.spec.name)

    async def connect(self) -> Connection:
        """Return the live connection, starting the server if needed. Raises BadCall with what is wrong."""
        if self._connection and not self._connection.over.event.is_set():
            return self._connection
        if self._connection:
            # The connection has just ended; wait for its task to clean up.
            await self.idle.wait()
        start = self._start or self._begin()
        await start.done.wait()
        if start.connection is None:
            raise BadCall(start.why, at_fault=True)
        return start.connection

    async def ask(self, tool: str, agreed: str, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Call `ask` with a connection that offers `tool`. `agreed` is the digest of the description the user has seen.

        Raises BadCall if the server now describes the tool differently.
        """
        from pinfold.tools.mcp.connection import SessionLost

        for _ in range(2):
            connection = await self._connect_for(tool, agreed)
            try:
                return await ask(connection)
            except SessionLost as lost:
                connection.over.end(f"the server ended the session: {lost}")
        raise BadCall(f"{self.spec.name} ended two sessions in a row; it was not done", at_fault=True)

    async def _connect_for(self, tool: str, digest: str) -> Connection:
        connection = await self.connect()
        await self._catch_up(connection)
        entry = self.now.entries.get(tool) if self.now else None
        if entry is None:
            raise BadCall(f"{self.spec.name} no longer offers it")
        if entry.digest != digest:
            words = f"{self.spec.name} has changed this tool since the user agreed to it; nothing was called"
            raise BadCall(f"{words}. `pinfold mcp trust {self.spec.name}` shows the difference")
        return connection

    async def _catch_up(self, connection: Connection) -> None:
        """Wait until every change the server has reported so far is read."""
        heard = self._heard
        with anyio.move_on_after(self.spec.timeout_s):
            while self._read < heard and not connection.over.event.is_set():
                self._is_awaited.set()
                await self._reread.wait()
            return
        words = "reported that its tools have changed, and did not list them; nothing was called"
        raise BadCall(f"{self.spec.name} {words}", at_fault=True)

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def _begin(self) -> _Start:
        if self._is_stopping:
            raise BadCall(f"{self.spec.name} is closed")
        left = self._not_before - anyio.current_time()
        if left > 0 and self._failures >= self._limits.quick_failures:
            words = f"is paused for another {math.ceil(left)} s, after {self._failures} failures in a row"
            raise BadCall(f"{self.spec.name} {words}; the last one: {self._why}", at_fault=True)
        start = self._start = _Start()
        self.idle = anyio.Event()
        self._tasks.start_soon(self._live, start, max(0.0, left))
        return start

    async def _live(self, start: _Start, wait_s: float) -> None:
        began = math.inf
        patience = Patience()
        why = ""
        try:
            await anyio.sleep(wait_s)
            # In a thread: the import takes over a second and must not block the loop.
            module = await anyio.to_thread.run_sync(import_module, "pinfold.tools.mcp.connection")
            over = module.ConnectionEnd()
            start_s = max(self._limits.start_s, self.spec.timeout_s)
            try:
                with patience.waiting(start_s) as scope:
                    async with module.connect(
                        self.spec,
                        self._world,
                        limits=self._limits,
                        patience=patience,
                        over=over,
                        changed=self._on_change,
                    ) as connection:
                        await self._read_listing(connection)
                        patience.release(scope)
                        began = anyio.current_time()
                        self._ready(start, connection)
                        await self._attend(connection)
                        why = over.why
                if scope.cancelled_caught:
                    why = over.why or f"it did not answer within {start_s:g} s"
            except Exception as error:  # noqa: BLE001 - a server's failure ends that server and no other
                why = module.explain(error, over)
            over.end(why or "it was closed")
        finally:
            self._end(start, why, began)

    def _ready(self, start: _Start, connection: Connection) -> None:
        self._connection = start.connection = connection
        start.done.set()
        self._world.on_changed(self.spec.name)

    def _end(self, start: _Start, why: str, began: float) -> None:
        connection = self._connection
        self._connection = self._start = None
        now = anyio.current_time()
        if self._is_stopping:
            self._why = ""
        else:
            self._why = why or "it ended"
            is_quick = not (connection and connection.worked) and now - began < self._limits.quick_s
            self._failures = self._failures + 1 if is_quick else 1
            self._not_before = now + self._wait_s()
        start.why = f"{self.spec.name} did not start: {self._why or 'it was closed'}"
        start.done.set()
        self._end_waits()
        self.idle.set()
        if not self._is_stopping and self._failures == self._limits.quick_failures:
            words = f"failed {self._failures} times in a row and is paused for {self._wait_s():g} s"
            self._world.notice(f"{self.spec.name} {words}: {self._why}")

    def _wait_s(self) -> float:
        """Return the wait before the next attempt."""
        limits = self._limits
        if self._failures >= limits.quick_failures:
            doubled = limits.first_pause_s * 2.0 ** min(self._failures - limits.quick_failures, 30)
            return min(limits.longest_pause_s, doubled)
        return limits.first_wait_s * 2 ** (self._failures - 2) if self._failures > 1 else 0.0

    async def _attend(self, connection: Connection) -> None:
        """Attend the connection until it ends or is stopped. Reread the tools when the server reports a change, but not
        too often."""

        async def wake_at_end() -> None:
            await connection.over.event.wait()
            self._wake.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(connection.listen, self._on_change))
            tasks.start_soon(wake_at_end)
            while not connection.over.event.is_set() and not self._is_stopping:
                await self._wake.wait()
                self._wake = anyio.Event()
                if self._read < self._heard:
                    await self._read_listing(connection)
                    self._world.on_changed(self.spec.name)
                    with anyio.move_on_after(self._limits.reread_s):
                        await self._is_awaited.wait()
            tasks.cancel_scope.cancel()

    async def _read_listing(self, connection: Connection) -> None:
        """Read the server's listing. Changes reported meanwhile are read next time."""
        heard, self._is_awaited = self._heard, anyio.Event()
        self._record_listing(await connection.manifest())
        self._read = heard
        self._end_waits()

    def _end_waits(self) -> None:
        self._reread.set()
        self._reread = anyio.Event()

    def _on_change(self) -> None:
        self._heard += 1
        self._wake.set()

    def _record_listing(self, manifest: Manifest) -> None:
        """Record a listing. By configuring the server the user agreed to its first one; changes need new consent."""
        name = self.spec.name
        pinned = self.load_pinned()
        good = manifest.offerable()
        self.now = manifest.only(
            one for one in manifest.entries if one in good.entries or (pinned and one in pinned.entries)
        )
        if pinned is None:
            self._world.pins.put(name, good.to_json())
        bad = [why for entry in manifest.entries.values() if (why := why_not(entry))]
        held = self.difference()
        lines = [f"{name}: {join_names(bad, 5)}; not offered"] if bad else []
        if changes := _count_changes(held):
            lines.append(f"{name}: {changes} since you agreed; `pinfold mcp trust {name}` shows the difference")
        for line in lines:
            if line not in self._told_of:
                self._world.notice(line)
        self._told_of = frozenset(lines)


def _count_changes(held: Difference) -> str:
    changed, new = len(held.names("changed")), len(held.names("new"))
    parts = [
        f"{changed} {'tools' if changed > 1 else 'tool'} changed" if changed else "",
        f"{new} {'tools are' if new > 1 else 'tool is'} new" if new else "",
    ]
    return " and ".join(filter(None, parts))
