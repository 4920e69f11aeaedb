"""Declared commands in a real session: values stay values, whatever is in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pinfold.sandbox import Session
from pinfold.tools import Registry, Result, ToolFailed
from pinfold.tools.declared.tools import load_folder, yaml_tool
from pinfold.tools.ports import Ports

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).parents[2] / "examples" / "tools"
SHOW = """
name: show
description: Shows its arguments.
parameters:
  a: string
  b: {type: string, required: false}
  n: {type: number, default: 3}
  on: {type: boolean, default: true}
command: [python3, -I, -c, "import sys, json; print(json.dumps(sys.argv[1:]))", "{a}", "--b={b}", "x{n}y", "{on}", "{{a}}"]
"""


async def call(session: Session, file: str, /, **args: Any) -> Result:
    tool = yaml_tool(file.encode(), "t.yaml", Ports(inside=session))
    return await Registry([tool]).call(tool.name, args)


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "two words",
        "a'b\"c",
        "$(touch pwned)",
        "`id`",
        "; touch pwned",
        "| cat",
        "*",
        "{b}",
        "${secret:X}",
        "é\n\tx",
        "%s",
        "",
    ],
)
async def test_a_value_fills_one_argument_and_is_read_by_nobody(session: Session, workspace: Path, value: str) -> None:
    result = await call(session, SHOW, a=value, b=value)
    assert json.loads(result.text) == [value, f"--b={value}", "x3y", "true", "{a}"]
    assert os.listdir(workspace) == []  # noqa: PTH208
    assert result.untrusted


async def test_an_argument_for_which_nothing_was_given_is_left_out_whole(session: Session) -> None:
    assert json.loads((await call(session, SHOW, a="x", on=False, n=2.5)).text) == ["x", "x2.5y", "false", "{a}"]


async def test_a_value_is_no_option_unless_the_file_says_where_options_end(session: Session) -> None:
    with pytest.raises(ToolFailed, match="'a' may not begin with '-'"):
        await call(session, SHOW, a="--help")
    ended = "name: t\ndescription: d\nparameters: {a: string, n: int}\ncommand: [echo, x, '{n}', --, '{a}']"
    assert (await call(session, ended, a="-n", n=-5)).text == "x -5 -- -n\n"


async def test_input_and_folder_and_environment_can_be_given(session: Session, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    text = """
name: t
description: d
parameters: {text: string, folder: string, mark: string}
command: [sh, -c, 'cat; pwd; echo "$MARK"']
stdin: "<{text}>"
workdir: "{folder}"
env: {MARK: "m:{mark}", PATH: /usr/bin:/bin}
"""
    result = await call(session, text, text="in", folder="sub", mark="$HOME")
    assert result.text == f"<in>{workspace}/sub\nm:$HOME\n"
    for outside in ("..", "/etc", "sub/../.."):
        with pytest.raises(ToolFailed, match="is outside the workspace"):
            await call(session, text, text="in", folder=outside, mark="")


async def test_bounds_of_parameters_hold(session: Session) -> None:
    text = """
name: t
description: d
parameters: {n: {type: int, minimum: 1, maximum: 5}, w: {pattern: "^[a-z]+$", maxLength: 3}}
command: [echo, "{n}", "{w}"]
"""
    assert (await call(session, text, n=5, w="abc")).text == "5 abc\n"
    for args, words in [
        ({"n": 0, "w": "a"}, "'n' must be at least 1"),
        ({"n": 6, "w": "a"}, "'n' must be at most 5"),
        ({"n": 1, "w": "A"}, "'w' must match"),
        ({"n": 1, "w": "abcd"}, "'w' must have at most 3 characters"),
    ]:
        with pytest.raises(ToolFailed, match=words):
            await call(session, text, **args)


async def test_a_program_that_fails_or_hangs_is_said_to(session: Session) -> None:
    head = "name: t\ndescription: d\n"
    with pytest.raises(ToolFailed, match=r"ls ended with exit code 2\n.*nowhere") as caught:
        await call(session, head + "command: [ls, /nowhere]")
    assert not caught.value.at_fault
    with pytest.raises(ToolFailed, match=r"sleep was not done after 0\.3 s, and was stopped"):
        await call(session, head + "command: [sleep, '60']\ntimeout_s: 0.3")
    with pytest.raises(ToolFailed, match="no-such-program"):
        await call(session, head + "command: [no-such-program]")


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples come with the checkout")
async def test_the_examples_do_what_they_say(session: Session, workspace: Path) -> None:
    (workspace / "f").write_text("one two\nthree\n")
    registry = Registry(load_folder(EXAMPLES, Ports(inside=session)).tools)
    assert (await registry.call("word_count", {"path": "f"})).text == " 2  3 14 f\n"
    sorted_keys = await registry.call("json_keys", {"document": '{"b": 1, "a": 2}'})
    assert sorted_keys.text == '{\n "a": 2,\n "b": 1\n}\n'
