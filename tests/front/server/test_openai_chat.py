"""`/v1/chat/completions` and `/v1/models` of a real `pinfold serve`, by the unmodified `openai` client."""

from __future__ import annotations

import base64
import json
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIError, BadRequestError, InternalServerError, NotFoundError, OpenAI
from pydantic import BaseModel
from tests.front.server.conftest import Wired
from tests.front.server.served import begin, end, follow, until

from pinfold.app.clients import OpenTerms, ServedSessions
from pinfold.front.server import make_app
from pinfold.front.server.gate import Credentials

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKS = {
    "text": "I look it up.",
    "calls": [{"tool": "get_weather", "args": {"city": "Rome"}}, {"tool": "get_weather", "args": {"city": "Oslo"}}],
}


def _cell(code: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"tool": "python", "args": {"code": code}}], **more}


def _user(text: str) -> Any:
    return {"role": "user", "content": text}


def test_the_models_are_the_agent_in_each_mode_and_the_users_own(wired: Wired, openai: OpenAI) -> None:
    names = [model.id for model in openai.models.list()]
    assert names[:5] == ["pinfold", "pinfold-read-only", "pinfold-ask", "pinfold-auto", "pinfold-full"]
    own = wired.script({"text": "x"})
    assert openai.models.retrieve(own).id == own
    assert openai.models.retrieve("pinfold-ask").owned_by == "pinfold"
    for unknown in ("pinfold-nonsense", "builtin"):  # no request fetches weights that are not here
        with pytest.raises(NotFoundError, match="GET /v1/models"):
            openai.models.retrieve(unknown)


def test_a_completion_is_a_turn_of_the_agent_with_its_code_as_reasoning_and_its_usage(wired: Wired) -> None:
    session = wired.session(
        _cell(
            "x = 6 * 7\nprint(x)", text="I compute.", usage={"input_tokens": 10, "output_tokens": 5, "cached_tokens": 3}
        ),
        {"text": "It is 42.", "usage": {"input_tokens": 20, "output_tokens": 4}},
    )
    raw = wired.openai(**session).chat.completions.with_raw_response.create(model="pinfold", messages=[_user("6*7?")])
    done = raw.parse()
    [choice] = done.choices
    assert raw.headers["x-pinfold-session"] == session["X-Pinfold-Session"]
    assert (choice.message.content, choice.finish_reason) == ("I compute.\n\nIt is 42.", "stop")
    assert "x = 6 * 7" in (reasoning := str(choice.message.model_extra))
    assert "42" in reasoning
    assert done.usage
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (
        30,
        9,
        39,
    )
    assert done.usage.prompt_tokens_details
    assert done.usage.prompt_tokens_details.cached_tokens == 3
    assert done.usage.completion_tokens_details is not None


def test_a_stream_has_one_finish_chunk_then_usage_then_done(wired: Wired) -> None:
    session = wired.session(
        {"text": "A long answer, in several pieces.", "usage": {"input_tokens": 7, "output_tokens": 8}}
    )
    body = {
        "model": "pinfold",
        "messages": [_user("hello")],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    response = wired.api.post("/v1/chat/completions", json=body, headers=session)
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    *chunks, finish, counted = [json.loads(line) for line in lines[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert all(chunk["choices"][0]["finish_reason"] is None and chunk["usage"] is None for chunk in chunks)
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks) == (
        "A long answer, in several pieces."
    )
    assert len(chunks) > 2
    assert (finish["choices"][0]["delta"], finish["choices"][0]["finish_reason"]) == ({}, "stop")
    assert (counted["choices"], counted["usage"]["total_tokens"]) == ([], 15)


def test_messages_that_go_on_from_an_answer_continue_its_session_and_edited_ones_branch(openai: OpenAI) -> None:
    def ask(messages: list[Any]) -> tuple[str, str]:
        raw = openai.chat.completions.with_raw_response.create(model="pinfold", messages=messages)
        return raw.headers["x-pinfold-session"], raw.parse().choices[0].message.content or ""

    first = [_user("one, of the test of prefixes")]
    session, said = ask(first)
    assert said == "answer 1"
    second = [*first, {"role": "assistant", "content": f"  {said}\n"}, _user("two")]
    assert ask(second) == (session, "answer 2")
    # The same beginning again, with another second message: the answer to the first holds, that to the second does not.
    branch, said = ask([*second[:2], _user("two, otherwise")])
    assert branch != session
    assert said == "answer 3"  # the scripted model counts what it said in the session, whatever was taken back
    # Nothing here has that answer: a new session is told of it.
    other, said = ask([*first, {"role": "assistant", "content": "never said"}, _user("three")])
    assert other not in (session, branch)
    assert said == "answer 1"
    # Another client says the same and hears the same: nobody can tell the two apart, so neither gets the other's session.
    twin, said = ask(first)
    assert (twin != session, said) == (True, "answer 1")
    goes_on = [*first, {"role": "assistant", "content": said}, _user("two, of whom?")]
    later = {ask(goes_on)[0], ask(goes_on)[0]}
    assert len(later) == 2
    assert later.isdisjoint({session, branch, other, twin})


def test_a_branch_has_forgotten_the_later_turns(wired: Wired) -> None:
    session = wired.session(
        {"text": "noted"}, {"text": "a secret plan"}, {"text": "third", "expect": "noted"}, {"text": "fourth"}
    )
    first = [_user("begin here")]
    said = wired.openai(**session).chat.completions.create(model="pinfold", messages=first).choices[0].message.content
    history: list[Any] = [*first, {"role": "assistant", "content": said}]
    wired.openai().chat.completions.create(model="pinfold", messages=[*history, _user("the later question")])
    raw = wired.openai().chat.completions.with_raw_response.create(model="pinfold", messages=[*history, _user("again")])
    assert raw.parse().choices[0].message.content == "third"
    branch = raw.headers["x-pinfold-session"]
    assert branch != session["X-Pinfold-Session"]
    forgotten = [one["forgotten"] for one in wired.events(branch) if one["kind"] == "SessionRewound"]
    assert len(forgotten[-1]) == 1


@pytest.mark.parametrize("header", ["X-OpenWebUI-Chat-Id", "X-LibreChat-Conversation-Id", "X-Pinfold-Session"])
def test_a_chat_id_of_the_client_names_the_session(wired: Wired, header: str) -> None:
    client = wired.openai(**{header: f"chat-of-{header}"})
    answers = [client.chat.completions.create(model="pinfold", messages=[_user("hi")]) for _ in range(2)]
    assert [one.choices[0].message.content for one in answers] == ["answer 1", "answer 2"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_of_the_caller_pauses_the_turn_until_the_results_come(wired: Wired, streamed: bool) -> None:
    session = wired.session(ASKS, {"text": "Rome is warmer.", "expect": "31 degrees"})
    client = wired.openai(**session)
    messages: list[Any] = [_user("Which is warmer?")]
    if streamed:
        with client.chat.completions.stream(model="pinfold", messages=messages, tools=[WEATHER]) as stream:
            paused = stream.get_final_completion().choices[0]
    else:
        paused = client.chat.completions.create(model="pinfold", messages=messages, tools=[WEATHER]).choices[0]
    calls = paused.message.tool_calls or []
    assert paused.finish_reason == "tool_calls"
    assert paused.message.content == "I look it up."
    assert [json.loads(call.function.arguments) for call in calls if call.type == "function"] == [
        {"city": "Rome"},
        {"city": "Oslo"},
    ]
    messages.append(paused.message.model_dump(exclude_none=True, exclude={"parsed"}))
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": f"{degrees} degrees"}
        for call, degrees in zip(calls, (31, 4), strict=True)
    ]
    # Without the header: the calls say which turn is meant.
    done = wired.openai().chat.completions.create(model="pinfold", messages=messages, tools=[WEATHER])
    assert done.choices[0].message.content == "Rome is warmer."
    events = wired.events(session["X-Pinfold-Session"])
    assert [one["kind"] for one in events].count("UserSpoke") == 1
    results = [one for one in events if one["kind"] == "ActionFinished"]
    assert [(one["observation"], one["untrusted"]) for one in results] == [("31 degrees", True), ("4 degrees", True)]


def test_code_in_a_cell_can_call_a_tool_of_the_caller(wired: Wired) -> None:
    code = "from servers.client_tools import get_weather\nr = get_weather(city='Rome')\nprint('got', r)"
    session = wired.session(_cell(code), {"text": "done", "expect": "got 31 degrees"})
    client = wired.openai(**session)
    messages: list[Any] = [_user("by code")]
    paused = client.chat.completions.create(model="pinfold", messages=messages, tools=[WEATHER]).choices[0].message
    [call] = paused.tool_calls or []
    messages += [
        paused.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "31 degrees"},
    ]
    done = client.chat.completions.create(model="pinfold", messages=messages, tools=[WEATHER])
    assert done.choices[0].message.content == "done"


def test_a_new_message_gives_up_a_call_that_waits(wired: Wired) -> None:
    client = wired.openai(**wired.session(ASKS, {"text": "As you like."}))
    client.chat.completions.create(model="pinfold", messages=[_user("weather?")], tools=[WEATHER])
    done = client.chat.completions.create(model="pinfold", messages=[_user("never mind")], tools=[WEATHER])
    assert done.choices[0].message.content == "As you like."


def test_a_tool_whose_name_we_have_too_keeps_its_name_for_the_caller(wired: Wired) -> None:
    shell: Any = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}
    client = wired.openai(**wired.session({"calls": [{"tool": "client_shell"}]}, {"text": "ok"}))
    paused = client.chat.completions.create(model="pinfold", messages=[_user("go")], tools=[shell]).choices[0]
    [call] = paused.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "shell"


def test_a_call_that_waits_survives_a_killed_server(tmp_path: Path, workspace: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text("".join(json.dumps(one) + "\n" for one in (ASKS, {"text": "Rome.", "expect": "31 degrees"})))
    served = begin(workspace, "--model", f"scripted:{script}")
    messages: list[Any] = [_user("Which is warmer?")]

    def complete(url: str) -> Any:
        with OpenAI(base_url=f"{url}/v1", api_key=served.token, max_retries=0) as client:
            return client.chat.completions.create(model="pinfold", messages=messages, tools=[WEATHER]).choices[0]

    paused = complete(served.url)
    served.process.send_signal(signal.SIGKILL)
    end(served)
    messages.append(paused.message.model_dump(exclude_none=True))
    calls: list[Any] = paused.message.tool_calls
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "31 degrees"} for call in calls]
    served = begin(workspace, "--model", f"scripted:{script}")
    try:
        assert complete(served.url).message.content == "Rome."
    finally:
        assert end(served) == 0


def test_no_tool_is_offered_where_the_caller_wants_none(wired: Wired) -> None:
    client = wired.openai(**wired.session(ASKS, {"text": "I cannot.", "expect": "no tool is called 'get_weather'"}))
    done = client.chat.completions.create(
        model="pinfold", messages=[_user("weather?")], tools=[WEATHER], tool_choice="none"
    )
    assert done.choices[0].finish_reason == "stop"


def test_a_call_that_the_caller_requires_is_made_or_the_turn_fails(wired: Wired) -> None:
    no_call = {"text": "It is sunny."}
    session = wired.session(
        no_call, {**ASKS, "expect": "The client requires a call of get_weather"}, no_call, *[no_call] * 3
    )
    client: Any = wired.openai(**session)
    required: Any = {"messages": [_user("weather?")], "tools": [WEATHER], "tool_choice": "required"}
    done = client.chat.completions.create(model="pinfold", parallel_tool_calls=False, **required).choices[0]
    assert (done.finish_reason, done.message.content) == ("tool_calls", None)
    assert [call.function.name for call in done.message.tool_calls or ()] == ["get_weather"], "one at a time"
    named: Any = {**required, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}}
    with pytest.raises(InternalServerError, match="requires a call of get_weather"):
        client.chat.completions.create(model="pinfold", **named)
    plain = wired.script(no_call, ASKS, no_call, no_call)
    called = client.chat.completions.create(model=plain, parallel_tool_calls=False, **required).choices[0].message
    assert (called.content, len(called.tool_calls or ())) == ("I look it up.", 1)
    with pytest.raises(InternalServerError, match="did not"):
        client.chat.completions.create(model=plain, **required)
    with pytest.raises(BadRequestError, match="among the tools"):
        client.chat.completions.create(model="pinfold", messages=[_user("weather?")], tool_choice=named["tool_choice"])


def test_calls_come_one_at_a_time_where_the_caller_wants_that(wired: Wired) -> None:
    client: Any = wired.openai(**wired.session(ASKS, {"text": "Sun and rain."}))
    messages = [_user("weather?")]
    given: Any = {"model": "pinfold", "tools": [WEATHER], "parallel_tool_calls": False}
    for city in ("Rome", "Oslo"):
        message = client.chat.completions.create(messages=messages, **given).choices[0].message
        (call,) = message.tool_calls
        assert json.loads(call.function.arguments) == {"city": city}
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "fine"},
        ]
    assert client.chat.completions.create(messages=messages, **given).choices[0].message.content == "Sun and rain."


def test_an_answer_has_the_form_that_is_asked_for(wired: Wired) -> None:
    class Sum(BaseModel):
        total: int

    client = wired.openai(**wired.session({"text": "It is 42."}, {"text": '{"total": 42}', "expect": "must be JSON"}))
    done = client.chat.completions.parse(model="pinfold", messages=[_user("sum")], response_format=Sum)
    assert done.choices[0].message.parsed == Sum(total=42)
    free = client.chat.completions.create(model="pinfold", messages=[_user("and now?")])
    assert free.choices[0].message.content == "(end of script)"


def test_system_and_developer_messages_reach_the_model_as_instructions(wired: Wired) -> None:
    client = wired.openai(**wired.session({"text": "Aye.", "expect": "Talk like a pirate"}))
    for role in ("system", "developer"):
        messages: list[Any] = [{"role": role, "content": "Talk like a pirate"}, _user("hello")]
        assert client.chat.completions.create(model="pinfold", messages=messages).choices[0].finish_reason == "stop"


def test_pictures_come_in_as_data_urls_and_go_out_as_markdown(wired: Wired) -> None:
    code = f"class P:\n    def _repr_png_(self): return {PNG!r}\nP()"
    session = wired.session(_cell(code), {"text": "Here it is."})
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    content = [{"type": "text", "text": "draw this"}, {"type": "image_url", "image_url": {"url": url}}]
    messages: list[Any] = [{"role": "user", "content": content}]
    client = wired.openai(**session)
    said = client.chat.completions.create(model="pinfold", messages=messages).choices[0].message.content
    assert said == f"Here it is.\n\n![picture]({url})"
    [spoke] = [one for one in wired.events(session["X-Pinfold-Session"]) if one["kind"] == "UserSpoke"]
    blob = wired.api.get(f"/api/sessions/{session['X-Pinfold-Session']}/blobs/{spoke['images'][0]['blob']}")
    assert blob.content == PNG


def test_an_address_of_a_picture_is_never_fetched(openai: OpenAI) -> None:
    content = [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x.png"}}]
    messages: list[Any] = [{"role": "user", "content": content}]
    with pytest.raises(BadRequestError, match="data: URL"):
        openai.chat.completions.create(model="pinfold", messages=messages)


def test_a_plain_model_answers_without_a_session(wired: Wired, openai: OpenAI) -> None:
    before = len(wired.api.get("/api/sessions").json()["sessions"])
    model = wired.script({"text": "A fine title"}, {"calls": [{"tool": "get_weather", "args": {"city": "Rome"}}]})
    titled = openai.chat.completions.create(model=model, messages=[_user("a title for this")])
    assert titled.choices[0].message.content == "A fine title"
    called = openai.chat.completions.create(model=model, messages=[_user("weather?")], tools=[WEATHER])
    assert called.choices[0].finish_reason == "tool_calls"
    assert len(wired.api.get("/api/sessions").json()["sessions"]) == before


def test_a_client_that_leaves_does_not_end_the_turn(wired: Wired) -> None:
    session = wired.session(_cell("import time\ntime.sleep(0.5)"), {"text": "finished alone"})
    body = {"model": "pinfold", "messages": [_user("slowly")], "stream": True}
    with wired.api.stream("POST", "/v1/chat/completions", json=body, headers=session) as response:
        next(response.iter_lines())
    with follow(wired.api, session["X-Pinfold-Session"]) as events:
        assert until(events, "TurnEnded", "TurnInterrupted", "TurnFailed")[-1]["text"] == "finished alone"


def test_a_turn_that_fails_is_an_error_and_in_a_stream_also_words(wired: Wired) -> None:
    session = wired.session(*[{"error": "bad key", "status": 401}] * 3)
    client = wired.openai(**session)
    with pytest.raises(InternalServerError, match="bad key"):
        client.chat.completions.create(model="pinfold", messages=[_user("go")])
    body = {"model": "pinfold", "messages": [_user("go")], "stream": True}
    lines = wired.api.post("/v1/chat/completions", json=body, headers=session).text.split("\n\n")
    *chunks, failed = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "bad key" in "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert "bad key" in failed["error"]["message"]
    with pytest.raises(APIError, match="bad key"):
        list(client.chat.completions.create(model="pinfold", messages=[_user("go")], stream=True))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "pinfold"}, "messages"),
        ({"model": "pinfold", "messages": [{"role": "user"}]}, "messages[0]"),
        ({"model": "pinfold", "messages": [{"role": "user", "content": "x"}], "n": 2}, "n must be 1"),
        ({"model": "nonsense", "messages": [{"role": "user", "content": "x"}]}, "no model is called"),
        (
            {"model": "pinfold", "messages": [{"role": "tool", "tool_call_id": "a_1", "content": "x"}]},
            "no call a_1 waits",
        ),
    ],
)
def test_a_bad_request_is_told_in_one_line(wired: Wired, body: dict[str, Any], words: str) -> None:
    response = wired.api.post("/v1/chat/completions", json=body)
    assert response.status_code in (400, 404)
    error = response.json()["error"]
    assert words in error["message"]
    assert {*error} == {"message", "type", "param", "code"}


async def test_more_turns_than_may_run_at_once_are_refused_for_now(workspace: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"text": "hello"}))
    terms = OpenTerms(workspace=workspace, flags={"model.name": f"scripted:{script}"})
    for turns, status in ((0, 429), (1, 200)):
        sessions = ServedSessions(terms, turns=turns)
        app = make_app(sessions, Credentials("t" * 32), {"localhost"})
        headers = {"Authorization": f"Bearer {'t' * 32}"}
        transport = httpx2.ASGITransport(app)
        async with sessions.held(), httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"model": "pinfold", "messages": [_user("hi")]}
            answer = await client.post("/v1/chat/completions", json=body, headers=headers)
        assert answer.status_code == status
        assert ("retry-after" in answer.headers) == (status == 429)
