"""`/v1/responses` of a real `pinfold serve`, by the unmodified `openai` client; Open Responses parses every body and event."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any, cast

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel
from tests.front.server.conftest import Wired
from tests.front.server.served import follow, until
from tests.front.server.test_openai_chat import PNG

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": None,
}
ASKS = {"calls": [{"tool": "get_weather", "args": {"city": "Rome"}}]}
PNG_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def _cell(code: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"tool": "python", "args": {"code": code}}], **more}


def test_a_response_has_text_reasoning_and_usage_and_is_the_same_when_fetched_again(wired: Wired) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 3}
    client = wired.openai(
        **wired.session(_cell("x = 6 * 7\nprint(x)", text="I compute.", usage=usage), {"text": "42."})
    )
    made = client.responses.create(model="pinfold", input="6*7?", metadata={"mine": "yes"}, instructions="Be brief.")
    assert (made.status, made.output_text, made.metadata) == ("completed", "I compute.\n\n42.", {"mine": "yes"})
    assert [item.type for item in made.output] == ["message", "reasoning", "message"]
    assert made.usage
    assert (made.usage.total_tokens, made.usage.input_tokens_details.cached_tokens) == (15, 3)
    assert client.responses.retrieve(made.id) == made
    assert "response" in wired.checked


def test_a_stream_has_the_events_in_order_and_ends_with_the_whole_response(wired: Wired) -> None:
    client = wired.openai(**wired.session(_cell("print(42)"), {"text": "An answer in several pieces, as it comes."}))
    with client.responses.stream(model="pinfold", input="go") as stream:
        kinds = [event.type for event in stream]
        whole = stream.get_final_response()
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    text = kinds[kinds.index("response.content_part.added") - 1 :]
    assert [*dict.fromkeys(text)] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert text.count("response.output_text.delta") > 1
    assert whole.output_text == "An answer in several pieces, as it comes."
    again = client.responses.retrieve(whole.id)
    assert [item.type for item in again.output] == [item.type for item in whole.output]
    assert again.output_text == whole.output_text


def test_a_response_goes_on_from_an_earlier_one_and_twice_from_the_same_is_a_branch(wired: Wired) -> None:
    session = wired.session(
        _cell("x = 1"),
        {"text": "x is 1"},
        _cell("x = 2"),
        {"text": "x is 2"},
        _cell("print('x here is', x)"),
        {"text": "as it was", "expect": "x here is 1"},
    )
    client = wired.openai(**session)
    first = client.responses.create(model="pinfold", input="begin")
    second = client.responses.create(model="pinfold", input="go on", previous_response_id=first.id)
    assert (second.output_text, second.previous_response_id) == ("x is 2", first.id)
    raw = wired.openai().responses.with_raw_response.create(
        model="pinfold", input="otherwise", previous_response_id=first.id
    )
    assert raw.parse().output_text == "as it was"
    assert raw.headers["x-pinfold-session"] != session["X-Pinfold-Session"]
    assert client.responses.retrieve(second.id).output_text == "x is 2"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stateless", [False, True])
def test_a_function_call_comes_back_and_its_output_continues_the_turn(
    wired: Wired, streamed: bool, stateless: bool
) -> None:
    session = wired.session(ASKS, {"text": "It is warm.", "expect": "31 degrees"})
    client = wired.openai(**session)
    if streamed:
        with client.responses.stream(model="pinfold", input="weather?", tools=[WEATHER]) as stream:
            paused: Any = stream.get_final_response()
    else:
        paused = client.responses.create(model="pinfold", input="weather?", tools=[WEATHER])
    [call] = [item for item in paused.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments), call.status) == ("get_weather", {"city": "Rome"}, "completed")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "31 degrees"}
    asked: list[Any] = [{"role": "user", "content": "weather?"}, *(item.model_dump() for item in paused.output), result]
    more: dict[str, Any] = {"input": asked} if stateless else {"input": [result], "previous_response_id": paused.id}
    done = cast("Response", wired.openai().responses.create(model="pinfold", tools=[WEATHER], **more))
    assert done.output_text == "It is warm."
    assert client.responses.retrieve(paused.id).output[-1].type == "function_call"
    assert client.responses.retrieve(done.id).output_text == "It is warm."
    assert [one["kind"] for one in wired.events(session["X-Pinfold-Session"])].count("UserSpoke") == 1


def test_two_outputs_at_once_are_read_again_as_they_were_answered(wired: Wired) -> None:
    both = {"calls": [{"tool": "get_weather", "args": {"city": city}} for city in ("Rome", "Oslo")]}
    client = wired.openai(**wired.session(both, {"text": "Rome."}))
    paused = client.responses.create(model="pinfold", input="warmer?", tools=[WEATHER])
    results: list[Any] = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "31"}
        for item in paused.output
        if item.type == "function_call"
    ]
    assert len(results) == 2
    done = client.responses.create(model="pinfold", input=results, previous_response_id=paused.id, tools=[WEATHER])
    assert done.output_text == "Rome."
    assert client.responses.retrieve(done.id) == done


def test_several_messages_are_one_conversation(openai: OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": "one, of several messages"}]
    first = openai.responses.create(model="pinfold", input=items)
    items += [*(item.model_dump() for item in first.output), {"role": "user", "content": "two"}]
    assert (first.output_text, openai.responses.create(model="pinfold", input=items).output_text) == (
        "answer 1",
        "answer 2",
    )


def test_a_conversation_is_a_session(openai: OpenAI) -> None:
    answers = [
        openai.responses.create(model="pinfold", input="hi", conversation="conv_of_the_test").output_text for _ in "ab"
    ]
    assert answers == ["answer 1", "answer 2"]


def test_instructions_and_a_system_message_reach_the_model(wired: Wired) -> None:
    client = wired.openai(
        **wired.session({"text": "Aye.", "expect": "like a pirate"}, {"text": "Aye.", "expect": "like a pirate"})
    )
    assert client.responses.create(model="pinfold", input="hi", instructions="Talk like a pirate").output_text == "Aye."
    items: list[Any] = [{"role": "system", "content": "Talk like a pirate"}, {"role": "user", "content": "hi"}]
    assert client.responses.create(model="pinfold", input=items).output_text == "Aye."


def test_a_picture_and_files_come_in(wired: Wired, openai: OpenAI) -> None:
    code = "print(open('attachments/numbers.csv').read(), open('attachments/notes.txt').read())"
    session = wired.session(_cell(code), {"text": "seen", "expect": "1,2\n 3,4"})
    uploaded = openai.files.create(file=("notes.txt", b"3,4"), purpose="user_data")
    data = f"data:text/csv;base64,{base64.b64encode(b'1,2' + bytes([10])).decode()}"
    content = [
        {"type": "input_text", "text": "what is in these?"},
        {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
        {"type": "input_file", "filename": "../numbers.csv", "file_data": data},
        {"type": "input_file", "file_id": uploaded.id},
    ]
    items: list[Any] = [{"type": "message", "role": "user", "content": content}]
    assert wired.openai(**session).responses.create(model="pinfold", input=items).output_text == "seen"
    [spoke] = [one for one in wired.events(session["X-Pinfold-Session"]) if one["kind"] == "UserSpoke"]
    assert spoke["images"][0]["mime"] == "image/png"
    assert "attachments/numbers.csv, 4 bytes" in spoke["text"]


def test_a_file_elsewhere_is_never_fetched(openai: OpenAI) -> None:
    content = [{"type": "input_file", "file_url": "http://127.0.0.1:9/x.csv"}]
    items: list[Any] = [{"role": "user", "content": content}]
    with pytest.raises(BadRequestError, match="Pinfold fetches nothing"):
        openai.responses.create(model="pinfold", input=items)


def test_an_answer_in_a_form_is_nothing_but_that(wired: Wired) -> None:
    class Sum(BaseModel):
        total: int

    client = wired.openai(**wired.session(_cell("print(42)", text="I compute."), {"text": '{"total": 42}'}))
    done = client.responses.parse(model="pinfold", input="sum", text_format=Sum)
    assert done.output_parsed == Sum(total=42)
    assert client.responses.retrieve(done.id).output_text == '{"total": 42}'


def test_what_is_deleted_or_was_not_stored_is_gone(openai: OpenAI) -> None:
    kept = openai.responses.create(model="pinfold", input="keep")
    openai.responses.delete(kept.id)
    unstored = openai.responses.create(model="pinfold", input="do not keep", store=False)
    for gone in (kept, unstored):
        with pytest.raises(NotFoundError):
            openai.responses.retrieve(gone.id)
        with pytest.raises(NotFoundError):
            openai.responses.create(model="pinfold", input="go on", previous_response_id=gone.id)


def test_a_response_in_the_background_is_fetched_or_cancelled(wired: Wired) -> None:
    session = wired.session({"text": "done alone"}, _cell("import time\ntime.sleep(600)"))
    client, name = wired.openai(**session), session["X-Pinfold-Session"]
    made = client.responses.create(model="pinfold", input="go", background=True)
    with follow(wired.api, name) as events:
        until(events, "TurnEnded")
    assert made.status == "in_progress"
    assert client.responses.retrieve(made.id).output_text == "done alone"
    slow = client.responses.create(model="pinfold", input="slowly", background=True)
    with follow(wired.api, name) as events:
        until(events, "ActionProposed")
        assert client.responses.retrieve(slow.id).status == "in_progress"
        client.responses.cancel(slow.id)
        until(events, "TurnInterrupted")
    assert client.responses.retrieve(slow.id).status == "cancelled"


def test_a_client_that_leaves_finds_the_answer_later(wired: Wired) -> None:
    session = wired.session(_cell("import time\ntime.sleep(0.5)"), {"text": "finished alone"})
    body = {"model": "pinfold", "input": "slowly", "stream": True}
    with wired.api.stream("POST", "/v1/responses", json=body, headers=session) as response:
        line = next(line for line in response.iter_lines() if line.startswith("data: "))
    with follow(wired.api, session["X-Pinfold-Session"]) as events:
        until(events, "TurnEnded")
    found = wired.openai().responses.retrieve(json.loads(line[6:])["response"]["id"])
    assert (found.status, found.output_text) == ("completed", "finished alone")


def test_a_turn_that_fails_says_so_in_words_too(wired: Wired) -> None:
    client = wired.openai(**wired.session({"error": "bad key", "status": 401}))
    failed = client.responses.create(model="pinfold", input="go")
    assert failed.status == "failed"
    assert failed.error
    assert "bad key" in failed.error.message
    assert "bad key" in failed.output_text


def test_a_plain_model_can_answer_a_response(wired: Wired, openai: OpenAI) -> None:
    made = openai.responses.create(model=wired.script({"text": "A title"}), input="a title for this")
    assert made.output_text == "A title"
    assert openai.responses.retrieve(made.id).output_text == "A title"
