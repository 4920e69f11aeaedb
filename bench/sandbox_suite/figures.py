"""Many times of one thing as a few numbers, and the table they are shown in."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Seconds."""

    median: float
    p95: float
    n: int

    @classmethod
    def of(cls, times: Sequence[float]) -> Figure:
        return cls(median=statistics.median(times), p95=percentile(times, 95), n=len(times))

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.p95)})"


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest one that was seen; the highest when there are few."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def shown(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.2f} s"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown that also reads well as it is."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    padded.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)
