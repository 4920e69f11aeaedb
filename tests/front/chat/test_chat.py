"""The chat on a real pseudo-terminal, from the first prompt to the farewell."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.front.chat.terminal import Terminal, cell, eventually

pytestmark = pytest.mark.integration
Start = Callable[..., Terminal]
PROMPT = "auto · "
UNTIL_GO = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.005)\n"
"""A cell that runs until the test says so."""


def test_a_conversation_from_the_first_prompt_to_the_farewell(start: Start) -> None:
    terminal = start(
        replies=[
            cell("total = 40 + 2\nprint('total is', total)", usage={"input_tokens": 1200, "output_tokens": 34}),
            {"text": "Total computed."},
        ]
    )
    # What is typed while the rest is being loaded is taken.
    terminal.wait("starting")
    terminal.enter("add them up")
    terminal.wait("Total computed.")
    terminal.wait("total is 42")
    terminal.wait_on_screen("1.2k in 34 out")
    terminal.enter("/vars")
    terminal.wait_until(lambda: bool(re.search(r"\btotal\b.*\bint\b", terminal.text())), "no variable")
    terminal.enter("/undo")
    terminal.enter("/vars")
    terminal.wait("No variables")
    terminal.enter("exit")
    assert terminal.exit_code() == 0
    assert re.search(r"pinfold resume s_\w+", terminal.text())
    assert "sandbox" not in terminal.lines()[-1]  # the status line is gone


def test_an_interrupt_keeps_the_variables_and_the_prompt(start: Start) -> None:
    terminal = start(
        replies=[cell("kept = 7"), cell("import time\nprint('begun')\ntime.sleep(600)"), {"text": "after"}]
    )
    terminal.wait_on_screen(PROMPT)
    terminal.enter("go")
    terminal.wait("begun")
    terminal.enter("said ahead")
    terminal.wait_on_screen("queued: said ahead")
    terminal.feed("half a line")
    terminal.wait_on_screen("> half a line")
    terminal.feed("\x1b")
    terminal.wait("interrupted")
    terminal.wait_gone("esc stops")
    # What waited behind the turn comes back, for the user to decide again.
    terminal.wait_on_screen("> said ahead")
    terminal.wait_on_screen("  half a line")
    terminal.wait_gone("queued:")
    terminal.feed("\x03")
    terminal.wait_gone("half a line")
    terminal.enter("/vars")
    terminal.wait_until(lambda: bool(re.search(r"\bkept\b.*\bint\b", terminal.text())), "the variable is gone")
    terminal.feed("\x03")
    terminal.wait_on_screen("to leave")
    terminal.feed("\x03")
    assert terminal.exit_code() == 0


def test_lines_typed_ahead_are_queued_shown_editable_and_taken_in_order(start: Start, workspace: Path) -> None:
    terminal = start(
        replies=[
            cell(f"{UNTIL_GO}    pass"),
            {"text": "one done"},
            {"text": "two done", "expect": "second"},
            {"text": "three done", "expect": "third, edited"},
        ]
    )
    terminal.wait_on_screen(PROMPT)
    terminal.enter("first")
    terminal.wait_on_screen("esc stops")
    terminal.enter("second")
    terminal.enter("third")
    terminal.wait_on_screen("queued: second")
    terminal.wait_on_screen("queued: third")
    terminal.feed("\x1b[A")
    terminal.wait_on_screen("> third")
    terminal.wait_gone("queued: third")
    terminal.enter(", edited")
    terminal.wait_on_screen("queued: third, edited")
    (workspace / "go").touch()
    terminal.wait("three done")
    text = terminal.text()
    assert text.index("one done") < text.index("two done") < text.index("three done")
    terminal.feed("\x04")
    assert terminal.exit_code() == 0


def test_what_is_above_stays_through_resizes_and_a_paste_of_10_000_lines(start: Start, workspace: Path) -> None:
    terminal = start(
        replies=[
            {"text": "It arrived.", "expect": "line 9999 of the paste"},
            cell(f"n = 1000\n{UNTIL_GO}    n += 1\n    print('row', n, flush=True)"),
            {"text": "All rows."},
        ]
    )
    terminal.wait_on_screen(PROMPT)
    pasted = "\r".join(f"line {number} of the paste" for number in range(10_000))
    terminal.feed(f"look: \x1b[200~{pasted}\x1b[201~")
    terminal.wait_on_screen("> look: [pasted 10,000 lines]")
    terminal.feed(" please\r")
    terminal.wait("It arrived.")
    before = [line for line in terminal.lines() if "It arrived." in line]
    terminal.enter("now the rows")
    terminal.wait("row 1")
    for columns, rows in ((60, 20), (100, 30), (80, 24)):
        terminal.resize(columns, rows)
        terminal.feed(str(columns))
        terminal.wait_on_screen(str(columns))
    (workspace / "go").touch()
    terminal.wait("All rows.")
    assert [line for line in terminal.lines() if "It arrived." in line] == before
    terminal.wait_on_screen("> 6010080")


def test_a_session_looks_the_same_after_kill_9(start: Start, tmp_path: Path) -> None:
    first = start(replies=[cell("answer = 42\nprint('it is', answer)"), {"text": "The answer is **settled**."}])
    first.wait_on_screen(PROMPT)
    first.enter("compute it")
    first.wait("settled")
    first.wait_gone("esc stops")
    told = _conversation(first)
    states = tmp_path / "xdg" / "data" / "pinfold" / "sessions"
    eventually(lambda: bool([*states.glob("*/state/variables/states/*.json")]), "nothing was saved")
    first.kill()
    again = start("-c")
    again.wait("settled")
    assert _conversation(again) == told
    again.enter("/vars")
    again.wait_until(lambda: bool(re.search(r"\banswer\b.*\bint\b", again.text())), "the variable is gone")
    again.feed("\x04")
    assert again.exit_code() == 0


def _conversation(terminal: Terminal) -> list[str]:
    lines = terminal.lines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("> compute it"))
    end = max(at for at, line in enumerate(lines) if "settled" in line)
    return lines[begin : end + 1]
