"""Types of arguments and results, read from JSON schemas and checked with what Python makes of them."""

from __future__ import annotations

import json
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest
from tests.tools.stubs.guest import assert_only_declares, imported, placed
from tests.tools.stubs.known_tools import known_tools, made

from pinfold.tools.stubs.forms import form_of
from pinfold.tools.stubs.modules import local_name, module_source, signature
from pinfold.tools.stubs.shapes import annotation, identifiers

pytestmark = pytest.mark.unit

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
POINT = {"type": "object", "properties": {"x": INTEGER, "y": INTEGER}, "required": ["x"]}
NODE = {"type": "object", "properties": {"up": {"$ref": "#/$defs/Node"}, "id": INTEGER}, "required": ["id"]}

TABLE: list[tuple[Any, str]] = [
    (STRING, "str"),
    (INTEGER, "int"),
    ({"type": "number"}, "float"),
    ({"type": "boolean"}, "bool"),
    (NULL, "None"),
    ({}, "Any"),
    (True, "Any"),
    (False, "Any"),
    (None, "Any"),
    ({"type": "elephant"}, "Any"),
    ({"type": 7}, "Any"),
    ({"type": ["string", "null"]}, "str | None"),
    ({"type": ["null", "integer", "string"]}, "int | str | None"),
    ({"type": "string", "nullable": True}, "str | None"),
    ({"enum": ["open", "closed"]}, "Literal['open', 'closed']"),
    ({"enum": ["a", None]}, "Literal['a'] | None"),
    ({"enum": [1, True, "1"]}, "Literal[1, True, '1']"),
    ({"enum": [1.5, 2.5]}, "float"),
    ({"enum": [[1], {"a": 1}]}, "list[Any] | dict[str, Any]"),
    ({"enum": []}, "Any"),
    ({"type": "string", "enum": [f"v{number}" for number in range(41)]}, "str"),
    ({"enum": ["x" * 81, "y"]}, "str | Literal['y']"),
    ({"const": "fixed"}, "Literal['fixed']"),
    ({"const": 1 << 64}, "int"),
    ({"type": "string", "oneOf": [{"const": "a"}, {"const": "b"}]}, "Literal['a', 'b']"),
    ({"type": "array", "items": STRING}, "list[str]"),
    ({"type": "array"}, "list[Any]"),
    ({"items": INTEGER}, "list[int]"),
    ({"type": "array", "prefixItems": [STRING, INTEGER], "items": False}, "tuple[str, int]"),
    ({"type": "array", "prefixItems": [STRING, INTEGER], "maxItems": 2}, "tuple[str, int]"),
    ({"type": "array", "items": [STRING, INTEGER], "additionalItems": False}, "tuple[str, int]"),
    ({"type": "array", "prefixItems": [STRING], "items": INTEGER}, "list[str | int]"),
    ({"type": "array", "prefixItems": [STRING]}, "list[Any]"),
    ({"anyOf": [STRING, INTEGER]}, "str | int"),
    ({"oneOf": [NULL, {"type": "array", "items": STRING}]}, "list[str] | None"),
    ({"anyOf": [STRING, {}]}, "Any"),
    ({"anyOf": [{"anyOf": [STRING, NULL]}, STRING]}, "str | None"),
    ({"type": "object"}, "dict[str, Any]"),
    ({"type": "object", "additionalProperties": INTEGER}, "dict[str, int]"),
    ({"type": "object", "additionalProperties": True}, "dict[str, Any]"),
    ({"type": "object", "patternProperties": {"^x": STRING}}, "dict[str, str]"),
    (POINT, "GoValue"),
    ({"properties": {"x": INTEGER}}, "GoValue"),
    ({"type": "array", "items": POINT}, "list[GoValue]"),
    ({"type": ["object", "null"], "properties": {"x": INTEGER}}, "GoValue | None"),
    ({"anyOf": [POINT, {"type": "object", "properties": {"z": STRING}}]}, "GoValue | GoValue2"),
    ({"$ref": "#/$defs/Point"}, "Point"),
    ({"$ref": "#/definitions/Old"}, "str"),
    ({"$ref": "#/$defs/odd~1name%20x"}, "OddNameX"),
    ({"$ref": "#/$defs/Node"}, "Node"),
    ({"$ref": "#/$defs/Loop"}, "Any"),
    ({"$ref": "#/$defs/Ping"}, "Any"),
    ({"$ref": "#/$defs/Tree"}, "int | list[Any]"),
    ({"$ref": "#/properties/other"}, "int"),
    ({"$ref": "#/nowhere"}, "Any"),
    ({"$ref": "https://example.com/schema.json"}, "Any"),
    ({"$ref": 5}, "Any"),
    ({"allOf": [{"$ref": "#/$defs/Point"}], "description": "d"}, "Point"),
    ({"allOf": [POINT, {"properties": {"z": STRING}, "required": ["z"]}]}, "GoValue"),
    ({"allOf": [STRING, {"minLength": 3}]}, "str"),
    ({"type": "object", "properties": {"x": INTEGER}, "anyOf": [{"required": ["x"]}]}, "GoValue"),
    ({"type": "string", "format": "binary"}, "bytes"),
    ({"type": "string", "format": "byte"}, "bytes"),
    ({"type": "string", "contentEncoding": "base64"}, "bytes"),
    ({"type": "string", "format": "date-time"}, "str"),
    ({"contentMediaType": "application/vnd.apache.arrow.stream"}, "Any"),
]  # fmt: skip
DEFS = {
    "Point": POINT,
    "Node": NODE,
    "odd/name x": {"type": "object", "properties": {"odd key": STRING}},
    "Loop": {"$ref": "#/$defs/Loop"},
    "Ping": {"$ref": "#/$defs/Pong"},
    "Pong": {"$ref": "#/$defs/Ping"},
    "Tree": {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#/$defs/Tree"}}]},
}


def _tool(schema: Any, name: str = "go") -> Any:
    parameters = {
        "type": "object",
        "properties": {"value": schema, "other": INTEGER},
        "required": ["value"],
        "$defs": DEFS,
        "definitions": {"Old": STRING},
    }
    return made(f"s.{name}", "", parameters, server="s", returns=None)


@pytest.mark.parametrize(("schema", "expected"), TABLE, ids=lambda one: one if isinstance(one, str) else "")
def test_a_schema_has_a_type_that_python_agrees_with(schema: Any, expected: str) -> None:
    tool = _tool(schema)
    (value, _) = form_of(tool, "go").parameters
    assert annotation(value.type) == expected
    source = module_source("s", "", [tool])
    assert assert_only_declares(source) == 1
    with imported(source) as (module, _):
        hints = typing.get_type_hints(module.go)
        assert hints["value"] == (type(None) if expected == "None" else eval(expected, module.__dict__))


def test_an_objects_keys_are_those_of_a_typed_dict() -> None:
    schema = {"type": "object", "properties": {"a-b": STRING, "class": INTEGER, "__x": POINT}, "required": ["a-b"]}
    with imported(module_source("s", "", [_tool(schema)])) as (module, _):
        made_of = module.GoValue
        assert made_of.__required_keys__ == {"a-b"}
        assert made_of.__optional_keys__ == {"class", "__x"}
        assert typing.get_type_hints(made_of) == {"a-b": str, "class": int, "__x": module.GoValueX}


def test_an_object_that_holds_itself_is_a_type_that_names_itself() -> None:
    with imported(module_source("s", "", [_tool({"$ref": "#/$defs/Node"})])) as (module, _):
        assert typing.get_type_hints(module.Node) == {"up": module.Node, "id": int}


def test_objects_that_lead_to_each_other_are_types_that_name_each_other() -> None:
    parameters = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {
            "A": {"type": "object", "properties": {"b": {"type": "array", "items": {"$ref": "#/$defs/B"}}}},
            "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "root": {"$ref": "#"}}},
        },
    }
    with imported(module_source("s", "", [made("go", "", parameters, server="s")])) as (module, _):
        assert typing.get_type_hints(module.A)["b"] == list[module.B]
        assert typing.get_type_hints(module.B)["a"] is module.A


def test_the_same_object_in_two_tools_is_one_type_and_another_of_that_name_is_not() -> None:
    def returning(schema: Any) -> dict[str, Any]:
        return {"type": "array", "items": {"$ref": "#/$defs/Point"}, "$defs": {"Point": schema}}

    flat = {"type": "object", "properties": {"x": STRING}}
    tools = [
        made("first", "", {"type": "object"}, server="s", returns=returning(POINT)),
        made("second", "", {"type": "object"}, server="s", returns=returning(POINT)),
        made("third", "", {"type": "object"}, server="s", returns=returning(flat)),
    ]
    source = module_source("s", "", tools)
    assert source.count("TypedDict(") == 2
    with imported(source) as (module, _):
        assert typing.get_type_hints(module.first)["return"] == list[module.Point]
        assert typing.get_type_hints(module.second)["return"] == list[module.Point]
        assert typing.get_type_hints(module.third)["return"] == list[module.Point2]


def test_a_type_does_not_take_a_tools_name() -> None:
    tools = [made("Point", "", {"type": "object"}, server="s"), _tool({"$ref": "#/$defs/Point"})]
    with imported(module_source("s", "", tools)) as (module, _):
        assert module.Point.__name__ == "Point"
        assert typing.get_type_hints(module.go)["value"] is module.Point2


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"type": "object"}, "go() -> Any"),
        ({}, "go(**arguments: Any) -> Any"),
        ({"type": "string"}, "go(**arguments: Any) -> Any"),
        ({"type": "object", "additionalProperties": INTEGER}, "go(**arguments: int) -> Any"),
        (
            {"type": "object", "properties": {"more": STRING}, "additionalProperties": True},
            "go(more: str = ..., **more_: Any) -> Any",
        ),
        (
            {"type": "object", "properties": {"b": INTEGER, "a": STRING}, "required": ["a"]},
            "go(a: str, b: int = ...) -> Any",
        ),
        ({"type": "object", "properties": {}, "required": ["ghost"]}, "go(ghost: Any) -> Any"),
        (
            {"type": "object", "properties": {"from": STRING, "from_": STRING, "a b": INTEGER, "locals": INTEGER}},
            "go(from__2: str = ..., from_: str = ..., a_b: int = ..., locals_: int = ...) -> Any",
        ),
        (
            {"type": "object", "properties": {"n": {"type": "integer", "default": 5}}, "required": ["n"]},
            "go(n: int = 5) -> Any",
        ),
        ({"type": "object", "properties": {"n": {"type": "integer", "default": None}}}, "go(n: int = ...) -> Any"),
        ({"type": "object", "properties": {"n": {"type": "integer", "default": "5"}}}, "go(n: int = ...) -> Any"),
        ({"type": "object", "properties": {"n": {"enum": ["a"], "default": "b"}}}, "go(n: Literal['a'] = ...) -> Any"),
        (
            {"type": "object", "properties": {"n": {"type": "array", "items": STRING, "default": ["a", "b"]}}},
            "go(n: list[str] = ['a', 'b']) -> Any",
        ),
        (
            {"type": "object", "properties": {"n": {"type": "number", "default": float("inf")}}},
            "go(n: float = ...) -> Any",
        ),
        ({"type": "object", "properties": {"n": {"default": "x" * 300}}}, "go(n: Any = ...) -> Any"),
        (
            {"$ref": "#/$defs/Args", "$defs": {"Args": {"type": "object", "properties": {"a": STRING}}}},
            "go(a: str = ...) -> Any",
        ),
        (
            {
                "oneOf": [
                    {"properties": {"kind": {"const": "a"}, "x": STRING}, "required": ["kind", "x"]},
                    {"properties": {"kind": {"const": "b"}, "y": STRING}, "required": ["kind"]},
                ]
            },
            "go(kind: Literal['a', 'b'], x: str = ..., y: str = ...) -> Any",
        ),
    ],
)
def test_parameters_are_those_a_caller_can_write(parameters: Any, expected: str) -> None:
    tool = made("go", "", parameters, server="s")
    assert signature(tool, "go") == expected
    assert assert_only_declares(module_source("s", "", [tool])) == 1


def test_parameters_beyond_a_bound_are_given_by_name_and_none_that_is_required_is_lost() -> None:
    properties = {f"p{number}": INTEGER for number in range(100)}
    tool = made("go", "", {"type": "object", "properties": properties, "required": ["p99"]}, server="s")
    form = form_of(tool, "go")
    assert len(form.parameters) == 64
    assert form.parameters[0].name == "p99"
    with imported(module_source("s", "", [tool])) as (module, calls):
        module.go(1, p98=2, p0=3)
        assert calls == [["go", {"p99": 1, "p98": 2, "p0": 3}]]


def test_the_result_is_named_after_its_title_or_its_tool() -> None:
    titled = made("go", "", {"type": "object"}, server="s", returns={**POINT, "title": "Place"})
    assert signature(titled, "go") == "go() -> Place"
    untitled = made("go", "", {"type": "object"}, server="s", returns={**POINT, "title": "a title; of sorts"})
    assert signature(untitled, "go") == "go() -> GoResult"


@pytest.mark.slow
@pytest.mark.integration
def test_pyright_finds_nothing_wrong_in_modules_and_something_in_a_wrong_call(tmp_path: Path) -> None:
    every = [_tool(schema, f"go{number}") for number, (schema, _) in enumerate(TABLE)]
    servers = {tool.server for tool in known_tools()}
    sources = {
        server: module_source(server, "", [tool for tool in known_tools() if tool.server == server])
        for server in servers
    }
    placed(tmp_path, table=module_source("s", "", every), **sources)
    names = identifiers([local_name(tool) for tool in every])
    assert len(names) == len(TABLE) > 60
    (tmp_path / "right.py").write_text(
        "from servers.github import list_issues\nfrom servers.filesystem import edit_file\n"
        "from servers.table import go42\n"
        "list_issues('a', 'b', state='open', labels=['x'])\n"
        "edit_file('p', [{'oldText': 'a', 'newText': 'b'}])\ngo42({'x': 1})\n",
        encoding="utf-8",
    )
    (tmp_path / "wrong.py").write_text(
        "from servers.github import list_issues\nfrom servers.filesystem import edit_file\n"
        "from servers.table import go42\n"
        "list_issues('a', 'b', state='ajar')\nedit_file('p', [{'oldText': 'a'}])\nlist_issues('a')\ngo42({'x': 'a'})\n",
        encoding="utf-8",
    )
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}', encoding="utf-8")
    command = [Path(sys.executable).with_name("pyright"), "--outputjson", "--pythonpath", sys.executable, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=200)
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == len(servers) + 6
    wrong = [(Path(one["file"]).name, one["range"]["start"]["line"]) for one in said["generalDiagnostics"]]
    assert sorted(set(wrong)) == [("wrong.py", 3), ("wrong.py", 4), ("wrong.py", 5), ("wrong.py", 6)]
