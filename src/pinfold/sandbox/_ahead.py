"""Sessions begun before anyone asks, each in a new empty folder: who wants one of those gets it at once.

They are filled in by a thread, because they belong to no event loop until they are given out.
"""

from __future__ import annotations

import asyncio
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pinfold.sandbox._history import FileHistory
from pinfold.sandbox._keeper_ports import Keeping
from pinfold.sandbox._launcher import Ends
from pinfold.sandbox.contract import Limits, SandboxUnavailable
from pinfold.sandbox.folders import Folder

QUIET_S = 0.002
"""Before the next is begun, when none is left: the session just given out goes first."""
LEISURE_S = 0.1
"""While there are some: those that are given out in a row go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A session that has said hello, which nobody has heard yet."""

    ends: Ends
    keeper: Keeping | None
    history: FileHistory | str
    """Or why there is none."""
    folder: Folder
    limits: Limits

    @property
    def is_alive(self) -> bool:
        return not _readable(self.ends.pidfd)

    def says_hello(self, limit_s: float) -> bool:
        return _readable(self.ends.channel.fileno(), limit_s) and self.is_alive

    def close(self) -> None:
        """Without its ends, it ends."""
        self.ends.close()
        if self.keeper:
            self.keeper.close()
        if isinstance(self.history, FileHistory):
            self.history.close_now()
        self.folder.remove()


class Ahead:
    """At most `size` of them, all for the limits that were asked for last."""

    def __init__(self, begin: Callable[[Limits], Begun], size: int) -> None:
        self._begin = begin
        self._size = size
        self._lock = threading.Lock()
        self._filling = threading.Lock()
        """Held while one is begun."""
        self._begun: deque[Begun] = deque()
        self._limits = Limits()
        self.is_wanted = False
        """Somebody is expected to ask."""
        self._closed = False

    def take(self, limits: Limits) -> Begun | None:
        while self._begun:
            begun = self._begun.popleft()
            if begun.limits == limits and begun.is_alive:
                return begun
            begun.close()
        return None

    def refill_soon(self, limits: Limits) -> None:
        """As far as possible: whoever asks next is told why it was not."""
        self._limits, self.is_wanted = limits, True
        quiet_s = LEISURE_S if self._begun else QUIET_S
        asyncio.get_running_loop().call_later(quiet_s, self._refill)

    def fill(self) -> None:
        """Now. Raises SandboxUnavailable."""
        with self._filling:
            while not self._closed and len(self._begun) < self._size:
                begun = self._begin(self._limits)
                with self._lock:
                    if not self._closed:
                        self._begun.append(begun)
                        continue
                begun.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        while self._begun:
            self._begun.popleft().close()

    def _refill(self) -> None:
        if len(self._begun) < self._size and not self._filling.locked():
            threading.Thread(target=self._fill_quietly, daemon=True, name="pinfold-ahead").start()

    def _fill_quietly(self) -> None:
        with suppress(SandboxUnavailable, OSError):
            self.fill()


def _readable(fd: int, limit_s: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))
