"""The figures of one run as tables, ratios and goals met or missed; and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.sandbox_suite.contenders import ADD, ASSIGN, OUTPUT_BYTES
from bench.sandbox_suite.figures import Figure, shown, table
from bench.sandbox_suite.measures import Footprint, Teardown

OURS, POOLED, KERNEL = "pinfold", "pinfold, pooled", "ipykernel"
MB = 1_000_000


@dataclass(slots=True)
class Results:
    machine: str
    missing: list[str] = field(default_factory=list[str])
    """What could not be measured, and why."""
    first: dict[str, dict[str, Figure]] = field(default_factory=dict[str, dict[str, Figure]])
    """By cell, then by contender; likewise the next three."""
    demand: dict[str, dict[str, Figure]] = field(default_factory=dict[str, dict[str, Figure]])
    pooled: dict[str, dict[str, Figure]] = field(default_factory=dict[str, dict[str, Figure]])
    trips: dict[str, dict[str, Figure]] = field(default_factory=dict[str, dict[str, Figure]])
    output: dict[str, Figure] = field(default_factory=dict[str, Figure])
    interrupt: dict[str, Figure] = field(default_factory=dict[str, Figure])
    teardown: dict[str, Teardown] = field(default_factory=dict[str, Teardown])
    memory: dict[str, list[Footprint]] = field(default_factory=dict[str, list[Footprint]])
    commands: dict[str, Figure] = field(default_factory=dict[str, Figure])


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    what: str
    wanted: str
    got: str
    met: bool | None
    """None: not measured."""


def report(results: Results) -> str:
    parts = [f"machine: {results.machine}", "", "medians (p95 in brackets); ratio = that one / pinfold", ""]
    parts += [_times(results), "", _memory(results), "", _goals(results)]
    parts += [f"not measured: {line}" for line in results.missing]
    return "\n".join(parts)


def _times(results: Results) -> str:
    rows: list[list[str]] = []
    for cell in ("groupby", "x=1"):
        rows += _compared(f"(a) first session of a process, to {cell}", results.first.get(cell, {}), OURS)
        rows += _compared(f"(b) next session, to {cell}", results.demand.get(cell, {}), OURS)
        pooled = results.pooled.get(cell, {}) | {
            name: figure for name, figure in results.demand.get(cell, {}).items() if name != OURS
        }
        rows += _compared(f"(c) pooled session, to {cell}", pooled, POOLED)
    for cell, figures in results.trips.items():
        rows += _compared(f"round trip of `{cell}`", figures, OURS)
    rows += _compared("100 MB of stdout", results.output, OURS)
    rows += _compared("interrupt of `while True`", results.interrupt, OURS)
    ends = {name: end.empty for name, end in results.teardown.items()}
    rows += _compared("teardown after pandas", ends, OURS)
    for name, end in results.teardown.items():
        what = "teardown, 5 daemons of their own session inside"
        rows.append([what, name, str(end.daemons), str(end.daemons.n), f"{end.left} daemons live on"])
    rows += _compared("the command, to groupby", results.commands, "pinfold exec")
    return table(["what", "of", "time", "n", "ratio"], rows)


def _compared(what: str, figures: dict[str, Figure], ours: str) -> list[list[str]]:
    """Rows with ours first."""
    if ours not in figures:
        return []
    base = figures[ours].median
    ordered = sorted(figures.items(), key=lambda item: item[0] != ours)
    return [
        [what, name, str(figure), str(figure.n), "1" if name == ours else f"{figure.median / base:.3g}"]
        for name, figure in ordered
    ]


def _memory(results: Results) -> str:
    rows: list[list[str]] = []
    for name, footprints in results.memory.items():
        for one in footprints:
            if one.total is None or one.each is None or one.uss is None:
                words = f"not run: it would need {one.needed / MB / 1000:.0f} GB"
                rows.append([name, str(one.sessions), words, "", "", ""])
            else:
                megabytes = (f"{size / MB:.1f}" for size in (one.each, one.uss))
                rows.append([name, str(one.sessions), f"{one.total / MB:,.0f}", *megabytes, shown(one.spawn_s)])
    return table(["memory after a pandas cell", "sessions", "total MB", "MB each", "USS MB each", "opened in"], rows)


def goals(results: Results) -> list[Goal]:
    demand, pooled = results.demand.get("groupby", {}), results.pooled
    found = [
        _ratio("(b) next session to the groupby, against ipykernel", demand, demand, OURS, 20),
        _ratio("(c) pooled to the groupby", demand, pooled.get("groupby", {}), POOLED, 60),
        _ratio("(c) pooled to `x=1`", results.demand.get("x=1", {}), pooled.get("x=1", {}), POOLED, 250),
    ]
    for cell in (ASSIGN, ADD):
        trips = results.trips.get(cell, {})
        found.append(_ratio(f"round trip of `{cell}`", trips, trips, OURS, 20))
    ours = results.output.get(OURS)
    speed = None if ours is None else OUTPUT_BYTES / ours.median / 1e9
    found.append(_goal("stdout", "0.3 GB/s", speed, lambda got: got >= 0.3, "{:.2f} GB/s"))
    sizes = {one.sessions: one for one in results.memory.get(OURS, []) if one.total is not None}
    many = [one for count, one in sizes.items() if count >= 100]
    each = max((max(one.each or 0, one.uss or 0) / MB for one in many), default=None)
    found.append(_goal("private memory of a session, at 100 and more", "8 MB", each, lambda got: got <= 8, "{:.1f} MB"))
    total = sizes[500].total if 500 in sizes else None
    gigabytes = None if total is None else total / MB / 1000
    found.append(_goal("500 live sessions", "under 4 GB", gigabytes, lambda got: got < 4, "{:.2f} GB"))
    return found


def _ratio(what: str, theirs: dict[str, Figure], ours: dict[str, Figure], name: str, wanted: int) -> Goal:
    ratio = theirs[KERNEL].median / ours[name].median if KERNEL in theirs and name in ours else None
    return _goal(what, f"{wanted:,}x", ratio, lambda got: got >= wanted, "{:,.1f}x")


def _goal(what: str, wanted: str, got: float | None, holds: Callable[[float], bool], form: str) -> Goal:
    if got is None:
        return Goal(what=what, wanted=wanted, got="not measured", met=None)
    return Goal(what=what, wanted=wanted, got=form.format(got), met=holds(got))


def _goals(results: Results) -> str:
    words = {True: "met", False: "MISSED", None: "-"}
    return table(
        ["goal", "wanted", "got", ""], [[goal.what, goal.wanted, goal.got, words[goal.met]] for goal in goals(results)]
    )
