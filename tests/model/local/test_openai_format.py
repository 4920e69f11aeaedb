"""Calls written as text become native ones; everything else reaches the client as it was said."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.events import ToolSchema
from pinfold.model.local.server.openai_format import (
    Chunk,
    Refusal,
    check_body,
    extract_calls,
    extract_calls_from_reply,
    in_words,
    tools_in,
    user_texts_in,
)

pytestmark = pytest.mark.unit

READ = {
    "name": "read_file",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Read a.csv."}],
    "tools": [{"type": "function", "function": READ}],
}
TOOLS = tools_in(BODY)
CALL = '{"name": "read_file", "arguments": {"path": "a.csv"}}'


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> Chunk:
    return {"id": "1", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def passed(chunks: Sequence[Chunk], tools: Sequence[ToolSchema] = TOOLS) -> list[Chunk]:
    async def source() -> AsyncGenerator[Chunk]:
        for each in chunks:
            yield each

    async def collected() -> list[Chunk]:
        return [each async for each in extract_calls(source(), tools, ())]

    return anyio.run(collected)


def heard(chunks: Sequence[Chunk]) -> tuple[str, list[tuple[str, Any]], str | None]:
    """Text, calls and the end, as a client puts them together."""
    text, calls, end = "", list[tuple[str, Any]](), None
    for choice in (choice for each in chunks for choice in each["choices"]):
        text += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", ()):
            calls.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
        end = choice["finish_reason"] or end
    return text, calls, end


def said(text: str, size: int = 3) -> list[Chunk]:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(chunk({"content": piece}) for piece in pieces), chunk({}, "stop")]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"<tool_call>\n{CALL}\n</tool_call>",
        '<tool name="read_file">{"path": "a.csv"}</tool>',
        'read_file(path="a.csv")',
    ],
)
def test_each_form_of_a_call_becomes_a_native_one(text: str, size: int) -> None:
    assert heard(passed(said(text, size))) == ("", [("read_file", {"path": "a.csv"})], "tool_calls")


def test_words_before_a_call_go_on_at_once_and_stay() -> None:
    chunks = passed(said(f"I will look.\n{CALL}"))
    assert heard(chunks[:3])[0] == "I will lo"
    assert heard(chunks) == ("I will look.\n", [("read_file", {"path": "a.csv"})], "tool_calls")


def test_several_calls_are_numbered_and_told_apart() -> None:
    chunks = passed(said(f"{CALL}\n{CALL.replace('a.csv', 'b.csv')}"))
    (last,) = chunks[-1]["choices"]
    calls = last["delta"]["tool_calls"]
    assert [call["index"] for call in calls] == [0, 1]
    assert len({call["id"] for call in calls}) == 2


@given(text=st.text(), size=st.integers(1, 9))
def test_what_is_no_call_is_heard_as_it_was_said(text: str, size: int) -> None:
    # No tool of this name can be called in any text that is made here.
    tools = (ToolSchema(name="\U0010fffe" * 3, description="", parameters={}),)
    assert heard(passed(said(text, size), tools)) == (text, [], "stop")


@pytest.mark.parametrize("text", ["a < b", "`read_file` reads", "{1, 2}", "read_file is a tool", "x[0] ~ y"])
def test_what_only_looks_like_the_beginning_of_a_call_comes_at_the_end(text: str) -> None:
    assert heard(passed(said(text))) == (text, [], "stop")


def test_native_calls_pass_and_the_text_beside_them_is_not_read() -> None:
    call = {"index": 0, "id": "x", "function": {"name": "read_file", "arguments": "{}"}}
    chunks = [chunk({"content": CALL}), chunk({"tool_calls": [call]}), chunk({}, "tool_calls")]
    assert heard(passed(chunks)) == (CALL, [("read_file", {})], "tool_calls")


def test_the_choices_of_a_reply_are_read_apart() -> None:
    chunks = [
        chunk({"content": CALL}, index=0),
        chunk({"content": "no"}, index=1),
        chunk({}, "stop", 1),
        chunk({}, "stop", 0),
    ]
    ends = {choice["index"]: choice["finish_reason"] for each in passed(chunks) for choice in each["choices"]}
    assert ends == {0: "tool_calls", 1: "stop"}


def test_a_whole_reply_is_read_the_same_way() -> None:
    def whole(text: str) -> Chunk:
        message = {"role": "assistant", "content": text}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}

    (choice,) = extract_calls_from_reply(whole(f"Look: {CALL}"), TOOLS, ())["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "Look:")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "read_file", "arguments": '{"path":"a.csv"}'}
    assert extract_calls_from_reply(whole("Hello."), TOOLS, ()) == whole("Hello.")


def test_what_the_user_wrote_is_not_called_when_it_is_repeated() -> None:
    body = {**BODY, "messages": [{"role": "user", "content": f"What does this do?\n```json\n{CALL}\n```"}]}
    message = {"role": "assistant", "content": f"```json\n{CALL}\n```"}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    assert extract_calls_from_reply(answer, TOOLS, user_texts_in(body)) == answer


def test_tools_are_put_into_words_with_the_calls_and_answers_so_far() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.csv"}'}}
    body = {
        **BODY,
        "temperature": 0,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Read a.csv."}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "1,2,3"},
        ],
    }
    sent = in_words(body)
    assert sent["temperature"] == 0
    assert "tools" not in sent
    system, user, assistant, answer = sent["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.")
    assert "read_file" in system["content"]
    assert user == {"role": "user", "content": "Read a.csv."}
    assert (assistant["role"], "a.csv" in assistant["content"]) == ("assistant", True)
    assert (answer["role"], "1,2,3" in answer["content"]) == ("user", True)


def test_tools_that_may_not_be_called_are_not_looked_for() -> None:
    assert tools_in({**BODY, "tool_choice": "none"}) == ()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "messages must be a list"),
        ({"messages": []}, "messages must be a list"),
        ({"messages": ["hi"]}, "messages must be a list"),
        ({"messages": [{"role": "king", "content": ""}]}, "there is no role 'king'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "reads text only"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(body: Any, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        check_body(body)
