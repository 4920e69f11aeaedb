"""Approvals and questions in the chat: by key, by words, by somebody else, and never by accident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.front.chat.terminal import Terminal, cell, shell

from pinfold.app import RemoteSession
from pinfold.events import ActionId, ApprovalDecided, ApprovalRequested, Decide, Entry, SessionId
from pinfold.front.pages import describe_pattern

pytestmark = pytest.mark.integration
Start = Callable[..., Terminal]
KEYS = "y once"


def ask_user(question: str, *options: str) -> dict[str, Any]:
    return {"calls": [{"tool": "ask_user", "args": {"question": question, "options": [*options]}}]}


def test_keys_answer_and_nothing_that_was_typed_before_does(start: Start, workspace: Path) -> None:
    terminal = start(
        mode="ask",
        replies=[
            shell("touch one"),
            {"text": "first over"},
            shell("mkdir two"),
            {"text": "second over"},
            shell("touch three"),
            shell("touch three four"),
            {"text": "third over"},
        ],
    )
    terminal.wait_on_screen("ask · ")
    # Typed ahead: were it taken for an answer, `y` would say yes and `n` no.
    terminal.feed("make one\ryes no")
    terminal.wait_on_screen(KEYS)
    terminal.wait("writes  touch one")
    assert not (workspace / "one").exists()
    terminal.feed("\r")  # a stray Enter
    terminal.feed("y")
    terminal.wait("first over")
    assert (workspace / "one").exists()
    terminal.wait_gone("esc stops")
    terminal.wait_on_screen("> yes no")  # what was being typed is back
    terminal.feed("\x03")
    terminal.wait_gone("yes no")

    terminal.enter("make two")
    terminal.wait_on_screen(KEYS)
    terminal.feed("n")
    terminal.wait_on_screen("no:")
    terminal.enter("use three instead")
    terminal.wait("second over")
    terminal.wait("use three instead")
    assert not (workspace / "two").exists()

    terminal.enter("make three")
    terminal.wait_on_screen(KEYS)
    terminal.wait('"Session" and "always" allow commands that begin with `touch`')
    terminal.wait("saved in grants.json")
    terminal.feed("s")
    terminal.wait("third over")  # the second one was not asked about
    assert (workspace / "four").exists()


def test_bytes_before_during_and_after_the_drawing_of_a_question(start: Start, workspace: Path) -> None:
    terminal = start(
        mode="ask", replies=[{**shell("touch one"), "delay_s": 0.3}, shell("mkdir two"), {"text": "all over"}]
    )
    terminal.wait_on_screen("ask · ")
    terminal.feed("make them\ry")  # before
    terminal.wait_on_screen("Allow this?")
    terminal.feed("s")  # while it is drawn and its keys are not
    terminal.wait_on_screen(KEYS)
    assert not (workspace / "one").exists()
    terminal.feed("yes please")  # after, but words: y, s, a and e are in them
    terminal.wait_on_screen("> ysyes please")
    terminal.wait_on_screen("what you typed is in the input line")
    terminal.wait_gone(KEYS)
    terminal.wait_on_screen(KEYS)
    terminal.feed("\x1b[200~y\x1b[201~")  # a paste
    terminal.wait_on_screen("> ysyes pleasey")
    terminal.wait_on_screen(KEYS)
    assert not (workspace / "one").exists()
    terminal.feed("y" * 3)  # held too long: it is one yes, and none to the next question
    terminal.wait("writes  mkdir two")
    assert (workspace / "one").exists()
    terminal.wait_on_screen(KEYS)
    assert not (workspace / "two").exists()
    terminal.feed("y")
    terminal.wait("all over")
    assert (workspace / "two").is_dir()
    terminal.wait_on_screen("> ysyes pleasey")


def test_a_key_that_came_too_early_is_not_left_in_the_input_line(start: Start, workspace: Path) -> None:
    terminal = start(mode="ask", replies=[shell("touch one"), {"text": "all over"}])
    terminal.wait_on_screen("ask · ")
    terminal.enter("make it")
    terminal.wait_on_screen("Allow this?")
    terminal.feed("n")
    terminal.wait_on_screen(KEYS)
    terminal.feed("y")
    terminal.wait("all over")
    assert (workspace / "one").exists()
    terminal.wait_gone("esc stops")
    assert not any(line.startswith("> n") for line in terminal.screen())


def test_a_server_is_called_what_the_user_calls_it() -> None:
    same = "notes.note (while the server notes is the same program)"
    assert describe_pattern("tool: notes.note of server 72e55f13") == f"calls of {same}"
    assert describe_pattern("flow: notes.note of server 72e55f13") == f"sending to {same}"
    assert describe_pattern("tool: send_mail") == "calls of send_mail"


def test_a_question_closes_the_menu_of_what_could_be_typed(start: Start, workspace: Path) -> None:
    until_go = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.005)\n"
    terminal = start(mode="ask", replies=[cell(until_go), shell("touch one"), {"text": "over"}])
    terminal.wait_on_screen("ask · ")
    terminal.enter("go")
    terminal.wait_on_screen("esc stops")
    terminal.feed("/mod")
    terminal.wait_on_screen("list models; change the model")
    (workspace / "go").touch()
    terminal.wait_on_screen("Allow this?")
    assert "list models; change the model" not in "\n".join(terminal.screen())
    terminal.wait_on_screen(KEYS)
    terminal.feed("y")
    terminal.wait("over")
    terminal.wait_on_screen("> /mod")


def test_questions_are_answered_in_words_elsewhere_or_not_at_all(start: Start, workspace: Path, tmp_path: Path) -> None:
    terminal = start(
        mode="ask",
        replies=[
            ask_user("Which fruit?", "apples", "pears"),
            ask_user("How many?"),
            {"text": "bought", "expect": "pears"},
            shell("touch one"),
            {"text": "one is there"},
            shell("touch two"),
            {"text": "not reached"},
        ],
    )
    terminal.wait_on_screen("ask · ")
    terminal.enter("buy fruit")
    terminal.wait_on_screen("number or words:")
    terminal.wait("2. pears")
    terminal.enter("2")
    terminal.wait_on_screen("answer:")
    terminal.feed("\r")  # says nothing
    terminal.enter("a dozen")
    terminal.wait("bought")
    terminal.wait("[answered: a dozen]")
    assert terminal.text().count("How many?") == 1  # not as a call besides

    terminal.enter("make one")
    terminal.wait_on_screen(KEYS)
    (folder,) = (tmp_path / "xdg" / "data" / "pinfold" / "sessions").glob("s_*")
    anyio.run(_allow, folder)
    terminal.wait("one is there")
    terminal.wait("answered by another process")
    terminal.wait_gone(KEYS)
    assert (workspace / "one").exists()

    terminal.enter("make two")
    terminal.wait_on_screen(KEYS)
    terminal.feed("\x03")
    terminal.wait("interrupted")
    terminal.wait_gone(KEYS)
    assert not (workspace / "two").exists()
    assert "not reached" not in terminal.text()


async def _allow(folder: Path) -> None:
    link = RemoteSession(SessionId(folder.name), folder)
    asked: dict[ActionId, ApprovalRequested] = {}
    last = (await link.status()).seq
    with anyio.fail_after(60):
        async with link.subscribe(0) as feed:
            async for item in feed:
                match item:
                    case Entry(event=ApprovalRequested() as event):
                        asked[event.id] = event
                    case Entry(event=ApprovalDecided() as event):
                        del asked[event.id]
                    case _:
                        pass
                if isinstance(item, Entry) and item.seq >= last:
                    break
    (event,) = asked.values()
    await link.submit(Decide(id=event.id, digest=event.digest, verdict="allow"))
