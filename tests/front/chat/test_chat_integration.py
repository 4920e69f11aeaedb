"""Things of the chat that need several of its parts at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.front.chat.terminal import Terminal, cell

pytestmark = pytest.mark.integration
Start = Callable[..., Terminal]
UNTIL_GO = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.005)"


def test_a_command_that_may_is_obeyed_while_a_turn_runs_and_one_that_may_not_waits(
    start: Start, workspace: Path
) -> None:
    terminal = start(replies=[cell("seven = 7"), cell(UNTIL_GO), {"text": "turn done"}], mode="auto")
    terminal.wait_on_screen("auto · ")
    terminal.enter("go")
    terminal.wait("added seven")
    terminal.wait_on_screen("running cell 2")
    terminal.enter("/cost")
    terminal.wait("> /cost")
    terminal.enter("/clear")
    terminal.wait_on_screen("queued: /clear")
    (workspace / "go").touch()
    terminal.wait("> /clear")
    text = terminal.text()
    assert text.index("> /cost") < text.index("turn done") < text.index("> /clear")


def test_a_folder_is_obeyed_after_one_yes_and_asked_about_again_when_it_changes(start: Start, workspace: Path) -> None:
    (workspace / "AGENTS.md").write_text("Always say moo.\n", encoding="utf-8")
    terminal = start(replies=[{"text": "moo", "expect": "Always say moo."}])
    terminal.wait("AGENTS.md: ")
    terminal.wait_on_screen("Follow them?")
    terminal.wait_on_screen("y yes")
    terminal.feed("y")
    terminal.wait_on_screen("auto · ")
    terminal.enter("hello")
    terminal.wait("moo")
    terminal.enter("exit")
    assert terminal.exit_code() == 0
    (workspace / "AGENTS.md").write_text("Always say baa.\n", encoding="utf-8")
    again = start(replies=[{"text": "nothing obeyed"}])
    again.wait("AGENTS.md has changed since it was trusted")
    again.wait_on_screen("y yes")
    again.feed("n")
    again.wait_on_screen("auto · ")
    again.enter("hello")
    again.wait("nothing obeyed")
    again.enter("/export jsonl history.jsonl")
    again.wait("history.jsonl", times=2)
    again.enter("exit")
    assert again.exit_code() == 0
    opened = json.loads((workspace / "history.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert opened["kind"] == "SessionOpened"
    assert "baa" not in opened["prompt"]


def test_a_notebook_comes_in_before_the_first_word(start: Start, tmp_path: Path) -> None:
    cells: list[dict[str, Any]] = [{"cell_type": "code", "metadata": {}, "source": "brought = 6 * 7", "outputs": []}]
    notebook = tmp_path / "nb.ipynb"
    notebook.write_text(
        json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}), encoding="utf-8"
    )
    terminal = start(
        "--from", str(notebook), replies=[cell("print('it is', brought)", expect="nb.ipynb"), {"text": "seen"}]
    )
    terminal.wait("added brought")
    terminal.enter("what is in it?")
    terminal.wait("it is 42")
    terminal.wait("seen")
