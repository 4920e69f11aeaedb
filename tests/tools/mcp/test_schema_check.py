"""Schemas that strangers wrote: what they say is checked, and none of them can keep us busy."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.tools.mcp.schema_check import WORK_S, Shape, arguments_of

pytestmark = pytest.mark.safety

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 3, "maximum": 9},
        "unit": {"enum": ["kg", "lb"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
    },
    "required": ["count"],
    "additionalProperties": False,
    "$defs": {"row": {"type": "object", "required": ["id"], "properties": {"id": {"const": 1}}}},
}


FAULTS: list[tuple[Any, tuple[str, ...]]] = [
    ({"count": 3}, ()),
    ({"count": 3, "note": None, "unit": "kg", "rows": [{"id": 1}]}, ()),
    ({}, ("'count' is missing",)),
    ({"count": 1}, ("'count' should be at least 3, not 1",)),
    ({"count": 10}, ("'count' should be at most 9, not 10",)),
    ({"count": "x"}, ("'count' should be integer, not \"x\"",)),
    ({"count": True}, ("'count' should be integer, not true",)),
    ({"count": 3, "unit": "t"}, ('\'unit\' should be one of "kg", "lb", not "t"',)),
    ({"count": 3, "note": 4}, ("'note' fits none of its allowed forms: 4",)),
    ({"count": 3, "rows": [{}]}, ("'rows.0.id' is missing",)),
    ({"count": 3, "rows": [{"id": 2}]}, ("'rows.0.id' should be exactly 1, not 2",)),
    ({"count": 3, "unti": "kg"}, ("unknown 'unti'; did you mean 'unit'?",)),
    ({"count": 3, "zzz": 1}, ("unknown 'zzz'; there is count, unit, note, rows",)),
    ([], ("it should be object, not []",)),
]


@pytest.mark.parametrize(("value", "faults"), FAULTS)
def test_what_does_not_fit_is_said_in_plain_words(value: Any, faults: tuple[str, ...]) -> None:
    assert Shape(SCHEMA).faults(value) == faults


def test_many_faults_are_cut_short() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    found = Shape(schema).faults(["x"] * 1000)
    assert len(found) == 6
    assert found[-1] == "and more"


def _doubling(depth: int) -> dict[str, Any]:
    """Twice as long to check with each step."""
    steps: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{depth}": {"type": "string"}}}


HOSTILE: dict[str, tuple[dict[str, Any], Any]] = {
    "a pattern that backtracks for ever": ({"pattern": "^(a+)+$"}, "a" * 60 + "b"),
    "the same among the properties": ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 60 + "b": 1}),
    "the same behind additional properties": (
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"a" * 60 + "b": 1},
    ),
    "the same in another dialect": (
        {"properties": {"s": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}}},
        {"s": "a" * 60 + "b"},
    ),
    "the same as names": ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 60 + "b": 1}),
    "everything twice, sixty times": (_doubling(60), 3),
    "itself": ({"$ref": "#"}, 3),
    "a page of somebody's": ({"$ref": "https://evil.example/schema.json"}, 3),
    "all with all": ({"uniqueItems": True}, [[n] for n in range(20_000)]),
    "very deep": ({"items": {"items": {}}}, 3),
    "no schema": ({"type": "nonsense"}, 3),
    "no pattern": ({"pattern": "("}, "x"),
    "no number": ({"minimum": "x"}, 3),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_schema_keeps_us_busy_or_raises(name: str) -> None:
    schema, value = HOSTILE[name]
    began = time.thread_time()
    assert Shape(schema).faults(value) == ()
    assert time.thread_time() - began < WORK_S + 20


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_words = st.sampled_from(
    ["type", "properties", "required", "items", "$ref", "anyOf", "enum", "minimum", "if", "not", "$defs", "const"]
)


@given(st.dictionaries(_words, _json | st.sampled_from(["string", "#", "object"]), max_size=5), _json)
def test_no_schema_and_no_value_raises(schema: dict[str, Any], value: Any) -> None:
    assert all("\n" not in fault for fault in Shape(schema).faults(value))
    arguments_of(schema)
