"""How long one server is waited for: until it gives no sign for too long, and never while we keep it waiting ourselves."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio


class Wait:
    """One thing that is waited for. Its scope is cancelled when the server gave no sign for `silent_s`."""

    def __init__(self, silent_s: float) -> None:
        self.silent_s = silent_s
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + silent_s)

    def renew(self) -> None:
        self.scope.deadline = anyio.current_time() + self.silent_s

    def stop(self) -> None:
        self.scope.deadline = math.inf


class Patience:
    """All waits for one server."""

    def __init__(self) -> None:
        self._waits: set[Wait] = set()
        self._asking = 0

    @contextmanager
    def waiting(self, silent_s: float) -> Generator[Wait]:
        wait = Wait(silent_s)
        self._waits.add(wait)
        if self._asking:
            wait.stop()
        try:
            with wait.scope:
                yield wait
        finally:
            self._waits.discard(wait)

    def release(self, wait: Wait) -> None:
        """What was waited for is there; its scope goes on without a bound."""
        self._waits.discard(wait)
        wait.stop()

    @contextmanager
    def asking(self) -> Generator[None]:
        """It is we who keep the server waiting: a person thinks, or a model."""
        self._asking += 1
        for wait in self._waits:
            wait.stop()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                for wait in self._waits:
                    wait.renew()
