"""Calls read out of what models write: every form beside something that only looks like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pinfold.events import Json, ToolSchema
from pinfold.model.protocol.reply_parser import parse_reply

pytestmark = pytest.mark.unit


def schema(name: str, required: Mapping[str, str], **optional: str) -> ToolSchema:
    types = {**required, **optional}
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSchema(name=name, description=f"{name} it.", parameters=parameters)


TOOLS = (
    schema("python", {"code": "string"}),
    schema("read_file", {"path": "string"}, start_line="integer", max_lines="integer"),
    schema("write_file", {"path": "string", "content": "string"}),
    schema("shell", {"command": "string"}),
    schema("now", {}, tz="string"),
)
Expected = list[tuple[str, dict[str, Any]]]


def calls(text: str, quoted: Sequence[str] = ()) -> Expected:
    return [(call.tool, call.args) for call in parse_reply(text, TOOLS, quoted=quoted).calls]


def cell(code: str) -> tuple[str, dict[str, Any]]:
    return "python", {"code": code}


A_CSV: tuple[str, dict[str, Any]] = ("read_file", {"path": "a.csv"})
NOW: tuple[str, dict[str, Any]] = ("now", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\nprint(1)\n```", [cell("print(1)")]),
        ("Let me see.\n\n```py\nprint(1)\n```\nThat will do.", [cell("print(1)")]),
        ("```python3\nx\n```", [cell("x")]),
        ("```Python\nx\n```", [cell("x")]),
        ("``` python\nx\n```", [cell("x")]),
        ("```{python}\nx\n```", [cell("x")]),
        ("```tool_code\nx = 1\n```", [cell("x = 1")]),
        ('```python title="a"\nx\n```', [cell("x")]),
        ("~~~python\nx = '```'\n~~~", [cell("x = '```'")]),
        ("````python\nx\n````", [cell("x")]),
        ("```python\r\nx = 1\r\ny = 2\r\n```\r\n", [cell("x = 1\r\ny = 2\r")]),
        ("1. First:\n   ```python\n   if x:\n       y\n   ```\n", [cell("if x:\n    y")]),
        ("- ```python\n  x\n  ```", [cell("x")]),
        ("\t```python\n\tx\n\t```", [cell("x")]),
        ("```python\nx = 1", [cell("x = 1")]),
        ("```python\nx = 1\nfor i in range(", [cell("x = 1\nfor i in range(")]),
        ("```python\nx = 1```", [cell("x = 1")]),
        ("```python\nx = 1\n``", [cell("x = 1")]),
        ("Here it is: ```python\nx = 1\n```", [cell("x = 1")]),
        ("```python print(1)```", [cell("print(1)")]),
        ("```python\na\n```\n```python\nb\n```", [cell("a"), cell("b")]),
        ("```python\na\n```python\nb\n```", [cell("a"), cell("b")]),
        ("```python\na\n```output\n1\n```", [cell("a")]),
        (
            '```python\ntext = """\n```\nx\n```\n"""\nprint(text)\n```\nDone.',
            [cell('text = """\n```\nx\n```\n"""\nprint(text)')],
        ),
        ('```python\nprint("```")  # ```\n```', [cell('print("```")  # ```')]),
        ('```python\nx = """no end\n```\nIt prints.', [cell('x = """no end')]),
        ("```\n\nAs I said:\n```python\nx\n```", [cell("x")]),
        ("```python\n\n```", []),
        ("```python", []),
        ("Use `x` or ``y`` or ```z``` here.", []),
        ("Write ```python before the code.", []),
        ("```bash\nls\n```", []),
        ("```sh\nls\n```", []),
        ("```text\nprint(1)\n```", []),
        ("```javascript\nconsole.log(1)\n```", []),
        ("```pycon\n>>> print(1)\n```", []),
        ("```python:app.py\nprint(1)\n```", []),
        ("```markdown\n# Title\n```python\nprint(1)\n```\n", []),
        ("    print(1)\n", []),
    ],
)
def test_a_fenced_python_block_is_a_call(text: str, expected: Expected) -> None:
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        ("import os\nprint(os.getcwd())", True),
        ("print(42)", True),
        ("df = pd.read_csv('a.csv')\ndf.head()", True),
        ("df.head()", True),
        ("df['a'].sum()", True),
        ("for i in range(3):\n    print(i)", True),
        ("total += f(x)", True),
        ("    x = f(1)\n    print(x)", True),
        ("42", False),
        ("hello", False),
        ("True", False),
        ("[1, 2, 3]", False),
        ("{'a': 1}", False),
        ("{'name': 'Ann', 'age': 7}", False),
        ("(1, 'a')", False),
        ("array([1, 2, 3])", False),
        ("Counter({'a': 2})", False),
        ("datetime.date(2024, 1, 2)", False),
        ("range(0, 3)", False),
        ("total: 5\nmean: 2", False),
        ("port = 8080\ndebug = true", False),
        ("a, b, c\n1, 2, 3", False),
        ("   a  b\n0  1  2", False),
        ("Traceback (most recent call last):\nValueError: no", False),
        ("ls -la", False),
        (">>> print(1)\n1", False),
        ("x - y", False),
        ("...", False),
        ("'just a text'", False),
        ("# only a comment", False),
    ],
)
def test_a_block_without_a_language_runs_only_if_it_is_code_that_does_something(body: str, runs: bool) -> None:
    assert calls(f"See:\n```\n{body}\n```") == ([cell(body)] if runs else [])


@pytest.mark.parametrize("words", ["Output:", "This prints", "**Output**", "The result: ", "It returns"])
def test_a_block_without_a_language_that_is_said_to_be_output_does_not_run(words: str) -> None:
    assert calls(f"{words}\n\n```\nprint(1)\n```") == []
    assert calls(f"{words}\n\n```python\nprint(1)\n```") == [cell("print(1)")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<tool name="read_file">{"path": "a.csv"}</tool>', [A_CSV]),
        ('I look.\n<tool name=\'read_file\'>{"path": "a.csv"}</tool> So.', [A_CSV]),
        ('<tool name=read_file>\n{"path": "a.csv"}\n</tool>', [A_CSV]),
        ("<tool name=“read_file”>{“path”: “a.csv”}</tool>", [A_CSV]),
        ('<tool name="Read-File">{"path": "a.csv"}</tool>', [A_CSV]),
        ('<tool name="functions.read_file">{"path": "a.csv"}</tool>', [A_CSV]),
        ('<tool id="1" name="read_file">{"path": "a.csv"}</tool>', [A_CSV]),
        ('<tool="read_file">{"path": "a.csv"}</tool>', [A_CSV]),
        ("<tool name=\"read_file\">{'path': 'a.csv',}</tool>", [A_CSV]),
        ('<tool name="read_file">{"path": "a.csv"}', [A_CSV]),
        ('<tool name="read_file">{"path": "a.csv"</tool>', [A_CSV]),
        ('<tool name="read_file">{"path": "a.csv"}}</tool>', [A_CSV]),
        ('<tool name="read_file">path="a.csv"</tool>', [A_CSV]),
        ('<tool name="read_file">read_file("a.csv")</tool>', [A_CSV]),
        ('<tool name="read_file">a.csv</tool>', [A_CSV]),
        ('<tool name="read_file">"a.csv"</tool>', [A_CSV]),
        ('<tool name="read_file">{"name": "read_file", "arguments": {"path": "a.csv"}}</tool>', [A_CSV]),
        ('<tool name="now"></tool>', [NOW]),
        ('<tool name="now"/>', [NOW]),
        ('<tool name="now">{}</tool><tool name="now">{}</tool>', [NOW, NOW]),
        ('<tool name="now">{}\n<tool name="now">{}\n', [NOW, NOW]),
        ('<tool>{"name": "read_file", "arguments": {"path": "a.csv"}}</tool>', [A_CSV]),
        ('<tool name="python">{"code": "print(1)"}</tool>', [cell("print(1)")]),
        ('<tool name="python">\nprint(1)\n</tool>', [cell("print(1)")]),
        ('<tool name="python">print("</tool>")</tool>', [cell('print("</tool>")')]),
        ('<tool name="python">\n```python\nprint(1)\n```\n</tool>', [cell("print(1)")]),
        ('<tool name="python">\n  if x:\n    y\n</tool>', [cell("if x:\n  y")]),
        ('<tool name="python">{"a": 1}["a"]</tool>', [cell('{"a": 1}["a"]')]),
        ('<tool name="python">\nprint(1)\n', [cell("print(1)")]),
        ('<tool name="python">a\n<tool name="python">b</tool>', [cell("a"), cell("b")]),
        (
            '<tool name="write_file">{"path": "a", "content": "<tool name=\\"now\\">{}</tool>"}</tool>',
            [("write_file", {"path": "a", "content": '<tool name="now">{}</tool>'})],
        ),
        ('```xml\n<tool name="read_file">{"path": "a.csv"}</tool>\n```', [A_CSV]),
        ('```python\n<tool name="read_file">{"path": "a.csv"}</tool>\n```', [A_CSV]),
        ('```\n<tool name="read_file">{"path": "a.csv"}</tool>\n```', [A_CSV]),
        ('```html\n<tool name="read_file">{"path": "a.csv"}</tool>\n```', []),
        ('Write `<tool name="now">` and so on.', []),
        ("<tools>none</tools> <toolbox>", []),
        ("a <tool> is a thing", []),
    ],
)
def test_a_tool_tag_is_a_call(text: str, expected: Expected) -> None:
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<tool_call>\n{"name": "read_file", "arguments": {"path": "a.csv"}}\n</tool_call>', [A_CSV]),
        ('<tool_call>{"name": "now"}</tool_call>', [NOW]),
        ('<tool_call>{"name": "now", "arguments": {}}\n<tool_call>{"name": "now", "arguments": {}}', [NOW, NOW]),
        ('<tool_call>[{"name": "now"}, {"name": "now"}]</tool_call>', [NOW, NOW]),
        ('<tool_call>\n{"name": "now"}\n{"name": "now"}\n</tool_call>', [NOW, NOW]),
        ('<tool_call>read_file(path="a.csv")</tool_call>', [A_CSV]),
        ("<tool_call>{'name': 'read_file', 'arguments': {'path': 'a.csv'}}</tool_call>", [A_CSV]),
        ('<tool_call>{"name": "read_file", "arguments": "{\\"path\\": \\"a.csv\\"}"}</tool_call>', [A_CSV]),
        ("<tool_call></tool_call>", []),
    ],
)
def test_a_tool_call_tag_is_a_call(text: str, expected: Expected) -> None:
    assert calls(text) == expected


JSON_CALL = '{"name": "read_file", "arguments": {"path": "a.csv"}}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JSON_CALL, [A_CSV]),
        (f"```json\n{JSON_CALL}\n```", [A_CSV]),
        ('```json\n{\n  "name": "read_file",\n  "arguments": {\n    "path": "a.csv"\n  }\n}\n```', [A_CSV]),
        (f"```json\n{JSON_CALL}", [A_CSV]),
        (f"```\n{JSON_CALL}\n```", [A_CSV]),
        (f"```python\n{JSON_CALL}\n```", [A_CSV]),
        (f"```tool_call\n{JSON_CALL}\n```", [A_CSV]),
        (f"I read it.\n\n{JSON_CALL}\n\nThen I go on.", [A_CSV]),
        (f"I read it: {JSON_CALL}", [A_CSV]),
        (f"`{JSON_CALL}`", [A_CSV]),
        (f"<tools>\n{JSON_CALL}\n</tools>", [A_CSV]),
        (f"[TOOL_CALLS] [{JSON_CALL}]", [A_CSV]),
        (f"<|python_tag|>{JSON_CALL}<|eom_id|>", [A_CSV]),
        (f"{JSON_CALL}\n{JSON_CALL}", [A_CSV, A_CSV]),
        (f"{JSON_CALL}; {JSON_CALL}", [A_CSV, A_CSV]),
        (f"```json\n{JSON_CALL}\n{JSON_CALL}\n```", [A_CSV, A_CSV]),
        (f"```json\n[{JSON_CALL},\n {JSON_CALL}]\n```", [A_CSV, A_CSV]),
        ('{"arguments": {"path": "a.csv"}, "name": "read_file"}', [A_CSV]),
        ('{"name": "read_file", "parameters": {"path": "a.csv"}}', [A_CSV]),
        ('{"name": "read_file", "args": {"path": "a.csv"}}', [A_CSV]),
        ('{"tool": "read_file", "args": {"path": "a.csv"}}', [A_CSV]),
        ('{"tool": "read_file", "path": "a.csv"}', [A_CSV]),
        ('{"name": "now"}', [NOW]),
        ('{"function": "read_file", "arguments": {"path": "a.csv"}}', [A_CSV]),
        ('{"action": "read_file", "action_input": "a.csv"}', [A_CSV]),
        ('{"thought": "I must look", "tool": "read_file", "args": {"path": "a.csv"}}', [A_CSV]),
        ('{"function": {"name": "read_file", "arguments": "{\\"path\\": \\"a.csv\\"}"}, "type": "function"}', [A_CSV]),
        ('{"tool_calls": [{"id": "1", "function": {"name": "read_file", "arguments": {"path": "a.csv"}}}]}', [A_CSV]),
        ('{"name": "python", "arguments": {"code": "print(1)"}}', [cell("print(1)")]),
        ('{"name": "python", "arguments": "print(1)"}', [cell("print(1)")]),
        ('{"name": "read_file", "arguments": {"wrong": 1}}', [("read_file", {"wrong": 1})]),
        ('{"name": "Ann", "age": 7}', []),
        ('{"name": "python", "version": "3.11"}', []),
        ('{"name": "read_file", "description": "Reads.", "parameters": {"type": "object", "properties": {}}}', []),
        ('[{"name": "now"}, {"name": "later"}]', []),
        ('{"name": "Ann", "parameters": {"x": 1}}', []),
        ('```json\n{"rows": 3, "arguments": {"path": "a"}}\n```', []),
        (f"With {JSON_CALL} you would read it.", []),
        (f"```text\n{JSON_CALL}\n```", []),
        (f"```yaml\n{JSON_CALL}\n```", []),
    ],
)
def test_json_with_a_name_and_arguments_is_a_call(text: str, expected: Expected) -> None:
    assert calls(text) == expected
    assert parse_reply(text, TOOLS).correction == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'name': 'read_file', 'arguments': {'path': 'a.csv'}}", [A_CSV]),
        ("{“name”: “read_file”, “arguments”: {“path”: “a.csv”}}", [A_CSV]),
        ('{name: "read_file", arguments: {path: "a.csv"}}', [A_CSV]),
        ('{"name": "read_file", "arguments": {"path": "a.csv",},}', [A_CSV]),
        ('```json\n{"name": "read_file", "arguments": {"path": "a.csv"}\n```', [A_CSV]),
        ('{"name": "read_file", "arguments": {"path": "a.csv"}}}', [A_CSV]),
        (
            "{'name': 'read_file', 'arguments': {'path': 'a', 'start_line': None, 'max_lines': 1_000}}",
            [("read_file", {"path": "a", "start_line": None, "max_lines": 1000})],
        ),
        (
            "{'name': 'write_file', 'arguments': {'path': 'a', 'content': True}}",
            [("write_file", {"path": "a", "content": True})],
        ),
        (
            "{'name': 'write_file', 'arguments': {'path': 'a', 'content': 'It's here, isn't it'}}",
            [("write_file", {"path": "a", "content": "It's here, isn't it"})],
        ),
        (
            '{"name": "write_file", "arguments": {"path": "a", "content": "one\ntwo"}}',
            [("write_file", {"path": "a", "content": "one\ntwo"})],
        ),
        ('{"name": "python", "arguments": {"code": "print("hi")"}}', [cell('print("hi")')]),
        ('{"name": "python", "arguments": {"code": "print("a", "b")"}}', [cell('print("a", "b")')]),
        (
            '```json\n{"name": "python", "arguments": {"code": "x = {"a": {"b": "c"}}\nprint(x)"}}\n```',
            [cell('x = {"a": {"b": "c"}}\nprint(x)')],
        ),
        ('{"name": "python", "arguments": {"code": """print("hi")\nprint(2)"""}}', [cell('print("hi")\nprint(2)')]),
        ('{"name": "python", "arguments": {"code": "re.sub(r\'\\d\', \'\', x)"}}', [cell("re.sub(r'\\d', '', x)")]),
        (
            '{"name": "python", "arguments": {"code": "print(\'a\\nb\')\\nprint(2)"}}',
            [cell("print('a\\nb')\nprint(2)")],
        ),
        ("{'name': 'python', 'arguments': {'code': 'print(\\'\\u00e9\\ud83d\\ude00\\')'}}", [cell("print('é😀')")]),
    ],
)
def test_slips_that_can_mean_one_thing_only_are_mended(text: str, expected: Expected) -> None:
    assert calls(text) == expected
    assert parse_reply(text, TOOLS).correction == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('read_file(path="a.csv")', [A_CSV]),
        ("I look at it:\n\nread_file('a.csv')\n\nand go on.", [A_CSV]),
        ("`read_file('a.csv')`", [A_CSV]),
        ("  now()", [NOW]),
        ("now();", [NOW]),
        ("functions.now()", [NOW]),
        ("[read_file(path='a.csv'), now()]", [A_CSV, NOW]),
        ("read_file('a.csv')\nnow()", [A_CSV, NOW]),
        ('```python\nread_file("a.csv")\n```', [A_CSV]),
        ('```python\n# look at it\nread_file("a.csv")\nnow()\n```', [A_CSV, NOW]),
        ("```\nnow()\n```", [NOW]),
        ("```tool_code\nnow()\n```", [NOW]),
        ("read_file(path=“a.csv”)", [A_CSV]),
        ('python(code="print(1)")', [cell("print(1)")]),
        ('python("""\nprint(1)\nprint("a\\nb")\n""")', [cell('\nprint(1)\nprint("a\\nb")\n')]),
        ('write_file("a.txt", "x (y\\n" "z")', [("write_file", {"path": "a.txt", "content": "x (y\nz"})]),
        (
            "read_file('a', start_line=-1, max_lines=null)",
            [("read_file", {"path": "a", "start_line": -1, "max_lines": None})],
        ),
        ("shell(command=['ls', ('a', {'b': 1.5})])", [("shell", {"command": ["ls", ["a", {"b": 1.5}]]})]),
        ("write_file(\n    path='a',\n    content='b',\n)", [("write_file", {"path": "a", "content": "b"})]),
        (
            '```python\nwrite_file("hello.txt", "He said \\"hi\\"\\nand left.")\n```',
            [("write_file", {"path": "hello.txt", "content": 'He said "hi"\nand left.'})],
        ),
        ("```python\nshell(command)\n```", [cell("shell(command)")]),
        ("```python\nshell(ls -la /tmp)\n```", [cell("shell(ls -la /tmp)")]),
        ("read_file('a.csv') reads it.", []),
        ("You may call read_file('a.csv')", []),
        ("- now()\n- read_file(path)", []),
        ("read_file(path)", []),
        ("open_file('a.csv')", []),
        ('```bash\nread_file("a.csv")\n```', []),
        ('```python\nx = read_file("a.csv")\n```', [cell('x = read_file("a.csv")')]),
        ("```python\nread_file(name)\n```", [cell("read_file(name)")]),
        ('```python\nread_file("a")\nprint(1)\n```', [cell('read_file("a")\nprint(1)')]),
    ],
)
def test_a_python_style_call_of_a_tool_is_a_call(text: str, expected: Expected) -> None:
    assert calls(text) == expected
    assert parse_reply(text, TOOLS).correction == ""


def test_a_tool_named_like_a_builtin_does_not_take_code_away() -> None:
    tools = (*TOOLS, schema("print", {"text": "string"}))
    (call,) = parse_reply('```python\nprint("x")\n```', tools).calls
    assert (call.tool, call.args) == cell('print("x")')


def test_forms_are_read_in_the_order_in_which_they_appear() -> None:
    text = (
        'First <tool name="now">{}</tool> and\n```python\na\n```\nthen\n'
        '{"name": "read_file", "arguments": {"path": "a.csv"}}\n\nnow(tz="UTC")\n'
        '<tool_call>{"name": "now"}</tool_call>\n```\nprint(b)\n```'
    )
    assert calls(text) == [
        NOW, cell("a"), A_CSV, ("now", {"tz": "UTC"}), NOW, cell("print(b)"),
    ]  # fmt: skip
    ids = [call.id for call in parse_reply(text, TOOLS).calls]
    assert len(set(ids)) == len(ids)


def test_what_a_model_thinks_is_not_run() -> None:
    code = "```python\nx\n```"
    assert calls(f"<think>\n{code}\n</think>\nNo.") == []
    assert calls(f"<think>\n{code}") == []
    assert calls(f"{code}\n</think>\nNo.") == []
    assert calls(f"<think>\nhm\n</think>\n{code}") == [cell("x")]
    assert calls("```python\nprint('</think>')\n```") == [cell("print('</think>')")]


def test_without_tools_nothing_is_a_call() -> None:
    assert parse_reply(f"```python\nx\n```\n{JSON_CALL}", ()).calls == ()
    only_now = (schema("now", {}),)
    assert parse_reply("```python\nx\n```", only_now).calls == ()
    assert [call.tool for call in parse_reply("```python\nnow()\n```", only_now).calls] == ["now"]


def test_a_model_that_repeats_itself_is_not_followed_for_ever() -> None:
    assert len(parse_reply("```python\nx\n```\n" * 1000, TOOLS).calls) == 64


@pytest.mark.parametrize(
    ("text", "correction"),
    [
        (
            '<tool name="read_file">{"path" "a"}</tool>',
            (
                "The call of read_file was not run: it is not valid JSON, expecting ':' delimiter at `\"a\"}</tool>`. "
                'Write it as <tool name="read_file">{"path": "..."}</tool>.'
            ),
        ),
        (
            '<tool name="read_file"></tool>',
            'The call of read_file was not run: it needs path. Write it as <tool name="read_file">{"path": "..."}</tool>.',
        ),
        (
            '<tool name="write_file">a.txt</tool>',
            (
                "The call of write_file was not run: its arguments are not a JSON object. "
                'Write it as <tool name="write_file">{"path": "...", "content": "..."}</tool>.'
            ),
        ),
        (
            '{"name": "python", "arguments": {"code": "print(1)',
            (
                'The call of python was not run: it is not valid JSON, unterminated string starting at `"print(1)`. '
                "Write it as ```python, the code, ``` on lines of their own."
            ),
        ),
        (
            '{"name": "read_file", "arguments": {"path": NaN}}',
            (
                "The call of read_file was not run: it is not valid JSON: NaN is not JSON. "
                'Write it as <tool name="read_file">{"path": "..."}</tool>.'
            ),
        ),
        (
            '{"name": "read_file", "arguments": ["a.csv"]}',
            (
                "The call of read_file was not run: its arguments are not a JSON object. "
                'Write it as <tool name="read_file">{"path": "..."}</tool>.'
            ),
        ),
        (
            'write_file(path="a", content=text)',
            (
                "The call of write_file was not run: its arguments must be plain values, and `content` is the variable text. "
                'Write it as <tool name="write_file">{"path": "...", "content": "..."}</tool>.'
            ),
        ),
        (
            "read_file('a', 1, 2, 3)",
            (
                "The call of read_file was not run: it takes at most 3 arguments. "
                'Write it as <tool name="read_file">{"path": "..."}</tool>.'
            ),
        ),
        (
            "<tool_call>I would rather not</tool_call>",
            'The content of <tool_call> is not a call. Write {"name": ..., "arguments": {...}} there, as valid JSON.',
        ),
        (
            '<tool_call>{"name": "now", "arguments": {</tool_call><tool_call>{"name"',
            (
                "A call was not run: it is not valid JSON, expecting ':' delimiter at its end. "
                'Write {"name": ..., "arguments": {...}} as valid JSON.'
            ),
        ),
        (
            '<tool name="python"></tool>',
            "The call of python was not run: it has no code. Write it as ```python, the code, ``` on lines of their own.",
        ),
    ],
)
def test_what_was_meant_as_a_call_and_is_none_gets_a_correction(text: str, correction: str) -> None:
    reading = parse_reply(text, TOOLS)
    assert reading.correction == correction


def test_output_that_a_model_makes_up_gets_a_correction() -> None:
    reading = parse_reply("Output of python:\n6765\n", TOOLS)
    assert reading.correction == (
        "You wrote the output of python yourself: nothing was run. Write the call, and wait for its output."
    )
    assert parse_reply("```python\nfib(20)\n```\nOutput of python:\n6765\n", TOOLS).correction == ""
    assert parse_reply("Output of the pump: 3 l/s", TOOLS).correction == ""


def test_a_good_call_beside_a_bad_one_is_still_read() -> None:
    reading = parse_reply('<tool name="python"></tool>\n<tool name="now">{}</tool>', TOOLS)
    assert [call.tool for call in reading.calls] == ["now"]
    assert "it has no code" in reading.correction


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ('<tool name="list_files">{"path": "a"}</tool>', {"path": "a"}),
        ('<tool name="list_files" />', {}),
        ('<tool name="list_files"></tool>', {}),
        ('<tool name="list_files">\na folder\n</tool>', {"input": "a folder"}),
        ('{"name": "list_files", "arguments": {"path": "a"}}', {"path": "a"}),
        ('<tool_call>{"name": "list_files", "arguments": "a"}</tool_call>', {"input": "a"}),
        ('<tool_call>{"name": "list_files"}</tool_call>', {}),
    ],
)
def test_a_tool_that_the_model_was_not_told_of_can_be_called(text: str, args: Json) -> None:
    reading = parse_reply(text, TOOLS)
    assert [(call.tool, call.args) for call in reading.calls] == [("list_files", args)]
    assert reading.correction == ""


def test_a_call_cut_off_by_the_limit_is_not_completed_by_guessing() -> None:
    cut = '<tool name="read_file">{"path": "a.csv"'
    assert calls(cut) == [A_CSV]
    reading = parse_reply(cut, TOOLS, finish="length")
    assert reading.calls == ()
    assert reading.correction == (
        "The call of read_file was not run: the reply was cut off within it; make it shorter. "
        'Write it as <tool name="read_file">{"path": "..."}</tool>.'
    )
    assert parse_reply("```python\nx = [1, ", TOOLS, finish="length").calls[0].args == {"code": "x = [1, "}


QUOTE = "What does this do?\n\n```python\nimport os\nos.remove('a.csv')\n```\nDo not run it."
NOT_RUN = (
    "The code is quoted from the user and was not run. "
    'To run it write <tool name="python">, the code, </tool>; else answer in words.'
)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nimport os\nos.remove('a.csv')\n```",
        "It removes a file:\n\n```\nimport os\nos.remove('a.csv')\n```",
        "```python\n  import os\n\n  os.remove('a.csv')\n```",
        "```python\nos.remove('a.csv')\n```",
        "> ```python\n> import os\n> os.remove('a.csv')\n> ```",
        "> ```python\n> print('anything')\n> ```\n\nSo you said.",
        '{"name": "python", "arguments": {"code": "import os\\nos.remove(\'a.csv\')"}}',
        "python(code=\"os.remove('a.csv')\")",
    ],
)
def test_code_that_the_user_only_quoted_is_not_run(text: str) -> None:
    reading = parse_reply(text, TOOLS, quoted=["hello", QUOTE])
    assert reading.calls == ()
    assert reading.correction == NOT_RUN
    if not text.startswith(">"):
        assert len(parse_reply(text, TOOLS, quoted=["hello"]).calls) == 1


def test_quoted_code_may_be_run_by_the_explicit_form() -> None:
    text = "<tool name=\"python\">\nimport os\nos.remove('a.csv')\n</tool>"
    assert calls(text, [QUOTE]) == [cell("import os\nos.remove('a.csv')")]
    assert calls(text, [f"What does {text} do?"]) == []


def test_quoted_code_beside_code_of_its_own_is_passed_over() -> None:
    text = "You have\n```python\nos.remove('a.csv')\n```\nBetter:\n```python\nos.rename('a.csv', 'b.csv')\n```"
    reading = parse_reply(text, TOOLS, quoted=[QUOTE])
    assert [call.args for call in reading.calls] == [{"code": "os.rename('a.csv', 'b.csv')"}]
    assert reading.correction == ""


def test_a_call_that_the_user_wrote_is_not_made_by_repeating_it() -> None:
    asked = 'What would read_file(path="a.csv") do?'
    assert calls('read_file(path="a.csv")', [asked]) == []
    assert calls('<tool name="read_file">{"path": "a.csv"}</tool>', [asked]) == [A_CSV]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("What is 17.3 * 4210?", "17.3 * 4210"),
        ("Show me df", "df"),
        ("An example: x", "xa"),
        ("I want the mean of max(values) by day", "max(value)"),
        ("remove the file a.csv", "import os\nos.remove('a.csv')"),
    ],
)
def test_words_of_the_question_may_come_back_in_the_code(asked: str, code: str) -> None:
    assert calls(f"```python\n{code}\n```", [asked]) == [cell(code)]
