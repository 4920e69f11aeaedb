"""Questions about tables with an asked form, such as InfiAgent-DABench's, from a folder beside the repository.

FOLDER holds one file *questions.jsonl, one *labels.jsonl and the tables, in a folder *tables or beside them:

    {"id": 0, "question": "...", "constraints": "...", "format": "@mean_fare[value] where ...", "file_name": "a.csv"}
    {"id": 0, "common_answers": [["mean_fare", "34.65"]]}

An answer is right if it holds every `@name[value]` of its label: the same text, or a number within 1e-6 of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.task_suite.task import Check, Outcome, Scene, Task

MARK = re.compile(r"@(\w+)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")


class NoQuestions(Exception):
    """The folder does not hold what it should."""


def load(folder: Path) -> list[Task]:
    """Those whose table is there and whose label is known, in the order of their ids."""
    questions, labels = (_rows(folder, name) for name in ("questions", "labels"))
    known: dict[Any, list[list[str]]] = {row["id"]: row["common_answers"] for row in labels}
    tables = {path.name: path for path in folder.glob("**/*") if path.is_file()}
    tasks = [
        _task(row, tables[row["file_name"]], known[row["id"]])
        for row in sorted(questions, key=lambda row: row["id"])
        if row["id"] in known and row["file_name"] in tables
    ]
    if not tasks:
        raise NoQuestions(f"{folder} holds no question with a label and a table")
    return tasks


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    found = sorted(folder.glob(f"*{name}.jsonl"))
    if len(found) != 1:
        raise NoQuestions(f"{folder} must hold one file *{name}.jsonl, and holds {len(found)}")
    return [json.loads(line) for line in found[0].read_text(encoding="utf-8").splitlines() if line.strip()]


def _task(row: dict[str, Any], table: Path, label: list[list[str]]) -> Task:
    prompt = f"{row['question']}\n{row.get('constraints', '')}\nFormat: {row['format']}\nThe data is in {table.name}."
    told = "\n".join(f"@{name}[{value}]" for name, value in label)
    scene = Scene(prompt=prompt, check=holds(label), oracle=f"print({told!r})", copies={table.name: table})
    return Task(id=f"question-{row['id']}", kind="questions", half="dev", scene=scene)


def holds(label: list[list[str]]) -> Check:
    def check(outcome: Outcome) -> str | None:
        found = dict(MARK.findall(outcome.answer))
        wrong = [
            f"@{name} is {found.get(name)!r} and not {value!r}"
            for name, value in label
            if not _same(found.get(name), value)
        ]
        return "; ".join(wrong) or None

    return check


def _same(found: str | None, value: str) -> bool:
    if found is None or found.strip() == value.strip():
        return found is not None
    try:
        return abs(float(found) - float(value)) < 1e-6
    except ValueError:
        return False
