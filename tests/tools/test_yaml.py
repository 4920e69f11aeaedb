"""Tools declared in YAML: how files are read, and what is said of one that is no tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.tools import BadTool, Registry, Tool, ToolFailed
from pinfold.tools.declared.requests import select
from pinfold.tools.declared.tools import load_folder, load_yaml, yaml_tool
from pinfold.tools.ports import Ports

pytestmark = pytest.mark.unit
EXAMPLES = Path(__file__).parents[2] / "examples" / "tools"


def made(text: str) -> Tool[..., Any]:
    return yaml_tool(text.encode(), "t.yaml", Ports())


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples come with the checkout")
def test_every_example_is_a_tool() -> None:
    loaded = load_folder(EXAMPLES, Ports())
    assert loaded.faults == ()
    found = {tool.name: (tool.effect, tool.reach, tool.trust, tool.reach_of({})[1]) for tool in loaded.tools}
    assert found == {
        "git_log": ("pure", "files", "untrusted", ""),
        "github_issues": ("keyed", "network", "untrusted", "api.github.com:443"),
        "json_keys": ("pure", "nothing", "untrusted", ""),
        "send_note": ("once", "network", "untrusted", "board.example.com:443"),
        "word_count": ("pure", "files", "untrusted", ""),
    }


SIMPLE = """
name: find
description: Find it.
parameters:
  what: {type: string, description: The words}
  deep: {type: int, default: 2}
  kind: {enum: [file, folder], required: false}
command: [find, "{what}", "{deep}", "{kind}"]
"""
LISTED = """
name: find
description: Find it.
parameters:
  - {name: what, type: str, description: The words, required: true}
  - {name: deep, type: integer, default: 2}
  - {name: kind, type: string, enum: [file, folder], required: false}
command: find {what} {deep} {kind}
"""
SCHEMA = """
type: function
function:
  name: find
  description: Find it.
  parameters:
    type: object
    properties:
      what: {type: string, description: The words}
      deep: {type: integer, default: 2}
      kind: {type: string, enum: [file, folder]}
    required: [what]
    additionalProperties: false
command: ["find", "{what}", "{deep}", "{kind}"]
"""
MCP = SCHEMA.replace("type: function\nfunction:\n", "").replace("\n  ", "\n").replace("parameters:", "inputSchema:")


@pytest.mark.parametrize("text", [SIMPLE, LISTED, SCHEMA, MCP])
def test_parameters_may_be_written_in_every_usual_form(text: str) -> None:
    tool = made(text)
    assert (tool.effect, tool.trust, tool.reach, tool.parallel_safe, tool.cache) == (
        "once",
        "untrusted",
        "workspace",
        False,
        False,
    )
    assert tool.schema.parameters == {
        "type": "object",
        "properties": {
            "what": {"type": "string", "description": "The words"},
            "deep": {"type": "integer", "default": 2},
            "kind": {"type": "string", "enum": ["file", "folder"]},
        },
        "required": ["what"],
        "additionalProperties": False,
    }
    assert tool.check_arguments({"what": "x"}) == {"what": "x", "deep": 2, "kind": None}


def test_words_that_old_yaml_takes_for_truth_are_words() -> None:
    text = "name: t\ndescription: d\nparameters: {on: {enum: [yes, no, off], default: no}}\ncommand: [x, '{on}', y]"
    assert made(text).schema.parameters["properties"]["on"] == {
        "type": "string",
        "enum": ["yes", "no", "off"],
        "default": "no",
    }


async def test_arguments_are_checked_like_those_of_any_tool() -> None:
    registry = Registry([made(SIMPLE)])
    with pytest.raises(
        ToolFailed, match=r"'what' is missing \(The words\); unknown argument 'whta'; did you mean 'what'\?"
    ):
        await registry.call("find", {"whta": "x"})
    with pytest.raises(ToolFailed, match="'kind' should be 'file' or 'folder', not \"link\""):
        await registry.call("find", {"what": "x", "kind": "link"})
    with pytest.raises(ToolFailed, match="no program can be run in this session"):
        await registry.call("find", {"what": "x"})


HEAD = "name: t\ndescription: d\n"
HTTP = HEAD + "parameters: {a: string}\nhttp:\n  url: https://h.example/{a}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a", "should be an object, not a list"),
        ("", "should be an object, not nothing"),
        ("a: [", "line 1: "),
        ("a: 1\na: 2", "line 2: the key 'a' is given twice"),
        ("a: &x 1\nb: *x", "line 2: aliases (*name) are not supported; write the value out"),
        ("a: !!python/object/apply:os.system [id]", "line 1: could not determine a constructor for the tag"),
        ("1: x", "each key should be a text; put it in quotes"),
        ("description: d\ncommand: [ls]", "name: '' cannot be a tool's name"),
        ("name: a b\ncommand: [ls]", "name: 'a b' cannot be a tool's name"),
        ("name: t\ncommand: [ls]", "description: say in a sentence what the tool does"),
        (HEAD, "it needs `command`, a list of a program and its arguments, or `http`, a request; one of them"),
        (HEAD + "command: [ls]\nhttp: {url: https://x}", "it needs `command`"),
        (HEAD + "command: [ls]\neffct: pure", "has no key 'effct'; did you mean effect?"),
        (
            HEAD + "command: [ls]\neffect: pur",
            "effect: should be one of pure, keyed, once, not 'pur'",
        ),
        (HEAD + "command: [ls]\nreach: host", "reach: a command runs in the sandbox"),
        (HEAD + "command: [ls]\ncache: true", "cache: only a tool with `effect: pure` can be cached"),
        (HEAD + "command: [ls]\ntimeout_s: -1", "timeout_s: should be > 0"),
        (HEAD + "command: [ls]\nparallel_safe: maybe", "parallel_safe: should be true or false"),
        (HEAD + "command: ls | wc", "command: no shell runs it; write [bash, -c, "),
        (HEAD + "command: {a: b}", "command: should be a text or a list, not an object"),
        (HEAD + "command: [ls, true]", "command[1]: should be a number or a text, not true or false; put it in quotes"),
        (HEAD + "command: [ls, '{b}']", "command.1: no parameter is called 'b'; declare it, or write {{b}}"),
        (
            HEAD + "parameters: {path: string}\ncommand: [ls, '{pth}']",
            "command.1: no parameter is called 'pth'; did you mean {path}?",
        ),
        (HEAD + "parameters: {a: string}\ncommand: ['{a}']", "command.0: the program must be named here"),
        (
            HEAD + "parameters: {a: string}\ncommand: [bash, -c, 'ls {a}']",
            "command.2: a parameter inside a script would be run as code",
        ),
        (
            HEAD + "parameters: {a: string}\ncommand: [/usr/bin/python3, -c, '{a}']",
            "command.2: a parameter inside a script",
        ),
        (HEAD + "parameters: {a: string}\ncommand: [awk, '{a}', f]", "command.1: a parameter inside a script"),
        (
            HEAD + "parameters: {a: list}\ncommand: [ls, '{a}']",
            "command.1: 'a' is a list or an object and cannot fill one argument",
        ),
        (HEAD + "parameters: {a: string}\ncommand: [ls]", "parameters.a: it is never used; write {a} where it belongs"),
        (HEAD + "parameters: {a: strnig}\ncommand: [ls, '{a}']", "parameters.a.type: should be one of string, integer"),
        (
            HEAD + "parameters: {a: {type: int, default: x}}\ncommand: [ls, '{a}']",
            "parameters.a.default: should be of type integer, not 'x'",
        ),
        (
            HEAD + "parameters: {a: {type: string, enum: [true, no]}}\ncommand: [ls, '{a}']",
            "parameters.a.enum: True is not of type string; put it in quotes",
        ),
        (
            HEAD + "parameters: {a: {tpye: int}}\ncommand: [ls, '{a}']",
            "parameters.a: has no key 'tpye'; did you mean type?",
        ),
        (
            HEAD + "parameters: {a: {pattern: '('}}\ncommand: [ls, '{a}']",
            "parameters.a.pattern: is not a regular expression",
        ),
        (HEAD + "parameters: {a b: string}\ncommand: [ls]", "parameters: 'a b' is not a valid name"),
        (HEAD + "parameters: [{type: string}]\ncommand: [ls]", "parameters.0: each entry of the list needs a `name`"),
        (HEAD + "command: [ls, '${secret:K}']", "command.1: secrets are allowed in http.headers only"),
        (HEAD + "http:", "it needs `command`"),
        (HEAD + "http: {url: h.example/x}", "http.url: should be a full address"),
        (HEAD + "http: {url: 'ftp://h/x'}", "http.url: should be a full address"),
        (
            HEAD + "parameters: {h: string}\nhttp: {url: 'https://{h}/x'}",
            "http.url: the host '{h}' must be written out",
        ),
        (HEAD + "http: {url: 'https://user:pw@h/x'}", "http.url: the host 'user:pw@h' must be written out"),
        (HEAD + "http: {url: 'https://h/${secret:K}'}", "http.url: secrets are allowed in http.headers only"),
        (
            HEAD + "http: {url: 'https://h/', query: {k: '${secret:K}'}}",
            "http.query.k: secrets are allowed in http.headers only",
        ),
        (
            HEAD + "http: {url: 'https://h/', body: {k: '${secret:K}'}}",
            "http.body.k: secrets are allowed in http.headers only",
        ),
        (
            HEAD + "http: {url: 'http://h/', headers: {A: '${secret:K}'}}",
            "http.headers.A: a secret goes over https only",
        ),
        (
            HEAD + "http: {url: 'https://h/', headers: {A: '${secret:a b}'}}",
            "http.headers.A: 'a b' is not a valid name for a secret",
        ),
        (HEAD + "http: {url: 'https://h/', headers: {Host: x}}", "http.headers.Host: this header cannot be set"),
        (HEAD + 'http: {url: "https://h/", headers: {"A\\r\\nB": x}}', "http.headers.A"),
        (HEAD + "http: {url: 'https://h/', method: BREW}", "http.method: should be one of GET"),
        (HEAD + "http: {url: 'https://h/', method: get, body: {a: 1}}", "http.body: GET requests have none; use POST"),
        (HEAD + "http: {url: 'https://h/', body: '{\"a\": 1}'}", "http.body: write JSON as YAML keys and values"),
        (HEAD + "http: {url: 'https://h/', body: {a: 1}, form: {b: c}}", "http.form: there is a `body` too"),
        (
            HEAD + "http: {url: 'https://h/', max_bytes: 1000000000000}",
            "http.max_bytes: should be <= 50000000",
        ),
        (HEAD + "http: {url: 'https://h/', uri: x}", "http: has no key 'uri'; did you mean url?"),
        (HTTP + "effect: pure", "effect: a request leaves this machine: keyed if it may be repeated, else once"),
        (HTTP + "reach: files", "reach: a request reaches the network, not files"),
        (HEAD + "command: [ls]\nx: " + "[" * 30 + "]" * 30, "it is nested deeper than 20"),
        (HEAD + "command: [ls]\nx: " + "y" * 70_000, "bytes; a tool has at most 64,000"),
    ],
)
def test_a_fault_names_file_key_and_fix_in_one_line(text: str, words: str) -> None:
    with pytest.raises(BadTool) as caught:
        made(text)
    assert str(caught.value).startswith(f"t.yaml: {words}") or words in str(caught.value)
    assert str(caught.value).startswith("t.yaml: ")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_that_is_no_tool_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SIMPLE)
    (tmp_path / "b.yml").write_text("name: b")
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "d.txt").write_text("name: d")
    (tmp_path / "e.yaml").mkdir()
    loaded = load_folder(tmp_path, Ports())
    assert [tool.name for tool in loaded.tools] == ["find"]
    assert [fault.partition(": ")[0] for fault in loaded.faults] == [
        str(tmp_path / name) for name in ("b.yml", "c.yaml", "e.yaml")
    ]
    with pytest.raises(BadTool, match="it cannot be read: No such file"):
        load_yaml(tmp_path / "none.yaml", Ports())


@given(st.binary(max_size=200) | st.text(alphabet="ab:{}[]-&*!'\"\n |>#%,", max_size=200).map(str.encode))
def test_any_file_is_a_tool_or_a_fault(content: bytes) -> None:
    with pytest.raises(BadTool):
        yaml_tool(content, "t.yaml", Ports())


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.b.0.c", 1),
        ("a.b[1].c", 2),
        ("a.b.-1.c", 2),
        ("a.b.*.c", [1, 2]),
        ("a", {"b": [{"c": 1}, {"c": 2}]}),
        ("", {"a": {"b": [{"c": 1}, {"c": 2}]}}),
    ],
)
def test_a_part_of_an_answer_can_be_chosen(path: str, found: object) -> None:
    assert select({"a": {"b": [{"c": 1}, {"c": 2}]}}, path) == found


@pytest.mark.parametrize("path", ["x", "a.b.9.c", "a.b.*.d", "a.b.c", "a.b.0.c.d"])
def test_a_part_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(LookupError):
        select({"a": {"b": [{"c": 1}, {"c": 2}]}}, path)
