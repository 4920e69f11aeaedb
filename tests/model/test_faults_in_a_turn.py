"""A turn with a server that fails: the real wire, the real engine, and a log on disk that tells all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.engine.doubles import SESSION, at_noon, life, says
from tests.model.servers import Says, Server, chunk, failing, said, serving

from pinfold.engine import Breaker, Budget
from pinfold.events import Entry, Event, ModelCalled, ModelFailed, ModelReplied, TurnEnded, TurnFailed
from pinfold.log import Log
from pinfold.model import ScriptedModel
from pinfold.model.wire.http import Patience
from pinfold.model.wire.openai import OpenAIModel

pytestmark = pytest.mark.integration
GOOD = said("fine")
HALF = chunk({"content": "half of"})
FAULTS = {
    "429 with Retry-After": failing(429, {}, retry_after="0"),
    "500": failing(500, {"error": {"message": "oops"}}),
    "529": failing(529, {"error": {"message": "overloaded"}}),
    "a cut stream": Says(steps=(HALF,), end="cut"),
    "a stream without its end": Says(steps=(HALF,)),
    "bad JSON": Says(steps=(b"data: {nonsense\n\n",)),
    "a slow first byte": Says(end="hang"),
}
TOO_LONG = {"error": {"code": "context_length_exceeded", "message": "this is too long"}}
FINAL = {
    "a bad key": (failing(401, {"error": {"message": "no such key"}}), "no such key"),
    "a page of HTML": (Says(kind="text/html", steps=(b"<html>hello</html>",)), "a web page"),
    "a context that is too small": (failing(400, TOO_LONG), "too long"),
}


def model_at(server: Server) -> OpenAIModel:
    patience = Patience(connect_s=5, first_s=4, idle_s=20)
    return OpenAIModel(name="faulty", base_url=f"{server.url}/v1", model="m", patience=patience)


async def told(folder: Path, server: Server, *others: ScriptedModel, breaker: Breaker | None = None) -> Sequence[Event]:
    """The turn as the log has it afterwards, read from disk again."""
    model = model_at(server)
    log = Log(folder, SESSION, clock=at_noon)
    budget = Budget(retry_base_s=0.0, attempts=3)
    async with life(model, log=log, budget=budget, breaker=breaker) as session:
        session.core.fallbacks = others
        await session.say()
    await model.aclose()
    log.close()
    again = Log(folder, SESSION)
    entries: list[Entry] = list(again.read())
    again.close()
    return [entry.event for entry in entries]


def of(kind: type[Event], events: Sequence[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_passes_is_asked_again_and_both_are_on_record(tmp_path: Path, fault: str) -> None:
    with serving(FAULTS[fault], GOOD) as server:
        events = await told(tmp_path, server)
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].text == "fine"
    assert len(of(ModelCalled, events)) == len(server.asked) == 2
    (failed,) = of(ModelFailed, events)
    assert isinstance(failed, ModelFailed)
    assert failed.error
    assert failed.retry_in_s == 0.0


@pytest.mark.parametrize("fault", FINAL)
async def test_what_does_not_pass_is_not_asked_again_and_says_why(tmp_path: Path, fault: str) -> None:
    answer, words = FINAL[fault]
    with serving(answer, GOOD) as server:
        events = await told(tmp_path, server)
    assert len(server.asked) == 1
    assert isinstance(events[-1], TurnFailed)
    assert events[-1].temporary is False
    assert words in events[-1].error.lower()


@pytest.mark.parametrize("fault", [*FAULTS, *FINAL])
async def test_the_next_model_answers_for_a_server_that_stays_broken(tmp_path: Path, fault: str) -> None:
    answer = FAULTS.get(fault) or FINAL[fault][0]
    with serving(answer) as server:
        events = await told(tmp_path, server, ScriptedModel([says("here")], name="second"))
    end = events[-1]
    assert isinstance(end, TurnEnded)
    assert end.text.startswith("here")
    assert [what.partition(" (")[0] for what in end.without] == ["faulty"]
    assert len(of(ModelFailed, events)) == len(server.asked) == (1 if fault in FINAL else 3)


async def test_a_server_that_keeps_failing_is_left_alone_after_a_while(tmp_path: Path) -> None:
    with serving(FAULTS["529"]) as server:
        events = await told(tmp_path, server, breaker=Breaker(clock=lambda: 0.0, threshold=2))
    assert len(server.asked) == 2
    assert [event.breaker for event in events if isinstance(event, ModelFailed)] == ["closed", "open", "open"]
    assert isinstance(events[-1], TurnFailed)
    assert events[-1].temporary
    assert not of(ModelReplied, events)
