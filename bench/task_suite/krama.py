"""Questions over many files, from a checkout of KramaBench (github.com/mitdbg/Kramabench): `--krama FOLDER [--domain legal]`

Every task has all files of its domain in its workspace. An answer is right if it holds the expected one: a number within
1e-6 of it (1 % if it is marked approximate), a text with its letters and digits in this order, or every item of a list.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from bench.task_suite.task import Check, Outcome, Scene, Task

_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?", re.IGNORECASE)
_SIZE_LIMIT = 2_000_000


class NoKrama(Exception):
    """The folder does not hold what it should."""


def load(folder: Path, domain: str) -> list[Task]:
    workload, inputs = folder / "workload" / f"{domain}.json", folder / "data" / domain / "input"
    if not workload.is_file() or not inputs.is_dir():
        raise NoKrama(
            f"{folder} holds no {workload.relative_to(folder)} with its data; check out mitdbg/Kramabench there"
        )
    files = {
        str(path.relative_to(inputs)): path
        for path in sorted(inputs.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.stat().st_size <= _SIZE_LIMIT
    }
    return [_task(row, files) for row in json.loads(workload.read_text(encoding="utf-8"))]


def _task(row: dict[str, Any], files: dict[str, Path]) -> Task:
    sources = row["data_sources"]
    named = sources if isinstance(sources, str) else ", ".join(map(str, sources))
    prompt = f"{row['query']}\nThe data is in the folders here, in: {named}\nAnswer with the result alone."
    check = holds(row["answer"], row["answer_type"])
    scene = Scene(prompt=prompt, check=check, oracle=f"print({row['answer']!r})", copies=files)
    return Task(id=row["id"], kind="questions", half="dev", scene=scene)


def holds(expected: Any, kind: str) -> Check:
    def check(outcome: Outcome) -> str | None:
        items = cast("list[object]", expected) if isinstance(expected, list) else [expected]
        missing = [item for item in items if not _is_in(item, outcome.answer, kind)]
        return f"it lacks {missing}" if missing else None

    return check


def _is_in(item: object, answer: str, kind: str) -> bool:
    if isinstance(item, int | float) and not isinstance(item, bool):
        near = 0.01 if "approximate" in kind else 1e-6
        found = (float(text.replace(",", "")) for text in _NUMBER.findall(answer))
        return any(abs(number - item) <= near * max(1.0, abs(item)) for number in found)
    return f" {_plain(str(item))} " in f" {_plain(answer)} "


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
