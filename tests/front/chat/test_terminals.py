"""Terminals of every kind, and output of every kind."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.front.chat.terminal import Terminal, cell, chat, environment, shell

pytestmark = pytest.mark.integration
Start = Callable[..., Terminal]
COLOUR = re.compile(rb"\x1b\[[\d;]*\b(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])\b[\d;]*m")


@pytest.mark.slow
def test_200_megabytes_and_bytes_that_are_no_text_leave_the_prompt_usable(start: Start) -> None:
    terminal = start(
        replies=[
            cell("import sys\nblock = ('x' * 99 + '\\n') * 10_000\nfor _ in range(200): sys.stdout.write(block)"),
            cell("sys.stdout.buffer.write(b'caf\\xe9 \\x1b[31mred\\x1b[?1049h \\xff\\xfe')\nprint('\\nend of it')"),
            {"text": "survived"},
        ]
    )
    terminal.wait_on_screen("auto · ")
    terminal.enter("print")
    terminal.wait_on_screen("xxxxxxxxxx")
    terminal.feed("typed")
    terminal.wait_on_screen("> typed")
    terminal.wait("survived")
    text = terminal.text()
    assert "2,000,000 lines" in text or re.search(r"\d{3},\d{3} lines more", text)
    assert "\\x1b[31mred\\x1b[?1049h" in text
    assert "end of it" in text
    assert b"\x1b[31mred" not in terminal.raw
    assert len(terminal.raw) < 2_000_000
    terminal.wait_on_screen("> typed")


def test_no_color_means_none_and_with_it_there_is_some(start: Start) -> None:
    replies = [cell("print(1 + 1)"), {"text": "It is **two**, see `x`."}]
    plain = start(replies=replies, NO_COLOR="1")
    plain.wait_on_screen("auto · ")
    plain.enter("add")
    plain.wait("It is two")
    plain.enter("/exit")
    assert plain.exit_code() == 0
    assert not COLOUR.search(plain.raw)
    coloured = start(replies=replies)
    coloured.wait_on_screen("auto · ")
    assert COLOUR.search(coloured.raw)


def test_a_dumb_terminal_gets_lines_and_nothing_else(start: Start, workspace: Path) -> None:
    terminal = start(mode="ask", replies=[shell("touch one"), {"text": "all **over**"}], TERM="dumb")
    terminal.wait("help\n")
    terminal.feed("/branches\n")
    terminal.wait("has no forks")
    assert terminal.text().count("/branches") == 1  # by the terminal itself
    terminal.feed("make \\\none\n")
    terminal.wait("[n] no\n?")  # what is typed before that is ignored
    terminal.feed("\n")
    terminal.feed("y\n")
    terminal.wait("all over")
    assert (workspace / "one").exists()
    assert b"\x1b" not in terminal.raw
    terminal.feed("\x04")
    assert terminal.exit_code() == 0
    assert "pinfold resume" in terminal.text()


def test_without_a_terminal_one_line_says_what_to_use(tmp_path: Path, workspace: Path) -> None:
    done = subprocess.run(
        chat(), input=b"hello", capture_output=True, cwd=workspace, env=environment(tmp_path), timeout=30, check=False
    )
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr.decode().count("\n") == 1
    assert "pinfold run" in done.stderr.decode()


def test_nothing_is_left_of_a_chat_in_which_nothing_was_said(start: Start, tmp_path: Path) -> None:
    terminal = start(replies=[{"text": "hello"}])
    terminal.wait_on_screen("auto · ")
    terminal.feed("\x04")
    assert terminal.exit_code() == 0
    assert not [*(tmp_path / "xdg" / "data" / "pinfold" / "sessions").glob("s_*")]
    assert "pinfold resume" not in terminal.text()
