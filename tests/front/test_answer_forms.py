"""`pinfold run` with a prompt that asks for a form, in the real sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration
Pinfold = Callable[..., Any]
FARE = 'What is the mean of 1, 2 and 6? Format: @mean[value] where "value" is a number.'


def test_a_printed_answer_ends_the_run_and_the_result_says_so(pinfold: Pinfold, script: Any, cell: Any) -> None:
    code = "import sys, statistics\nprint('a warning', file=sys.stderr)\nprint('3 values')\nprint(f'@mean[{statistics.mean([1, 2, 6])}]')"
    model = script(cell(code), {"text": "never asked"})
    done = pinfold("run", "--model", model, "--json", FARE)
    assert done.code == 0, done.err
    assert (done.events[-1]["text"], done.events[-1]["printed"]) == ("@mean[3]", True)
    assert len(done.of_kind("ModelCalled")) == 1
    plain = pinfold("run", "--model", model, "-q", "--ephemeral", FARE)
    assert (plain.code, plain.out) == (0, "@mean[3]\n")


def test_json_that_is_valid_against_the_schema_is_the_answer_once_it_is_printed(
    pinfold: Pinfold, script: Any, cell: Any, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    total = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    schema.write_text(json.dumps(total), encoding="utf-8")
    model = script(
        cell("import json\nprint(json.dumps({'total': 'three'}))"),
        cell("print(json.dumps({'total': 3}))", expect="three"),
        {"text": "never asked"},
    )
    done = pinfold("run", "--model", model, "--output-schema", str(schema), "--json", "count")
    assert (done.events[-1]["text"], done.events[-1]["printed"]) == ('{"total": 3}', True), done.err


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ("What is the mean of 1, 2 and 6?", "print('@mean[3]')"),
        (FARE, "print('The mean is @mean[3].')"),
        (FARE, "print('@mean[3]')\n1 / 0"),
        (FARE, "print('@mean[3]')\n'seen'"),
    ],
)
def test_output_that_is_not_the_asked_form_and_nothing_else_goes_to_the_model(
    pinfold: Pinfold, script: Any, cell: Any, prompt: str, code: str
) -> None:
    model = script(cell(code), {"text": "So it is @mean[3]", "expect": "@mean[3]"})
    done = pinfold("run", "--model", model, "--json", "--ephemeral", prompt)
    assert done.events[-1]["text"] == "So it is @mean[3]", done.err
    assert done.events[-1]["printed"] is False


def test_an_answer_without_the_form_is_asked_for_again_with_the_reason(pinfold: Pinfold, script: Any) -> None:
    model = script(
        {"text": "The mean is 3"},
        {"text": "@mean[3]", "expect": "@mean[...] is missing. Answer again in exactly this form: @mean[value]"},
    )
    done = pinfold("run", "--model", model, "-q", "--ephemeral", FARE)
    assert (done.code, done.out) == (0, "@mean[3]\n"), done.err
