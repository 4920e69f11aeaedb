"""The report on a run, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, Literal, NamedTuple, TypeAlias

from bench.tokens.baselines import BASELINES, Baseline
from bench.tokens.live_model import LiveResult
from bench.tokens.measurement import WINDOW, Row, RowSet
from bench.tokens.sizes import SizeRow
from bench.tokens.weight import Weight

Rule: TypeAlias = Literal["closed", "answered"]
"""Whether the model closes each turn in words, as those do that it is compared with, or code does where the task says it can."""


class ToolCount(NamedTuple):
    """Tools of a set."""

    number: int
    tokens: int
    """Of all of them as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    rows: Sequence[Row]
    sets: tuple[RowSet, ...]
    rule: Rule = "closed"
    tools: Mapping[RowSet, ToolCount]
    sizes: Sequence[SizeRow] = ()
    prompts: dict[int, int] = field(default_factory=dict[int, int])
    """Tokens of the first request by the number of tools."""
    live: Sequence[LiveResult] = ()

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.problems]

    def only(self, of: RowSet) -> Report:
        """What it says of one of its sets."""
        rows = [row for row in self.rows if row.set == of]
        return replace(self, rows=rows, sets=(of,), tools={of: self.tools[of]})

    def against(self, baseline: Baseline) -> list[Row]:
        return [row for row in self.rows if not row.problems and baseline in row.baselines]

    def saving(self, baseline: Baseline) -> float | None:
        """Of all tokens of all tasks: what one pays."""
        rows = self.against(baseline)
        if not rows:
            return None
        theirs = sum(row.baselines[baseline].total for row in rows)
        return 1 - sum(row.pinfold.total for row in rows) / theirs

    def losing(self) -> list[tuple[Row, Baseline]]:
        return [(row, one) for one in BASELINES for row in self.against(one) if row.saving(one) < 0]

    @property
    def cached_share(self) -> float:
        """Of what is sent after the first call of each conversation: a byte-exact beginning of the call before."""
        later = sum(row.pinfold.later for row in self.rows)
        return sum(row.pinfold.cached for row in self.rows) / later if later else 0.0


def as_json(report: Report) -> dict[str, Any]:
    return {
        "tokeniser": "o200k",
        "set": _name(report),
        "rule": report.rule,
        **_figures(report),
        "failed": [{"task": row.task, "problems": row.problems} for row in report.failed],
        "losing": [
            {
                "task": row.task,
                "baseline": one,
                "pinfold": row.pinfold.total,
                "theirs": row.baselines[one].total,
                "saving": _round(row.saving(one)),
            }
            for row, one in report.losing()
        ],
        "cached_share": _round(report.cached_share),
        "by_set": {of: _figures(report.only(of)) for of in report.sets},
        "prompt_tokens": {str(number): size for number, size in report.prompts.items()},
        "sizes": [
            {
                "bytes": row.bytes,
                "data_tokens": row.data,
                "pinfold": row.pinfold.total,
                "data_once": row.once.total,
                "data_resent": row.resent.total,
                "problems": row.problems,
            }
            for row in report.sizes
        ],
        "live": [
            {
                "task": one.task,
                "turns": one.turns,
                "right": one.right,
                "input": one.usage.input_tokens,
                "output": one.usage.output_tokens,
                "model_calls": one.calls,
            }
            for one in report.live
        ],
        "rows": [
            {
                "task": row.task,
                "set": row.set,
                "domain": row.domain,
                "turns": row.turns,
                "data_tokens": row.data,
                "pinfold": _weight(row.pinfold),
                **{one: _weight(weight) for one, weight in row.baselines.items()},
            }
            for row in report.rows
        ],
    }


def _name(report: Report) -> str:
    return report.sets[0] if len(report.sets) == 1 else "all"


def _figures(report: Report) -> dict[str, Any]:
    there: list[Baseline] = [one for one in BASELINES if report.against(one)]
    fewest = min(report.tools.values())
    return {
        "tasks": len(report.rows),
        "savings": {one: _round(report.saving(one)) for one in there},
        "mean": {one: _round(fmean(row.saving(one) for row in report.against(one))) for one in there},
        "median": {one: _round(median(row.saving(one) for row in report.against(one))) for one in there},
        "compared": {one: len(report.against(one)) for one in there},
        "tools": {"count": fewest.number, "schema_tokens": fewest.tokens},
    }


def _weight(weight: Weight) -> dict[str, int]:
    return {"input": weight.input, "output": weight.output, "model_calls": weight.calls}


def _round(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def as_text(report: Report) -> Iterator[str]:
    for row in report.failed:
        yield f"FAILED  {row.task}: {'; '.join(row.problems)}"
    of = f"{'sets' if len(report.sets) > 1 else 'set'} {' and '.join(report.sets)}"
    yield f"{len(report.rows)} tasks of the {of}, {len(report.failed)} failed; tokens of o200k, everything sent and written"
    if report.rule == "answered":
        yield "code ends a turn where it can: no closing reply, which the others pay for"
    for tools in report.tools.values():
        yield f"{tools.number} tools, {tools.tokens:,} tokens as JSON"
    yield ""
    yield from _table(report, "fewer tokens than")
    for one in report.sets if len(report.sets) > 1 else ():
        yield ""
        yield from _table(report.only(one), f"the set {one} alone")
    yield ""
    beyond = [row.task for row in report.rows if row.data > WINDOW]
    if beyond:
        yield f"More than {WINDOW:,} tokens of data, compared with nothing: {', '.join(beyond)}"
    yield f"{report.cached_share:.1%} of what is sent after a first call was sent before, byte for byte"
    yield from _list_losing(report)
    yield from _list_extras(report)


def _table(report: Report, title: str) -> Iterator[str]:
    yield f"{title:<26}{'in all':>8}{'mean':>8}{'median':>8}{'tasks':>7}{'calls':>7}{'theirs':>8}"
    for one in BASELINES:
        rows = report.against(one)
        if rows:
            shares = [row.saving(one) for row in rows]
            ours, theirs = (sum(weight.calls for weight in some) for some in _both(rows, one))
            yield (
                f"{one:<26}{report.saving(one):>8.1%}{fmean(shares):>8.1%}{median(shares):>8.1%}"
                f"{len(rows):>7}{ours:>7}{theirs:>8}"
            )


def _both(rows: Sequence[Row], baseline: Baseline) -> tuple[list[Weight], list[Weight]]:
    return [row.pinfold for row in rows], [row.baselines[baseline] for row in rows]


def _list_losing(report: Report) -> Iterator[str]:
    losing = report.losing()
    yield ""
    yield "More tokens than" if losing else "Nowhere more tokens than any of them."
    for row, one in losing:
        yield f"  {one:<26}{row.task:<34}{row.pinfold.total:>8,}{row.baselines[one].total:>9,}"


def _list_extras(report: Report) -> Iterator[str]:
    if report.prompts:
        yield ""
        sizes = ", ".join(f"{size} tokens with {number}" for number, size in report.prompts.items())
        yield f"A first request, by the number of tools: {sizes}"
    if report.live:
        yield ""
        yield f"{'by a real model':<34}{'right':>7}{'tokens':>9}{'calls':>7}{'script':>9}"
    script = {row.task: row.pinfold.total for row in report.rows}
    for one in report.live:
        yield f"{one.task:<34}{f'{one.right}/{one.turns}':>7}{one.usage.total:>9,}{one.calls:>7}{script[one.task]:>9,}"
    if report.sizes:
        yield ""
        yield f"{'a log of bytes':>16}{'its tokens':>14}{'Pinfold':>9}{'once':>14}{'resent':>16}"
    for row in report.sizes:
        yield (
            f"{row.bytes:>16,}{row.data:>14,}{row.pinfold.total:>9,}"
            f"{row.once.total:>14,}{row.resent.total:>16,}{'  FAILED' if row.problems else ''}"
        )
