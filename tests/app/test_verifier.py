"""The verifier: it checks an answer on a fork of the session, and may refuse one in each turn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinfold.app.config.layers import Loaded
from pinfold.app.config.schema import Config
from pinfold.app.session.live_session import open_session
from pinfold.app.session.options import Options
from pinfold.app.session.toolbox import ToolOptions
from pinfold.engine import fold
from pinfold.events import Entry, Event, Noticed, Say, SessionId, TurnEnded, TurnFailed, new_turn_id

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Script = Callable[..., str]
Cell = Callable[..., dict[str, Any]]


async def answered(workspace: Path, model: str, **options: Any) -> tuple[str, list[str], list[Entry]]:
    """The answer of a turn, the notices, and all events."""
    given = Options(workspace=workspace, sandbox="namespaces", mode="auto", model=model, **options)
    events: list[Event] = []
    log: list[Entry] = []
    async with open_session(None, SessionId("s_verified"), given) as live:
        async with live.subscribe(live.log.seq) as feed:
            await live.submit(Say(turn=new_turn_id(), text="How many?"))
            async for item in feed:
                events += [item.event] if isinstance(item, Entry) else []
                if events and isinstance(events[-1], TurnEnded | TurnFailed):
                    break
        log += live.log.read()
    assert fold(log).turns[-1].is_checked is bool(options)
    end = events[-1]
    assert isinstance(end, TurnEnded), end
    return end.text, [event.text for event in events if isinstance(event, Noticed)], log


CHECK = """python3 -c 'import json, sys, os; given = json.load(sys.stdin); open("left.txt", "w").write("x")
if "3" not in given["answer"]: print("not", given["answer"], "to", given["question"], os.path.exists("data.txt")); sys.exit(1)'"""


async def test_a_command_refuses_once_with_reasons_and_the_next_answer_stands(
    workspace: Path, script: Script, cell: Cell
) -> None:
    (workspace / "data.txt").write_text("abc")
    model = script({"text": "2"}, {"expect": "not 2 to How many? True", "text": "I still say 2"})
    text, notices, _ = await answered(workspace, model, verify=CHECK)
    assert text == "I still say 2"
    assert any(notice.startswith("The verifier refused the answer: not 2 to How many?") for notice in notices)
    assert not (workspace / "left.txt").exists()


async def test_an_answer_that_passes_is_given_as_it_is(workspace: Path, script: Script, cell: Cell) -> None:
    text, notices, _ = await answered(workspace, script({"text": "3"}), verify=CHECK)
    assert text == "3"
    assert not any("verifier" in notice for notice in notices)
    text, _, _ = await answered(workspace, script(cell("answer('it is 3')")), verify=CHECK)
    assert text == "it is 3"


async def test_without_a_verifier_nothing_is_checked(workspace: Path, script: Script) -> None:
    assert (await answered(workspace, script({"text": "2"})))[0] == "2"


async def test_a_check_that_cannot_be_run_is_said_and_the_answer_stands(workspace: Path, script: Script) -> None:
    text, notices, _ = await answered(workspace, script({"text": "2"}), verify="model")
    assert text == "2"
    assert any("could not be checked" in notice for notice in notices)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        ("I counted again.\nREFUSE: there are 3 rows, not 2", "3 then"),
        ("REFUSE would be wrong here.\nACCEPT", "2"),
    ],
)
async def test_a_sub_agent_called_verifier_checks_and_changes_nothing(
    workspace: Path, script: Script, cell: Cell, verdict: str, text: str
) -> None:
    looks = cell("rows\nopen('planted.txt', 'w')")
    checks = script({"expect": "How many?", **looks}, {"text": verdict, "usage": {"input_tokens": 7}}, name="checks")
    definition = f"---\nname: verifier\nmodel: {checks}\n---\nBe exact."
    loaded = Loaded(config=Config(), origins={}, obeyed={".agents/agents/verifier.md": definition.encode()})
    model = script(cell("rows = [1, 2, 3]"), {"text": "2"}, {"expect": "there are 3 rows, not 2", "text": "3 then"})
    given, _, log = await answered(workspace, model, verify="model", toolbox=ToolOptions(loaded=loaded))
    assert given == text
    assert fold(log).usage.input_tokens == 7
    assert not (workspace / "planted.txt").exists()
