"""`/agui` of a real `pinfold serve`: every event is one of the types of AG-UI 1.0."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from ag_ui.core import Event, RunAgentInput
from pydantic import TypeAdapter
from tests.front.server.conftest import Wired

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
TOOL = {
    "name": "confirm",
    "description": "Ask the user on the page",
    "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
}


def _run(wired: Wired, messages: list[Any], *, thread: str, run: str = "r1", **more: Any) -> list[dict[str, Any]]:
    given: dict[str, Any] = {
        "threadId": thread,
        "runId": run,
        "messages": messages,
        "state": {},
        "tools": [],
        "context": [],
        **more,
    }
    RunAgentInput.model_validate(given)
    response = wired.api.post("/agui", json=given)
    assert response.status_code == 200, response.text
    events = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]
    for event in events:
        _EVENT.validate_python(event)
    return events


def test_a_run_begins_speaks_and_finishes_and_its_thread_is_a_session(wired: Wired) -> None:
    messages = [{"id": "1", "role": "user", "content": "hello"}]
    events = _run(wired, messages, thread="thread-a")
    assert [one["type"] for one in events] == [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert events[3]["delta"] == "answer 1"
    messages += [
        {"id": "2", "role": "assistant", "content": "answer 1"},
        {"id": "3", "role": "user", "content": "more"},
    ]
    again = _run(wired, messages, thread="thread-a", run="r2")
    assert again[1] == events[1]
    assert again[3]["delta"] == "answer 2"


def test_a_tool_of_the_page_ends_the_run_and_its_result_goes_on(wired: Wired) -> None:
    script = [
        {"calls": [{"tool": "python", "args": {"code": "print(42)"}}]},
        {"calls": [{"tool": "confirm", "args": {"question": "Sure?"}}]},
        {"text": "Then yes.", "expect": "yes, do"},
    ]
    session = wired.session(*script)["X-Pinfold-Session"]
    wired.api.headers["X-Pinfold-Session"] = session
    try:
        messages: list[Any] = [{"id": "1", "role": "user", "content": "ask me"}]
        events = _run(wired, messages, thread="thread-b", tools=[TOOL])
    finally:
        del wired.api.headers["X-Pinfold-Session"]
    kinds = [one["type"] for one in events]
    assert kinds[2:4] == ["REASONING_START", "REASONING_MESSAGE_START"]
    assert kinds[-4:] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_FINISHED"]
    call = events[-4]["toolCallId"]
    assert events[-1]["outcome"]["pendingToolCallIds"] == [call]
    function = {"name": "confirm", "arguments": events[-3]["delta"]}
    messages += [
        {"id": "2", "role": "assistant", "toolCalls": [{"id": call, "type": "function", "function": function}]},
        {"id": "3", "role": "tool", "toolCallId": call, "content": "yes, do"},
    ]
    done = _run(wired, messages, thread="thread-b", run="r2", tools=[TOOL])
    assert [one["delta"] for one in done if one["type"] == "TEXT_MESSAGE_CONTENT"] == ["Then yes."]


def test_a_turn_that_fails_is_a_run_error(wired: Wired) -> None:
    session = wired.session({"error": "bad key", "status": 401})["X-Pinfold-Session"]
    wired.api.headers["X-Pinfold-Session"] = session
    try:
        events = _run(wired, [{"id": "1", "role": "user", "content": "go"}], thread="thread-c")
    finally:
        del wired.api.headers["X-Pinfold-Session"]
    assert events[-1]["type"] == "RUN_ERROR"
    assert "bad key" in events[-1]["message"]
