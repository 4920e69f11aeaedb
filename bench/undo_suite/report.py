"""What a section found: each line with its goal, if it has one."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.sandbox_suite.figures import table


@dataclass(slots=True)
class Report:
    title: str
    rows: list[list[str]] = field(default_factory=list[list[str]])
    missed: int = 0

    def goal(self, what: str, got: str, wanted: str, *, met: bool) -> None:
        self.missed += not met
        self.rows.append([what, got, wanted, "met" if met else "MISSED"])

    def note(self, what: str, got: str) -> None:
        self.rows.append([what, got, "", ""])

    def __str__(self) -> str:
        return table([self.title, "got", "goal", ""], self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    kills: int
    seed: int
    examples: int
