"""Whatever a server says of its tools, importing them runs none of it, ends soon, and calls send what was given."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.tools.stubs.guest import assert_only_declares, imported, run_apart
from tests.tools.stubs.known_tools import made

from pinfold.tools import Tool
from pinfold.tools.search import Index
from pinfold.tools.stubs.modules import module_source, signature
from pinfold.tools.stubs.shapes import identifiers

pytestmark = pytest.mark.safety

OWN = re.compile(
    # Its imports, and names of types that `typing` looks at because they stand in quotes.
    r"""import '(?:typing|_pinfold_guest(?:\.servers)?)'|compile b?'(?:list\[|dict\[str, |tuple\[|[A-Z]\w+|None|[], |])*'"""
)
CODE = "__import__('builtins').canary()"
TEXTS = [
    CODE,
    f'"""\n{CODE}\n"""',
    f"'''\n{CODE}\n'''",
    f"'\n{CODE}\n'",
    f"\\\n{CODE}",
    f"\\'); {CODE}; ('",
    f"x): pass\n{CODE}\ndef y(",
    f"x']\n{CODE}\n#",
    f"{{{CODE}}}",
    f"\r{CODE}\r",
    f"\x0c{CODE}\x0b\x1c\x1d\x85\u2028{CODE}\u2029",
    f"\x00{CODE}\x00",
    f"\ud800{CODE}\udfff",
    f"\u202e{CODE}\u2066",
    "# -*- coding: utf-7 -*-\n+AAo-canary()",
    "\\N{LATIN SMALL LETTER A}\\x41\\u0041\\",
    "%s%(a)s{0}{a.__class__}",
    "\U000e0041\U0010ffff\ufeff",
    "a" * 100_000,
    "é" * 3_000,
    "_call",
    "_OMITTED",
    "__all__",
    "__builtins__",
    "__getattr__",
    "__dir__",
    "TypedDict",
    "Literal",
    "str",
    "print",
    "canary",
    "lambda",
    "None",
    "",
]


def _deep(levels: int, around: str) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {
            "items": {"type": "array", "items": schema},
            "properties": {"type": "object", "properties": {"a": schema}},
            "anyOf": {"anyOf": [schema, {"type": "null"}]},
            "allOf": {"allOf": [schema, {"type": "object"}]},
        }[around]
    return schema


def _endless() -> Any:
    """Not from JSON, but from a library that builds schemas."""
    schema: dict[str, Any] = {"type": "object", "properties": {}, "anyOf": []}
    schema["properties"]["again"] = schema
    schema["anyOf"].append(schema)
    return schema


VALUES = [
    None, True, False, 0, -1, 5, 1 << 70, 10**4000, 1.5, -0.0, float("nan"), float("inf"), 1e308,
    [], {}, [[[[[[[[1]]]]]]]], {"a": {"b": [CODE]}}, [CODE], {CODE: CODE}, *TEXTS,
]  # fmt: skip


def _about(text: str) -> Any:
    """One text wherever a server can put one."""
    return {
        "type": "object",
        "title": text,
        "description": text,
        "properties": {
            text: {"type": "object", "title": text, "properties": {text: {"const": text}}, "description": text},
            f"{text} enum": {"enum": [text, f"{text}!"], "default": text, "description": text},
            f"x{text}": {"type": "string", "default": text, "format": text, "$ref": f"#/$defs/{text}"},
            f"{text}ref": {"$ref": f"#/$defs/{text}"},
            f"{text} list": {"type": "array", "items": {"type": text}, "default": [text, {text: [text]}]},
            f"{text} any": {"default": {text: text}},
        },
        "required": [text, f"{text} missing"],
        "$defs": {text: {"type": "object", "properties": {text: {"$ref": f"#/$defs/{text}"}}}},
    }


@cache
def corpus() -> list[Tool[..., Any]]:
    tools: list[Tool[..., Any]] = []

    def add(schema: Any, name: str = "", description: str = "", returns: Any = None) -> None:
        name = (name or "tool") + f" {len(tools)}"
        tools.append(made(name[-150:], description, schema, server=CODE[:20], returns=returns))

    for text in TEXTS:
        add(_about(text), text, text, _about(text))
    for value in VALUES:
        add({"type": "object", "properties": {"v": {"default": value}, "e": {"enum": [value]}, "c": {"const": value}}})
        add({"type": "object", "properties": {"v": value}, "required": value, "additionalProperties": value})
        add({"type": value, "properties": {"v": {"type": value, "properties": value, "items": value}}})
        add({"properties": {"v": {"anyOf": value, "allOf": value, "enum": value, "$ref": value}}, "$defs": value})
        add({"allOf": [{"properties": value, "required": value}, {"properties": {"a": value}}], "oneOf": [value]})
    for around in ("items", "properties", "anyOf", "allOf"):
        for levels in (5, 50, 400):
            schema = _deep(levels, around)
            add({"type": "object", "properties": {"v": schema}}, returns=schema)
    add(_endless(), returns=_endless())
    wide = {f"key {number}": {"enum": [f"value {number} {other}" for other in range(100)]} for number in range(3_000)}
    add({"type": "object", "properties": wide, "required": list(wide)})
    add({"type": "object", "properties": {"v": {"type": "object", "properties": dict(list(wide.items())[:50])}}})
    add({"type": "object", "properties": {"v": {"enum": list(range(200_000)), "default": list(range(200_000))}}})
    chain = {f"D{number}": {"$ref": f"#/$defs/D{number + 1}"} for number in range(5_000)}
    add({"type": "object", "properties": {"v": {"$ref": "#/$defs/D0"}}, "$defs": chain})
    web = {
        f"W{number}": {
            "type": "object",
            "properties": {f"k{other}": {"$ref": f"#/$defs/W{other}"} for other in range(45)},
        }
        for number in range(45)
    }
    add(
        {"type": "object", "properties": {"v": {"$ref": "#/$defs/W0"}}, "$defs": web},
        returns={"$ref": "#/$defs/W0", "$defs": web},
    )
    doubling: Any = {"type": "string"}
    for _ in range(60):
        doubling = {"anyOf": [doubling, doubling], "allOf": [doubling, doubling]}
    add({"type": "object", "properties": {"v": doubling}}, returns=doubling)
    return tools


def test_a_hostile_manifest_runs_nothing_when_it_is_imported_called_and_shown(tmp_path: Path) -> None:
    tools = corpus()
    assert len(tools) > 200
    source = module_source(CODE, CODE, tools)
    assert assert_only_declares(source) == len(tools)
    seen = run_apart(tmp_path, source)
    began, *rest = [event for event in seen["ran"] if not OWN.fullmatch(event)]
    assert began.startswith("exec <code object <module>")
    assert rest == []
    assert len(seen["names"]) == seen["helped"] == len(tools)
    assert sorted(name for name, _ in seen["calls"]) == sorted(tool.name for tool in tools)


def test_each_hostile_tool_alone_makes_a_module_of_bounded_size_in_bounded_time() -> None:
    for tool in corpus():
        began = time.process_time()
        source = module_source(tool.server, tool.description, [tool])
        taken = time.process_time() - began
        assert assert_only_declares(source) == 1
        assert len(source) < 300_000
        assert taken < 10
        assert "\n" not in signature(tool, "go")


HIDDEN = "__all__ = []\ndef __dir__():\n    return list(__all__)\n"


@pytest.mark.parametrize(
    "careless",
    [
        f'"""{TEXTS[1]}"""\n{HIDDEN}',
        f"{HIDDEN}def go(a: str = {CODE}) -> Any:\n    ''\n    return _call('go', locals())\n",
        f"from typing import Any\n{HIDDEN}def go(a: ({CODE}, str)[1]) -> Any:\n    ''\n    return _call('go', {{}})\n",
        f"from typing import TypedDict\n{HIDDEN}X = TypedDict('X', {{'a': str, {CODE}: str}})\n",
        f"{HIDDEN}{CODE}\n",
    ],
)
def test_a_module_written_carelessly_is_found_out(tmp_path: Path, careless: str) -> None:
    careless = careless.replace("-> Any", "-> str")
    assert "canary" in run_apart(tmp_path, careless)["ran"]
    with pytest.raises(AssertionError):
        assert_only_declares(careless)


@pytest.mark.slow
def test_a_flood_of_tools_is_a_module_that_still_imports() -> None:
    schema = _about("some text")
    heavy = {"type": "object", "properties": {f"p{n}": {"enum": ["x" * 70] * 10} for n in range(60)}}
    tools = [made(f"t{n}", "words " * 1_000, heavy if n % 2 else schema, returns=schema) for n in range(6_000)]
    began = time.process_time()
    source = module_source("flood", "", tools)
    assert Index(tools).search("words")
    assert time.process_time() - began < 30
    assert len(source) < 2_500_000
    assert assert_only_declares(source) == 2_000
    assert "4,000 others are left out" in source
    with imported(source) as (module, calls):
        module.t1999(a=1)
        assert calls == [["t1999", {"a": 1}]]


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(TEXTS[:18]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.text(max_size=8) | st.sampled_from([*TEXTS[:14], "from", "a", "b", "locals", "more", "_call"])


def _list(items: Any) -> Any:
    return {"type": "array", "items": items}


def _tuple(items: Any) -> Any:
    return {"type": "array", "prefixItems": items, "items": False}


def _union(key: Any, parts: Any) -> Any:
    return {key: parts}


def _object(fields: Any, required: Any, default: Any) -> Any:
    return {"type": "object", "properties": fields, "required": required, "default": default}


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=3)
    fields = st.dictionaries(names, inner, max_size=4)
    return (
        st.builds(_list, inner)
        | st.builds(_tuple, several)
        | st.builds(_union, st.sampled_from(["anyOf", "oneOf", "allOf", "enum"]), several)
        | st.builds(_object, fields, st.lists(names, max_size=3), json_values)
    )


LEAVES: list[Any] = [
    *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null", "array", "object")),
    *({"$ref": f"#/$defs/{name}"} for name in "AB"),
]
SCHEMAS: st.SearchStrategy[Any] = st.recursive(st.sampled_from(LEAVES) | json_values, _wider, max_leaves=12)
PROPERTIES = st.dictionaries(names, SCHEMAS, max_size=4)
NAMES = st.lists(names, max_size=3, unique=True)


@st.composite
def _tools(draw: st.DrawFn) -> list[Tool[..., Any]]:
    found: list[Tool[..., Any]] = []
    for name in draw(NAMES):
        properties = draw(PROPERTIES)
        defs: dict[str, Any] = {"A": draw(SCHEMAS), "B": draw(SCHEMAS)}
        parameters = {"type": "object", "properties": properties, "required": draw(NAMES), "$defs": defs}
        returns: Any = {"$ref": "#/$defs/A", "$defs": defs}
        found.append(made(name, draw(names), parameters, server="s", returns=returns))
    return found


@settings(max_examples=150)
@given(_tools())
@example([])
def test_any_schema_makes_a_module_that_only_declares_and_sends_what_it_was_given(tools: list[Tool[..., Any]]) -> None:
    source = module_source("s", "", tools)
    source.encode("utf-8")
    assert assert_only_declares(source) == len(tools)
    called = identifiers([tool.name for tool in tools])
    with imported(source) as (module, calls):
        assert sorted(dir(module)) == sorted(called.values())
        for tool in tools:
            function = getattr(module, called[tool.name])
            required = function.__code__.co_argcount - len(function.__defaults__ or ())
            function(*range(required))
            name, args = calls.pop()
            assert name == tool.name
            sure = {key for key in tool.schema.parameters["required"] if len(repr(key)) <= 100}
            assert sure <= args.keys() <= sure | set(tool.schema.parameters["properties"])


@settings(max_examples=40)
@given(_tools(), st.text(max_size=30) | st.sampled_from(TEXTS))
def test_any_tools_can_be_searched_with_any_words(tools: list[Tool[..., Any]], words: str) -> None:
    lines = Index(tools).search(words)
    assert 1 <= len(lines) <= 8
    text = "\n".join(lines)
    text.encode("utf-8")
    assert not any(sign in text for sign in "\x00\x1b\u202e\u2066\r")


def test_hostile_tools_can_be_searched_and_every_answer_is_short() -> None:
    index = Index(corpus())
    answers = 0
    for words in [*TEXTS, "tool", "value", "canary import builtins", "a " * 1_000]:
        began = time.process_time()
        lines = index.search(words)
        assert time.process_time() - began < 5
        assert all(len(line) < 4_000 for line in lines)
        assert not any(sign in "\n".join(lines) for sign in "\x00\x1b\u202e\u2066\ud800")
        answers += len(lines)
    assert answers > 100
