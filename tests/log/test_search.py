"""Full text over a session: every word somewhere, in any case, in long outputs too."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    CallTool,
    Event,
    ModelReplied,
    RunCell,
    SessionChanged,
    SessionId,
    TurnId,
    UserSpoke,
)
from pinfold.log import Log, matches

pytestmark = pytest.mark.unit


async def test_words_are_found_wherever_they_stand_and_all_of_them_must(tmp_path: Path) -> None:
    log = Log(tmp_path, SessionId("s_1"))
    long = log.blobs.put(b"many lines\n" * 2000 + b"the needle at the end\n")
    id_, turn = ActionId("a_1"), TurnId("t_1")
    events: list[Event] = [
        SessionChanged(title="Größe"),
        UserSpoke(turn=turn, text="Sort the ROWS, please"),
        ModelReplied(turn=turn, model="m", text='He said "done"\nand left'),
        ActionProposed(id=id_, action=RunCell(code="rows.sort()")),
        ActionFinished(id=id_, outcome="ok", observation="many lines ... left out", blobs=(long,)),
        ActionProposed(id=ActionId("a_2"), action=CallTool(tool="shell", args={"command": "wc -l"})),
    ]
    await log.append(*events)

    def places(*words: str) -> list[str]:
        return [match.place for match in matches(tmp_path, words)]

    assert places("rows") == ["you", "code"]  # while the session is open, too
    log.close()
    assert places("rows", "sort()") == ["you", "code"]
    assert places("rows", "nowhere") == []
    assert places("NEEDLE") == ["output"]
    assert places("grösse") == places("GRÖẞE") == ["title"]
    assert places('"done"') == ["agent"]
    assert places("wc -l") == ["call"]
    (match,) = matches(tmp_path, ["needle"])
    assert (match.seq, match.text) == (5, "the needle at the end")
    assert matches(tmp_path / "nothing", ["x"]) == []
