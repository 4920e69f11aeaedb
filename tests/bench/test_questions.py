"""Questions from a folder: which are asked, and which answers count."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bench.task_suite.questions import NoQuestions, load
from bench.task_suite.results import Result, compare
from bench.task_suite.task import Outcome

pytestmark = pytest.mark.unit
NOW = datetime(2026, 3, 5, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {"id": 7, "question": "What is the mean?", "format": "@mean[x] @kind[y]", "file_name": "a.csv"},
        {"id": 8, "question": "And here?", "format": "@mean[x]", "file_name": "gone.csv"},
    ]
    labels = [{"id": n, "common_answers": [["mean", "34.65"], ["kind", "linear"]]} for n in (7, 8)]
    (tmp_path / "da-dev-questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "da-dev-labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    (tmp_path / "da-dev-tables").mkdir()
    (tmp_path / "da-dev-tables" / "a.csv").write_bytes(b"x\n\xff\n")
    return tmp_path


def test_a_question_has_its_table_and_its_answer_is_judged_by_every_mark(folder: Path, tmp_path: Path) -> None:
    (task,) = load(folder)
    assert "Format: @mean[x] @kind[y]" in task.prompt
    work = tmp_path / "work"
    work.mkdir()
    task.lay(work)
    assert (work / "a.csv").read_bytes() == b"x\n\xff\n"

    def why(answer: str) -> str | None:
        return task.check(Outcome(prompt="", answer=answer, workspace=work, actions=0, began=NOW, ended=NOW))

    assert why("It is @mean[34.650] and @kind[linear]") is None
    assert why("@mean[34.65]") == "@kind is None and not 'linear'"
    assert why("@mean[34.66] @kind[linear]") == "@mean is '34.66' and not '34.65'"
    (work / "a.csv").write_text("x")
    assert why("@mean[34.65] @kind[linear]") == "a.csv was changed or removed"


def test_a_folder_without_questions_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoQuestions, match=r"must hold one file \*questions.jsonl, and holds 0"):
        load(tmp_path)


def result(task: str, why: str | None, tokens: int) -> Result:
    spent = {"prompt_tokens": tokens, "completion_tokens": 1, "requests": 2, "cut": 0, "actions": 1}
    rest = {"answer": "", "ended": "done", "note": "", "seconds": 1.0, "model_s": 1.5}
    return Result(arm="pinfold", task=task, kind="questions", half="dev", why=why, **spent, **rest)  # pyright: ignore[reportArgumentType]


def test_two_runs_are_compared_on_what_both_have_tried() -> None:
    before = [result("a", None, 99), result("b", "no", 99), result("c", None, 5)]
    after = [result("a", None, 49), result("b", None, 49)]
    told = compare({"before": before, "after": after}).splitlines()
    assert told[0].startswith("| 2 tasks |")
    assert told[2:4] == ["| before | 1 | 200 | 200 | 4 | 3 s |", "| after | 2 | 100 | 50 | 4 | 3 s |"]
    assert told[-1] == "only after: b"
