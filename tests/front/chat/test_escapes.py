"""What others wrote, in each field of each event: nothing that steers a terminal gets there, and no secret."""

from __future__ import annotations

import pytest
from bench.sink_suite.hostile import RAW, hostile
from bench.sink_suite.secrets import planted
from tests.front.chat.recorded_output import Shelf, told
from tests.front.chat.test_event_renderer import TURN, A, B, cell, replied, tool

from pinfold.events import (
    ActionDenied,
    ActionProposed,
    ApprovalDecided,
    CallTool,
    Changed,
    DisplayRef,
    FileChange,
    ModelCalled,
    ModelFailed,
    Noticed,
    OutputDelta,
    SessionChanged,
    SessionOpened,
    TextDelta,
    TurnEnded,
    TurnFailed,
    UserSpoke,
)

pytestmark = pytest.mark.safety
_TOGETHER = 5


async def _everywhere(text: str) -> str:
    """One text in every place that others fill, and all that a terminal gets of it."""
    shelf = Shelf()
    blob = shelf.put(text.encode("utf-8", "replace"))
    html = shelf.put(f"<table><tr><td>{text}</td></tr><tr><td>{text}</td></tr></table>".encode("utf-8", "replace"))
    line = text.replace("\n", " ")
    transcript = await told(
        UserSpoke(turn=TURN, text=text),
        ModelCalled(turn=TURN, model=line),
        TextDelta(turn=TURN, text=text, reasoning=True),
        TextDelta(turn=TURN, text=f"{text}\n\n```python\n{text}\n```\n- {line}\n\n|{line}|\n"),
        replied(f"{text}\n\n```python\n{text}\n```\n- {line}\n\n|{line}|\n", text),
        *cell(
            text,
            f"{text}\n[stderr]\n{text}\n{text}",
            error=text,
            outcome="error",
            variables=Changed(added=(line,)),
            files=(FileChange(path=line, how="changed", before=blob, after=shelf.put(b"other")),),
            displays=(DisplayRef(mime={"text/markdown": blob}), DisplayRef(mime={"text/html": html})),
            between=(OutputDelta(id=A, stream="stdout", text=text),),
        ),
        *tool(line, {"command": text, line: text}, text),
        *tool("shell", {"command": text}, text),
        *tool("write_file", {"path": line, "content": text}, text),
        ActionProposed(id=B, action=CallTool(tool=line, args={})),
        ActionDenied(id=B, reason=text),
        ApprovalDecided(id=B, verdict="deny", words=text),
        Noticed(text=text),
        ModelFailed(turn=TURN, model=line, error=text, retry_in_s=1),
        SessionChanged(title=text),
        SessionOpened(version="", workspace=text, model="", mode="ask", sandbox="", lost=(text,), restored=(text,)),
        TurnFailed(turn=TURN, error=text),
        TurnEnded(turn=TURN, text=text, without=(text,)),
        shelf=shelf,
        thinking=True,
        colour=False,
        width=200,
    )
    return transcript.sent + "".join(live or "" for live in transcript.lives)


async def test_words_that_do_no_harm_are_seen_from_everywhere() -> None:
    assert (await _everywhere("harmless words")).count("harmless words") >= 36


async def test_nothing_that_steers_a_terminal_gets_through_from_anywhere() -> None:
    texts = hostile(40)
    for at in range(0, len(texts), _TOGETHER):
        sent = await _everywhere("\n".join(texts[at : at + _TOGETHER]))
        assert RAW.findall(sent) == [], texts[at : at + _TOGETHER]


async def test_no_secret_gets_through_from_anywhere() -> None:
    secrets = planted()
    for at in range(0, len(secrets), _TOGETHER):
        some = secrets[at : at + _TOGETHER]
        sent = await _everywhere("\n".join(one.line for one in some))
        assert [one.kind for one in some if any(part in sent for part in one.secret.split("\n"))] == []
