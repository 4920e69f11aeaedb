"""Stops calling what keeps failing, and tries it again after a while. No clock of its own."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from pinfold.events import BreakerState


class _Line(Struct):
    failures: int = 0
    opened_at: float | None = None
    probing: bool = False


def _nobody(name: str, opened_at: float | None) -> None:
    del name, opened_at


class Breaker(Struct, kw_only=True):
    """One line for each model and tool, by name.

    After `threshold` failures in a row a line opens: calls are refused. After `cooldown_s` one call is
    let through; its success closes the line, its failure opens it again.
    """

    clock: Callable[[], float]
    threshold: int = 5
    cooldown_s: float = 30.0
    on_change: Callable[[str, float | None], None] = _nobody
    """Hears of every line that opens, with the time, and of every one that closes."""
    _lines: dict[str, _Line] = field(default_factory=dict[str, _Line])

    def state(self, name: str) -> BreakerState:
        line = self._lines.get(name)
        if line is None or line.opened_at is None:
            return "closed"
        return "half-open" if self.clock() - line.opened_at >= self.cooldown_s else "open"

    def wait_s(self, name: str) -> float:
        """How long until the next call may be made: 0 when now. A call that may be made counts as the probe."""
        line = self._lines.get(name)
        if line is None or line.opened_at is None:
            return 0.0
        remaining = line.opened_at + self.cooldown_s - self.clock()
        if remaining > 0:
            return remaining
        if line.probing:
            return self.cooldown_s
        line.probing = True
        return 0.0

    def opened(self, name: str, at: float) -> None:
        """Someone else found it failing, at that time."""
        self._lines[name] = _Line(failures=self.threshold, opened_at=at)

    def succeeded(self, name: str) -> None:
        line = self._lines.pop(name, None)
        if line and line.opened_at is not None:
            self.on_change(name, None)

    def failed(self, name: str) -> None:
        line = self._lines.setdefault(name, _Line())
        line.failures += 1
        line.probing = False
        if line.failures >= self.threshold:
            line.opened_at = self.clock()
            self.on_change(name, line.opened_at)

    def abandoned(self, name: str) -> None:
        """The call ended without showing whether the thing works; the next one may probe."""
        if line := self._lines.get(name):
            line.probing = False
