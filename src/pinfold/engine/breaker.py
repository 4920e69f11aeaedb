"""Circuit breaker: stops calls to what keeps failing, and tries again after a while. No clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from pinfold.events import BreakerState

FORGET_S = 600.0
"""Failures further apart than this do not count as consecutive."""


class Line(Struct, kw_only=True):
    failures: int = 0
    failed_at: float = 0.0
    opened_at: float | None = None
    probed_at: float | None = None
    """When the current trial call began, if there is one."""


class Lines(Protocol):
    """Stores the state of each line."""

    def change(self, name: str, change: Callable[[Line], Line]) -> Line:
        """Store and return the changed line; an unknown line starts fresh."""
        ...


class OwnLines:
    """In this process only."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def change(self, name: str, change: Callable[[Line], Line]) -> Line:
        self._lines[name] = changed = change(self._lines.get(name, Line()))
        return changed


class Breaker(Struct, kw_only=True):
    """One line for each model and tool, by name.

    After `threshold` failures in a row a line opens: calls are refused. After `cooldown_s` one call is
    let through; its success closes the line, its failure opens it again.
    """

    clock: Callable[[], float]
    threshold: int = 5
    cooldown_s: float = 30.0
    lines: Lines = field(default_factory=OwnLines)

    def state(self, name: str) -> BreakerState:
        line = self.lines.change(name, lambda line: line)
        if line.opened_at is None:
            return "closed"
        return "half-open" if self.clock() - line.opened_at >= self.cooldown_s else "open"

    def wait_s(self, name: str) -> float:
        """Seconds until the next call is allowed, 0 for now; an allowed call counts as the trial."""
        now, wait_s = self.clock(), 0.0

        def probe(line: Line) -> Line:
            nonlocal wait_s
            if line.opened_at is None:
                return line
            # The prober may have gone without reporting.
            since = max(line.opened_at, line.probed_at or line.opened_at)
            wait_s = max(0.0, since + self.cooldown_s - now)
            if not wait_s:
                line.probed_at = now
            return line

        self.lines.change(name, probe)
        return wait_s

    def record_success(self, name: str) -> None:
        self.lines.change(name, lambda _: Line())

    def record_failure(self, name: str) -> None:
        now = self.clock()

        def fail(line: Line) -> Line:
            failures = line.failures if now - line.failed_at < FORGET_S else 0
            line.failures, line.failed_at, line.probed_at = failures + 1, now, None
            if line.failures >= self.threshold or line.opened_at is not None:
                line.opened_at = now
            return line

        self.lines.change(name, fail)

    def record_unknown(self, name: str) -> None:
        """The call ended without showing whether the line works; the next one may probe."""
        self.lines.change(name, lambda line: replace(line, probed_at=None))
