"""How much of a server we bear. Every wait and every size has its bound here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    frame_bytes: int = 16 << 20
    """Of one message."""
    window_s: float = 10.0
    """In which unasked messages are counted."""
    unasked: int = 5_000
    unasked_bytes: int = 64 << 20
    streams: int = 50
    """Event streams that may be opened in one window."""
    tools: int = 1_000
    pages: int = 100
    questions: int = 8
    """That a server may have open at once: elicitation, sampling, roots."""
    start_s: float = 60.0
    """To come up, and to say what it offers; at least the time its user gives a call."""
    close_s: float = 2.0
    patience: float = 10.0
    """A call that reports progress may take this many times its timeout in all."""
    longest_s: float = 3600.0
    reread_s: float = 1.0
    """At least, between two readings of what a server offers."""
    quick_s: float = 10.0
    """A server that ends sooner than this failed quickly, unless a call succeeded."""
    quick_failures: int = 3
    """In a row; then it is left alone for a while."""
    first_wait_s: float = 0.25
    """After the second failure in a row; doubles with each."""
    first_pause_s: float = 30.0
    longest_pause_s: float = 600.0
    sign_in_s: float = 300.0

    def total_s(self, timeout_s: float) -> float:
        return max(timeout_s, min(timeout_s * self.patience, self.longest_s))
