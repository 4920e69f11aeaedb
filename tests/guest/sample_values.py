"""The table of sample_values.txt: values a session may hold, how they are made, and what must be true of them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Kind:
    group: str
    name: str
    cell: str
    check: str
    """Run in the restored session; what it asserts is what "restored" means."""
    lost: str
    """Of variable `x`: a part of the reason that must be given."""
    note: str
    """Of variable `x`: a part of what must be said of it though it is restored."""


def read_kinds(text: str) -> list[Kind]:
    kinds: list[Kind] = []
    for group in text.split("\n=== ")[1:]:
        group_name, _, rest = group.partition("\n")
        kinds.extend(read_kind(group_name, block) for block in f"\n{rest}".split("\n--- ")[1:])
    return kinds


def read_kind(group: str, block: str) -> Kind:
    making, _, check = block.strip().partition("\n:::\n")
    name, *lines = making.split("\n")
    told = {"lost: ": "", "note: ": ""}
    for mark in told:
        told[mark] = next((line.removeprefix(mark) for line in lines if line.startswith(mark)), "")
    cell = "\n".join(line for line in lines if not line.startswith(tuple(told)))
    return Kind(group, name, cell, check, told["lost: "], told["note: "])


EVERY = read_kinds(Path(__file__).with_name("sample_values.txt").read_text(encoding="utf-8"))
KINDS = [kind for kind in EVERY if kind.group != "traps"]
TRAPS = [kind for kind in EVERY if kind.group == "traps"]
"""Values that must not be called restored, whatever their pickling says."""


def is_standard(kind: Kind) -> bool:
    """Whether Python alone makes it."""
    return kind.group != "data" and "duckdb" not in kind.cell
