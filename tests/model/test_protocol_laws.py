"""What holds for every reply and every conversation, however odd."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from tests.events.strategies import plain
from tests.events.strategies import texts as nasty_texts
from tests.model.malformed_replies import DEEP, FRAGMENTS, WHOLE_FORMS, texts
from tests.time_complexity import assert_linear, repeated

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BlobId,
    Call,
    Image,
    Message,
    ModelReplied,
    Reply,
    Request,
    ToolMessage,
    ToolSchema,
    TurnId,
    UserMessage,
    decode_object,
    encode,
    parse_json,
)
from pinfold.model.protocol import Style, put_tools_in_prompt
from pinfold.model.protocol.reply_parser import ParsedReply, parse_reply

pytestmark = pytest.mark.unit


def schema(name: str, *required: str, **more: str) -> ToolSchema:
    properties = {key: {"type": "string"} for key in (*required, *more)}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSchema(name=name, description="", parameters=parameters)


TOOLS = (schema("python", "code"), schema("read_file", "path", start_line=""), schema("now", tz=""))
NAMES = {tool.name for tool in TOOLS}
LIMIT_S = 10
"""Ten million characters in a second are for bench/malformed.py: this is for a machine that may be busy."""
PROSE = st.text(st.sampled_from("Some words, and a number: 42.\n"), max_size=60)


def read_soon(text: str, **more: Any) -> ParsedReply:
    began = time.thread_time()
    reading = parse_reply(text, TOOLS, **more)
    assert time.thread_time() - began < LIMIT_S
    return reading


def asked(reading: ParsedReply) -> list[tuple[str, Any]]:
    return [(call.tool, call.args) for call in reading.calls]


@settings(max_examples=150)
@given(texts, st.sampled_from(("stop", "length", "filter")))
@example("\ud800```python\n\ud800\n```", "stop")
def test_any_reply_is_read_and_what_comes_of_it_can_be_stored(text: str, finish: Any) -> None:
    reading = read_soon(text, finish=finish)
    assert {call.tool for call in reading.calls} <= NAMES
    assert asked(read_soon(text, finish=finish)) == asked(reading)
    event = ModelReplied(turn=TurnId("t"), model="m", text="", actions=reading.calls)
    stored = decode_object(parse_json(encode(event)))
    assert encode(stored) == encode(event)
    assert len(reading.correction) < 1_000


@settings(max_examples=100)
@given(texts, st.floats(0, 1))
def test_a_reply_cut_off_anywhere_is_read(text: str, place: float) -> None:
    read_soon(text[: int(place * len(text))], finish="length")


SWELLING = sorted({*FRAGMENTS, *WHOLE_FORMS, *DEEP, "\n", "a ", "{'name': 'now', 'arguments': {'tz': 'x", "now(\n"})


@pytest.mark.parametrize("piece", [pytest.param(piece, id=ascii(piece)[:30]) for piece in SWELLING])
def test_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    assert_linear(
        lambda text: parse_reply(text, TOOLS, finish="stop", quoted=[text[:100_000]]),
        repeated(piece),
        (10_000, 100_000),
    )


OPENINGS = (
    *("```python\n", "```\n", "```json\n", "~~~python\n", '<tool name="python">', '<tool name="now">'),
    *("<tool_call>", '{"name": "now", "arguments": {"tz": "', "python('", "<think>", "> ", "[now(tz='"),
)
FILLINGS = ("x = 1\n", '\\"', "'", '"', '"""', "'\"\n", "[],", "1,", "<tool x>", "{", "```", "`", "#\n", " ", "\\'\n")


@settings(max_examples=30)
@given(st.sampled_from(OPENINGS), st.lists(st.sampled_from(FILLINGS), min_size=1, max_size=3).map("".join))
def test_the_time_of_one_long_call_grows_with_it_and_no_faster(opening: str, filling: str) -> None:
    assert_linear(
        lambda text: parse_reply(text, TOOLS, finish="stop", quoted=["x = 1"]),
        lambda size: opening + repeated(filling)(size),
        (5_000, 50_000),
    )


LINES = ("x = 1", "print('a')", '"""', "'''", "\n", "\\", "# no", " ", "`", "``", "```", "\r", "f(x)", "now()", "[x]")
PLAIN_LINES = tuple(line for line in LINES if line not in ('"""', "'''"))
LONGEST = 20_000
"""Characters of code. Of a reply that has a hundred thousand brackets, the reader may give up on what it looks at."""
codes = st.one_of(
    nasty_texts, texts.map(lambda text: text[:LONGEST]), st.lists(st.sampled_from(LINES), max_size=8).map("".join)
)
arguments = st.one_of(
    st.dictionaries(nasty_texts, plain, max_size=4),
    st.dictionaries(st.sampled_from(("path", "code", "name", "arguments", "type", "properties")), plain),
)


def made_of(tool: str, args: Any) -> Call:
    return Call(id=ActionId("a"), tool=tool, args=args)


def cell(code: str) -> Call:
    return made_of("python", {"code": code})


calls = st.one_of(
    st.builds(cell, codes), st.builds(made_of, st.sampled_from(("python", "read_file", "now")), arguments)
)


@settings(max_examples=400)
@given(PROSE, st.lists(calls, min_size=1, max_size=4))
@example("", [cell('"""'), cell('"""')])
@example("", [cell("now()")])
@example("", [cell("x = [1]\n" * LONGEST)])
@example("", [made_of("now", {"arguments": {"tz": 1}, "name": "now"})])
def test_calls_that_are_told_are_read_as_the_same_calls(text: str, made: list[Call]) -> None:
    request = Request(
        system="", messages=(UserMessage(text="x"), AssistantMessage(text=text, calls=tuple(made))), tools=TOOLS
    )
    _, said = put_tools_in_prompt(request, style="full").messages
    assert asked(parse_reply(said.text, TOOLS)) == [(call.tool, call.args) for call in made]


ids = st.sampled_from([ActionId(letter) for letter in "abcd"])
told_calls = st.lists(
    st.builds(
        Call,
        id=ids,
        tool=st.sampled_from(("python", "read_file", "odd <name>")),
        args=st.one_of(plain, st.fixed_dictionaries({"code": codes})),
    ),
    max_size=3,
).map(tuple)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        UserMessage,
        text=nasty_texts,
        images=st.lists(st.just(Image(mime="image/png", blob=BlobId("b"))), max_size=1).map(tuple),
    ),
    st.builds(AssistantMessage, text=nasty_texts, calls=told_calls, in_text=st.booleans()),
    st.builds(ToolMessage, id=ids, text=nasty_texts),
)


def is_beginning(first: tuple[Message, ...], second: tuple[Message, ...]) -> bool:
    """Byte by byte: the last message may go on, the others are done."""
    if not first:
        return True
    *done, last = first
    if len(second) < len(first) or list(second[: len(done)]) != done:
        return False
    again = second[len(done)]
    return type(again) is type(last) and again.text.startswith(last.text)


@settings(max_examples=300)
@given(st.lists(messages, max_size=8), st.integers(0, 8), st.sampled_from(("full", "small")))
def test_what_was_told_once_is_the_beginning_of_what_is_told_later(said: list[Message], cut: int, style: Style) -> None:
    whole = put_tools_in_prompt(Request(system="s", messages=tuple(said), tools=TOOLS), style=style)
    part = put_tools_in_prompt(Request(system="s", messages=tuple(said[:cut]), tools=TOOLS), style=style)
    assert part.system == whole.system
    assert is_beginning(part.messages, whole.messages)


@settings(max_examples=200)
@given(st.lists(messages, max_size=8))
def test_user_and_assistant_speak_by_turns_and_nothing_said_is_lost(said: list[Message]) -> None:
    turns = put_tools_in_prompt(Request(system="s", messages=tuple(said), tools=TOOLS), style="full").messages
    assert all(not isinstance(turn, ToolMessage) for turn in turns)
    assert all(type(one) is not type(next_) for one, next_ in pairwise(turns))
    assert all(not isinstance(turn, AssistantMessage) or (turn.text and not turn.calls) for turn in turns)
    everything = "\n\n".join(turn.text for turn in turns)
    assert all(message.text.rstrip() in everything for message in said)


@settings(max_examples=200)
@given(
    PROSE,
    st.tuples(*[st.lists(st.sampled_from(PLAIN_LINES), max_size=4).map("".join)] * 2).map(
        "\nf(x)\n".join
    ),  # a call, and not the end of a comment
    PROSE,
    st.sampled_from(("```python\n{}\n```", "~~~py\n{}\n~~~", "```\n{}\n```")),
)
def test_code_that_the_user_wrote_is_never_run_by_a_fence(before: str, code: str, after: str, fence: str) -> None:
    reply = fence.format(code)
    ran = asked(parse_reply(reply, TOOLS))
    quoted = asked(parse_reply(reply, TOOLS, quoted=[f"{before}\n{code}\n{after}"]))
    assert [args for tool, args in quoted if tool == "python" and "f(x)" in args["code"]] == []
    assert len(quoted) <= len(ran)


@given(st.builds(Reply, text=texts))
@settings(max_examples=50)
def test_without_tools_nothing_is_read(reply: Reply) -> None:
    assert parse_reply(reply.text, ()) == ParsedReply()
