"""What came of each task, one line of JSON as soon as it is known; and the tables made of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.task_suite.arms import ARMS, ArmName
from bench.task_suite.task import KINDS, Half, Kind

MORE_SOLVED, FEWER_TOKENS = 1.3, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    arm: ArmName
    task: str
    kind: Kind
    half: Half
    why: str | None
    """None: solved."""
    answer: str
    ended: str
    note: str
    prompt_tokens: int
    completion_tokens: int
    requests: int
    cut: int
    actions: int
    seconds: float
    model_s: float
    """How long the model server had its processors; with a server not of our own, the same as `seconds`."""

    @property
    def solved(self) -> bool:
        return self.why is None

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def add(path: Path, result: Result) -> None:
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(result)) + "\n")


def read(path: Path) -> list[Result]:
    """A last line that was cut by a kill is left out."""
    if not path.exists():
        return []
    found: list[Result] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Result(**json.loads(line)))
        except ValueError:
            continue
    return found


def report(results: Sequence[Result]) -> str:
    arms: list[ArmName] = [arm for arm in ARMS if any(result.arm == arm for result in results)]
    parts: list[str] = []
    for half in ("dev", "test"):
        these = [result for result in results if result.half == half]
        if these:
            parts += [f"## {half}", "", _by_kind(these, arms), "", _spent(these, arms), ""]
    return "\n".join([*parts, *_goals(results)])


def compare(runs: Mapping[str, Sequence[Result]]) -> str:
    """Several runs of ours, such as of two checkouts, on the tasks that all of them have tried."""
    ours = {run: {r.task: r for r in results if r.arm == "pinfold"} for run, results in runs.items()}
    both = sorted(set[str].intersection(*map(set, ours.values())))
    lines = [
        f"| {len(both)} tasks | solved | tokens | a solved task | model calls | of the model |",
        "|---|---|---|---|---|---|",
    ]
    for run, results in ours.items():
        own = [results[task] for task in both]
        lines.append(
            f"| {run} | {sum(r.solved for r in own)} | {sum(r.tokens for r in own):,} | {per_solved(own):,.0f} "
            f"| {sum(r.requests for r in own)} | {sum(r.model_s for r in own):,.0f} s |"
        )
    for run, results in ours.items():
        only = [
            task
            for task in both
            if results[task].half == "dev"
            and results[task].solved
            and not any(other[task].solved for other in ours.values() if other is not results)
        ]
        lines.append(f"\nonly {run}: {', '.join(only) or 'none'}")
    return "\n".join(lines)


def _by_kind(results: Sequence[Result], arms: Sequence[ArmName]) -> str:
    lines = [f"| solved | {' | '.join(arms)} |", f"|---|{'---|' * len(arms)}"]
    there = [kind for kind in KINDS if any(result.kind == kind for result in results)]
    rows: list[tuple[str, Collection[str]]] = [(kind, (kind,)) for kind in there]
    rows += [("**all but mbpp**", set(KINDS) - {"mbpp"}), ("**all**", KINDS)]
    for what, kinds in rows:
        cells: list[str] = []
        for arm in arms:
            own = [result for result in results if result.arm == arm and result.kind in kinds]
            cells.append(f"{sum(result.solved for result in own)} / {len(own)}")
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _spent(results: Sequence[Result], arms: Sequence[ArmName]) -> str:
    lines = [
        "| spent | tokens per solved task | prompt | completion | requests | cut | seconds a task | of the model | at the limit | failed |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in arms:
        for what, own in (
            (f"{arm}, all but mbpp", [r for r in results if r.arm == arm and r.kind != "mbpp"]),
            (f"{arm}, mbpp", [r for r in results if r.arm == arm and r.kind == "mbpp"]),
        ):
            if own:
                lines.append(
                    f"| {what} | {per_solved(own):,.0f} | {sum(r.prompt_tokens for r in own):,} "
                    f"| {sum(r.completion_tokens for r in own):,} | {sum(r.requests for r in own)} "
                    f"| {sum(r.cut for r in own)} | {sum(r.seconds for r in own) / len(own):.1f} "
                    f"| {sum(r.model_s for r in own) / len(own):.1f} "
                    f"| {sum(r.ended == 'limit' for r in own)} | {sum(r.ended == 'failed' for r in own)} |"
                )
    return "\n".join(lines)


def per_solved(results: Sequence[Result]) -> float:
    """All tokens, those of failed tasks too, by the number of solved ones."""
    solved = sum(result.solved for result in results)
    return sum(result.tokens for result in results) / solved if solved else float("inf")


def _goals(results: Sequence[Result]) -> list[str]:
    """On tasks of the held-out half that both agents have tried."""
    lines: list[str] = []
    for what, mbpp in (("test half", False), ("test half with mbpp", True)):
        held = [r for r in results if r.half == "test" and (mbpp or r.kind != "mbpp")]
        lines += [line for arm in ARMS if arm != "pinfold" and (line := _goal(what, held, arm))]
    return lines


def _goal(what: str, results: Sequence[Result], against: ArmName) -> str:
    ours = {r.task: r for r in results if r.arm == "pinfold"}
    theirs = {r.task: r for r in results if r.arm == against}
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return ""
    mine, other = [ours[task] for task in both], [theirs[task] for task in both]
    solved, baseline = sum(r.solved for r in mine), sum(r.solved for r in other)
    more = solved / baseline if baseline else float("inf")
    fewer = per_solved(mine) / per_solved(other)
    return (
        f"{what}: {solved} of {len(both)} against {baseline} of {against}: {more:.2f}x the solved tasks "
        f"(goal {MORE_SOLVED}x: {_met(more >= MORE_SOLVED)}); {fewer:.3f}x the tokens per solved task "
        f"(goal {FEWER_TOKENS}x: {_met(fewer <= FEWER_TOKENS)})"
    )


def _met(met: bool) -> str:
    return "met" if met else "MISSED"
