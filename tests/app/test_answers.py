"""Answers that must be JSON of a given form: what is taken, what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.app import ConfigError
from pinfold.app.session.answers import LARGEST, AnswerForm, read_schema

pytestmark = pytest.mark.unit

TOTAL = AnswerForm({"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]})
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"total": 3}', ""),
        ('\n {"total": 3.5}\n', ""),
        ('Here it is:\n```json\n{"total": 3}\n```\nAnything else?', ""),
        ("three", "must be JSON alone, and this is not: Expecting value"),
        ('{"total": 3} and more', "must be JSON alone"),
        ('{"total": NaN}', "NaN is not JSON"),
        ('```json\n{"total": 3}\n```\n```json\n{"total": 4}\n```', "must be JSON alone"),
        ("[" * 100_000, "nested too deeply"),
        ('{"total": "3"}', "$.total: '3' is not of type 'number'"),
        ("{}", "'total' is a required property"),
    ],
)
def test_an_answer_is_taken_or_its_fault_is_named(text: str, fault: str) -> None:
    said = TOTAL.fault(text)
    assert fault in said
    assert bool(said) == bool(fault)


@settings(max_examples=30)
@given(values)
def test_whatever_json_fits_is_given_as_it_was_written(value: Any) -> None:
    form = AnswerForm({"const": value})
    text = json.dumps(value, indent=1)
    for written in (text, f"```json\n{text}\n```", f" {text}\n"):
        assert form.fault(written) == ""
        assert form.finish_answer(written) == text


def test_a_long_fault_is_bounded() -> None:
    form = AnswerForm({"type": "array", "items": {"type": "string"}})
    said = form.fault(json.dumps([["x" * 10_000]] * 100))
    assert len(said) < 2500
    assert said.endswith("; and more")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x", "is not JSON: Expecting value"),
        (b"\xff", "is not JSON"),
        (b"[]", "must be an object"),
        (b'{"type": 5}', "is not a JSON Schema: $.type"),
        (b'{"pattern": "["}', "is not a 'regex'"),
        (b'{"$ref": "http://example.org/x"}', "nothing is fetched: put it under $defs"),
        (b'{"$ref": "#/$defs/missing"}', "refers to '/$defs/missing', which is not in it"),
        (b" " * (LARGEST + 1), "too large"),
    ],
)
def test_a_bad_schema_is_refused_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "schema.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_schema(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_schema_may_refer_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    tree = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"}
    path.write_text(json.dumps(tree), encoding="utf-8")
    form = AnswerForm(read_schema(path))
    assert form.fault("[[], [[]]]") == ""
    assert "is not of type 'array'" in form.fault("[[], [3]]")
