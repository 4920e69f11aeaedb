"""Stops calling what keeps failing, and tries it again after a while. No clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

from pinfold.events import BreakerState

FORGET_S = 600.0
"""A failure longer ago than that is not in a row with the next."""


class Line(Struct, kw_only=True):
    failures: int = 0
    failed_at: float = 0.0
    opened_at: float | None = None
    probed_at: float | None = None
    """When a call was let through to see whether it works again, if one is under way."""


class Lines(Protocol):
    """Where what is known of each line is kept."""

    def change(self, name: str, change: Callable[[Line], Line]) -> Line:
        """What comes of the change is kept and returned; a line nobody knows is as new."""
        ...


class OwnLines:
    """Of this process alone."""

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
        line = self.lines.change(name, _same)
        if line.opened_at is None:
            return "closed"
        return "half-open" if self.clock() - line.opened_at >= self.cooldown_s else "open"

    def wait_s(self, name: str) -> float:
        """How long until the next call may be made: 0 when now. A call that may be made counts as the probe."""
        now, wait_s = self.clock(), 0.0

        def probe(line: Line) -> Line:
            nonlocal wait_s
            if line.opened_at is None:
                return line
            # Whoever probes may have gone without a word.
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
        """The call ended without showing whether the thing works; the next one may probe."""

        def abandon(line: Line) -> Line:
            line.probed_at = None
            return line

        self.lines.change(name, abandon)


def _same(line: Line) -> Line:
    return line
