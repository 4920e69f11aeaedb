"""`pinfold run` on a terminal says what it is doing, for how long and with how many tokens, and leaves no trace of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.front.chat.terminal import Terminal, cell, chat, environment

from pinfold.events import ActionId, ActionProposed, ActionStarted, CallTool, Entry, SessionId
from pinfold.front.progress import Spinner

pytestmark = pytest.mark.integration
UNTIL_GO = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.005)\n"


def begun(tmp_path: Path, workspace: Path, *flags: str, **env: str) -> Terminal:
    script = tmp_path / "script.jsonl"
    replies = cell(UNTIL_GO, usage={"input_tokens": 1200, "output_tokens": 34}), {"text": "It is done."}
    script.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    argv = chat("run", "--model", f"scripted:{script}", "--workspace", str(workspace), *flags, "do it")
    return Terminal(argv, environment(tmp_path, **env), workspace)


def test_a_run_says_what_it_is_doing_until_it_is_done(tmp_path: Path, workspace: Path) -> None:
    terminal = begun(tmp_path, workspace)
    try:
        terminal.wait_on_screen("running code · 1 s · 1.2k in 34 out")
        (workspace / "go").touch()
        terminal.wait("It is done.")
        assert terminal.exit_code() == 0
        assert "running code" not in terminal.text()
    finally:
        terminal.close()


@pytest.mark.parametrize(("flags", "env"), [(("-q",), {}), (("--json",), {}), ((), {"TERM": "dumb"})])
def test_who_wants_no_such_line_gets_none(
    tmp_path: Path, workspace: Path, flags: tuple[str, ...], env: dict[str, str]
) -> None:
    (workspace / "go").touch()
    terminal = begun(tmp_path, workspace, *flags, **env)
    try:
        terminal.wait("It is done.")
        assert terminal.exit_code() == 0
        assert b"\x1b[2K" not in terminal.raw
    finally:
        terminal.close()


def test_the_name_of_a_tool_does_not_steer_the_terminal() -> None:
    spinner = Spinner()
    action = CallTool(tool="\x1b[2Jsend\r", args={})
    for event in (ActionProposed(id=ActionId("a_1"), action=action), ActionStarted(id=ActionId("a_1"), effect="once")):
        spinner.take(Entry(seq=1, session=SessionId("s_1"), at="", event=event))
    line = spinner.line(0.0)
    assert line.startswith("running \\x1b[2Jsend")
    assert "\x1b" not in line
    assert "\r" not in line
