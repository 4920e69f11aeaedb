"""`anthropic:` through its real SDK, against a server that speaks and refuses as Anthropic's does."""

from __future__ import annotations

import base64
import hashlib
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Literal

import anyio
import pytest
from anyio import to_thread
from inline_snapshot import snapshot
from msgspec.structs import replace
from tests.model.providers.anthropic import (
    REQUEST_ID,
    Anthropic,
    error,
    event,
    events,
    redacted,
    text,
    thinking,
    tool_use,
)
from tests.model.providers.conversations import HELLO, PYTHON, Ask, Serve, failed, pieces, reply, request, went_on
from tests.model.providers.loopback import PATIENCE_S, Asked, Stream, Whole

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BlobId,
    Call,
    ContextTooLong,
    Image,
    Reply,
    Thought,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from pinfold.model.wire.conversation import valid_name
from pinfold.model.wire.http import Patience

pytestmark = pytest.mark.integration
USED = {"input_tokens": 5, "output_tokens": 1}


# What is said


async def test_a_task_is_solved_in_two_steps_with_thoughts_and_parallel_calls(serve: Serve, ask: Ask) -> None:
    api = Anthropic(
        [
            thinking("Two sums, so two cells.", "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"),
            text("I will compute both."),
            tool_use("toolu_01", "python", {"code": "1 + 1"}),
            tool_use("toolu_02", "python", {"code": "2 + 2"}),
        ],
        [text("They are 2 and 4.")],
    )
    server = serve(api)
    model = ask(server)
    asked = replace(HELLO, settings={"thinking": "high"})

    first = await reply(model, asked)
    second = await reply(model, went_on(asked, first, "2", "4"))

    assert [(call.tool, call.args) for call in first.calls] == [
        ("python", {"code": "1 + 1"}),
        ("python", {"code": "2 + 2"}),
    ]
    assert (first.reasoning, first.text) == ("Two sums, so two cells.", "I will compute both.")
    assert (second.text, second.calls, second.finish) == ("They are 2 and 4.", (), "stop")
    one, two = (call.id for call in first.calls)
    assert server.bodies[1]["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {
                    "type": "thinking",
                    "thinking": "Two sums, so two cells.",
                    "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3h",
                },
                {"type": "text", "text": "I will compute both."},
                {"type": "tool_use", "id": one, "name": "python", "input": {"code": "1 + 1"}},
                {"type": "tool_use", "id": two, "name": "python", "input": {"code": "2 + 2"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": one,
                    "is_error": False,
                    "content": [{"type": "text", "text": "2"}],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": two,
                    "is_error": False,
                    "content": [{"type": "text", "text": "4"}],
                    "cache_control": {"type": "ephemeral", "ttl": "5m"},
                },
            ],
        },
    ]


async def test_thoughts_and_text_come_in_pieces_and_the_reply_is_all_of_them(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([thinking("a long thought", "sig"), text("and a longer answer")]))
    *said, whole = await pieces(ask(server), HELLO)
    thoughts = [piece.text for piece in said if isinstance(piece, Thought)]
    words = [piece for piece in said if isinstance(piece, str)]
    assert isinstance(whole, Reply)
    assert len(thoughts) > 1
    assert len(words) > 1
    assert ("".join(thoughts), "".join(words)) == (whole.reasoning, whole.text)


async def test_arguments_that_are_no_json_stay_as_written_and_can_be_answered(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([tool_use("toolu_01", "python", '{"code": "print(')], [text("Sorry.")]))
    model = ask(server)
    first = await reply(model)
    assert [call.args for call in first.calls] == ['{"code": "print(']
    assert (await reply(model, went_on(HELLO, first, "not JSON"))).text == "Sorry."


async def test_a_call_without_arguments_has_none(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([tool_use("toolu_01", "python", "")]))
    assert [call.args for call in (await reply(ask(server))).calls] == [{}]


@pytest.mark.parametrize(
    ("stop_reason", "finish", "notices"),
    [
        ("end_turn", "stop", ()),
        ("max_tokens", "length", ()),
        ("refusal", "filter", ("anthropic cut the reply off: refusal",)),
    ],
)
async def test_a_reply_says_why_it_ends(
    serve: Serve, ask: Ask, stop_reason: str, finish: str, notices: tuple[str, ...]
) -> None:
    said = await reply(ask(serve(Anthropic([text("So")], stop_reason=stop_reason))))
    assert (said.finish, said.notices) == (finish, notices)


async def test_usage_counts_what_was_cached_as_input_and_gives_it_a_price(serve: Serve, ask: Ask) -> None:
    counted = {
        "input_tokens": 100,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "output_tokens": 1,
    }
    server = serve(lambda _: Stream(events=tuple(events([text("So")], counted))))
    said = await reply(ask(server))
    assert said.usage == Usage(input_tokens=1300, output_tokens=42, cached_tokens=1000, written_tokens=200)
    assert said.cost == pytest.approx((100 * 3 + 1000 * 0.3 + 200 * 3.75 + 42 * 15) / 1e6)
    assert said.request_id == "msg_01XFDUDYJgAACzvnptvVoYEL"


# What is sent


async def test_settings_are_sent_under_their_names_there_and_others_as_they_are(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([text("So")]))
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 321,
        "stop": "END",
        "metadata": {"user_id": "u1"},
    }
    await reply(ask(server), replace(HELLO, settings=settings))
    (body,) = server.bodies
    assert {name: body[name] for name in body if name not in ("messages", "system", "tools")} == snapshot(
        {
            "max_tokens": 321,
            "model": "claude-sonnet-4-6",
            "stop_sequences": ["END"],
            "stream": True,
            "tool_choice": {"type": "auto"},
            "metadata": {"user_id": "u1"},
            "temperature": 0.5,
            "top_k": 20,
            "top_p": 0.9,
        }
    )


async def test_a_setting_that_the_provider_does_not_have_is_left_out_and_said_once(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([text("So")], [text("So")]))
    model = ask(server)
    seeded = replace(HELLO, settings={"seed": 7})
    assert (await reply(model, seeded)).notices == ("anthropic has no setting 'seed'; it was left out",)
    assert (await reply(model, seeded)).notices == ()
    assert "seed" not in server.bodies[0]


async def test_a_model_that_takes_no_temperature_is_not_sent_one(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([text("So")]))
    said = await reply(ask(server, model="claude-opus-5"), replace(HELLO, settings={"temperature": 0.1}))
    assert said.notices == ("anthropic has no setting 'temperature'; it was left out",)
    assert "temperature" not in server.bodies[0]


async def test_pictures_are_sent_with_the_text_they_belong_to(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([text("A dot.")]))
    picture = b"\x89PNG\r\n\x1a\n"
    blob = BlobId(f"sha256:{hashlib.sha256(picture).hexdigest()}")
    asked = request(
        UserMessage(text="what is this?", images=(Image(mime="image/png", blob=blob),)), blobs={blob: picture}
    )
    await reply(ask(server), asked)
    words, shown = server.bodies[0]["messages"][0]["content"]
    assert words == {"type": "text", "text": "what is this?"}
    assert shown["source"] == {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}


async def test_a_flawed_conversation_is_made_good_before_it_is_sent(serve: Serve, ask: Ask) -> None:
    odd = ToolSchema(name="look at this!", description="", parameters={"type": "object", "properties": {}})
    call = Call(id=ActionId("call/1:ü"), tool=odd.name, args={"path": "\ud800x\0"})
    asked = request(
        AssistantMessage(text="Hello, I am ready."),
        UserMessage(text="broken \udfff text"),
        UserMessage(text="  "),
        AssistantMessage(text="", calls=(call, replace(call, id=ActionId("a_2")))),
        UserMessage(text="are you done?"),
        ToolMessage(id=call.id, text=""),
        ToolMessage(id=ActionId("a_nobody"), text="orphan"),
        tools=(PYTHON, odd),
    )
    server = serve(Anthropic([tool_use("toolu_9", valid_name(odd.name), {})]))
    said = await reply(ask(server), asked)
    assert [call.tool for call in said.calls] == [odd.name]


async def test_the_server_of_these_tests_refuses_what_the_clean_up_is_for(serve: Serve) -> None:
    """The control: each flaw, sent as it is, is a 400."""
    flaws: list[list[dict[str, Any]]] = [
        [{"role": "assistant", "content": [text("first")]}],
        [{"role": "user", "content": [text(" ")]}],
        [{"role": "user", "content": [text("\0")]}],
        [
            {"role": "user", "content": [text("go")]},
            {"role": "assistant", "content": [tool_use("a", "python", {})]},
            {"role": "user", "content": [text("done?")]},
        ],
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": "2"}]}],
        [
            {"role": "user", "content": [text("go")]},
            {"role": "assistant", "content": [thinking("hm", "forged"), text("so")]},
            {"role": "user", "content": [text("go on")]},
        ],
    ]
    api = Anthropic()
    headers = {"anthropic-version": "2023-06-01"}
    for messages in flaws:
        body = {"max_tokens": 1, "messages": messages}
        answer = api(Asked(path="/v1/messages", headers=headers, body=body))
        assert isinstance(answer, Whole)
        assert answer.status == 400


async def test_an_echo_goes_back_to_the_provider_it_is_from_only(serve: Serve, ask: Ask) -> None:
    piece = {"thought": "hm", "signature": "of another"}
    for echo in ({"provider": "google", "pieces": [piece, {"text": 2}]}, "nonsense", {"pieces": 3}, None):
        said = AssistantMessage(text="So", echo=echo)
        asked = request(UserMessage(text="a"), said, UserMessage(text="b"))
        server = serve(Anthropic([text("Yes.")]))
        await reply(ask(server), asked)
        assert server.bodies[0]["messages"][1]["content"] == [{"type": "text", "text": "So"}]


async def test_a_signed_thought_goes_back_even_if_the_words_after_it_were_changed(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([thinking("hm", "sig"), text("the key is hunter2")], [text("Yes.")]))
    model = ask(server)
    first = await reply(model)
    said = AssistantMessage(text="the key is [redacted]", echo=first.echo)
    await reply(model, request(UserMessage(text="hello"), said, UserMessage(text="and?")))
    assert server.bodies[1]["messages"][1]["content"] == [thinking("hm", "sig"), text("the key is [redacted]")]


async def test_a_thought_that_nobody_may_read_goes_back_as_it_came(serve: Serve, ask: Ask) -> None:
    hidden = [redacted("EmwKAhgBEgy3va3p"), thinking("", "sig")]
    server = serve(Anthropic([*hidden, tool_use("toolu_1", "python", {"code": "1"})], [text("One.")]))
    model = ask(server)
    first = await reply(model)
    await reply(model, went_on(HELLO, first, "1"))
    assert first.reasoning == ""
    assert server.bodies[1]["messages"][1]["content"][:2] == hidden


# The prompt cache


def marked(body: dict[str, Any]) -> list[str]:
    """Where the marks are."""
    places = [f"tools.{number}" for number, tool in enumerate(body["tools"]) if "cache_control" in tool]
    places += [f"system.{number}" for number, block in enumerate(body["system"]) if "cache_control" in block]
    return places + [
        f"messages.{number}.{place}"
        for number, message in enumerate(body["messages"])
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]


async def test_tools_system_and_the_last_message_are_marked_and_the_last_mark_moves_on(serve: Serve, ask: Ask) -> None:
    server = serve(Anthropic([tool_use("toolu_1", "python", {"code": "1"})], [text("One.")]))
    model = ask(server)
    first = await reply(model)
    await reply(model, went_on(HELLO, first, "1"))
    assert [marked(body) for body in server.bodies] == [
        ["tools.0", "system.0", "messages.0.0"],
        ["tools.0", "system.0", "messages.2.0"],
    ]


async def test_what_is_marked_on_one_turn_is_sent_unchanged_on_the_next(serve: Serve, ask: Ask) -> None:
    turns = [
        [thinking("hm", "sig"), tool_use("toolu_1", "python", {"code": "1", "why": "ä\n"})],
        [text("  One.  "), tool_use("toolu_2", "python", '{"code": ')],
        [tool_use("toolu_3", "python", {"z": [1, 2.5, None], "a": {}})],
        [text("Done.")],
    ]
    model = ask(serve(Anthropic(*turns)))
    asked = HELLO
    used: list[Usage] = []
    for _ in turns:
        said = await reply(model, asked)
        used.append(said.usage)
        asked = went_on(asked, said, *["out\n"] * len(said.calls))
    # The server hashes what stands before each mark: it finds all it has written on the turn before, byte for byte.
    for before, after in pairwise(used):
        assert after.cached_tokens == before.cached_tokens + before.written_tokens > 0
        assert after.cached_tokens + after.written_tokens == after.input_tokens


@pytest.mark.parametrize(
    ("setting", "marks"),
    [(False, []), ("1h", [{"type": "ephemeral", "ttl": "1h"}] * 3), (True, [{"type": "ephemeral", "ttl": "5m"}] * 3)],
)
async def test_the_cache_can_be_kept_longer_or_turned_off(
    serve: Serve, ask: Ask, setting: bool | str, marks: list[dict[str, str]]
) -> None:
    server = serve(Anthropic([text("So")]))
    await reply(ask(server), replace(HELLO, settings={"prompt_cache": setting}))
    (body,) = server.bodies
    blocks: list[dict[str, Any]] = [*body["tools"], *body["system"], *body["messages"][0]["content"]]
    assert [block["cache_control"] for block in blocks if "cache_control" in block] == marks


# What goes wrong


async def test_an_overloaded_server_is_asked_once_and_says_when_to_come_back(serve: Serve, ask: Ask) -> None:
    server = serve(lambda _: error(529, "overloaded_error", "Overloaded", retry_after="7"))
    failure = await failed(ask(server))
    assert str(failure) == "overloaded (529): Overloaded"
    assert (failure.status, failure.retry_after_s, failure.request_id) == (529, 7.0, REQUEST_ID)
    assert failure.retryable
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "kind", "message", "said", "seen", "retryable"),
    [
        (429, "rate_limit_error", "Slow down", "too many requests (429): Slow down", 429, True),
        (500, "api_error", "Internal server error", "Internal server error (500)", 500, True),
        (
            401,
            "authentication_error",
            "invalid x-api-key",
            "the key (ANTHROPIC_API_KEY) is refused (401): invalid x-api-key",
            401,
            False,
        ),
        (
            400,
            "invalid_request_error",
            "this request will stop nowhere",
            "this request will stop nowhere (400)",
            400,
            False,
        ),
        (
            400,
            "invalid_request_error",
            "stop_sequences: must not be blank",
            "refuses the setting 'stop' (400): stop_sequences: must not be blank; remove it from [model]",
            400,
            False,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
            "the account has no credit left (400): Your credit balance is too low to access the Anthropic API.",
            400,
            False,
        ),
        (
            400,
            "invalid_request_error",
            "top_k: Input should be greater than 0",
            "refuses the setting 'top_k' (400): top_k: Input should be greater than 0; remove it from [model]",
            400,
            False,
        ),
        (400, "invalid_request_error", "tools.0: something else", "tools.0: something else (400)", 400, False),
    ],
)
async def test_a_refusal_says_what_to_do_about_it(
    serve: Serve, ask: Ask, status: int, kind: str, message: str, said: str, seen: int, retryable: bool
) -> None:
    server = serve(lambda _: error(status, kind, message))
    failure = await failed(ask(server), replace(HELLO, settings={"stop": " ", "top_k": 5}))
    assert str(failure) == said
    assert (failure.status, failure.retryable, failure.request_id) == (seen, retryable, REQUEST_ID)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "settings", [{"stop": 5}, {"prompt_cache": "2h"}, {"anthropic_thinking": 7}, {"thinking": "x"}]
)
async def test_a_setting_that_makes_no_sense_is_a_failure_that_nobody_repeats(
    serve: Serve, ask: Ask, settings: dict[str, Any]
) -> None:
    failure = await failed(ask(serve(Anthropic([text("So")]))), replace(HELLO, settings=settings))
    assert next(iter(settings)) in str(failure)
    assert not failure.retryable


async def test_a_conversation_that_is_too_long_says_by_how_much(serve: Serve, ask: Ask) -> None:
    said = "prompt is too long: 212000 tokens > 200000 maximum"
    failure = await failed(ask(serve(lambda _: error(400, "invalid_request_error", said))))
    assert isinstance(failure, ContextTooLong)
    assert str(failure) == f"the conversation does not fit into the model: {said}"
    assert (failure.needed, failure.size, failure.retryable) == (212000, 200000, False)


async def test_a_field_the_server_does_not_know_is_named(serve: Serve, ask: Ask) -> None:
    said = "top_snark: Extra inputs are not permitted"
    server = serve(lambda _: error(400, "invalid_request_error", said))
    failure = await failed(ask(server), replace(HELLO, settings={"top_snark": 1}))
    assert str(failure).startswith("refuses the setting 'top_snark' (400)")
    assert server.bodies[0]["top_snark"] == 1


async def test_a_key_is_never_repeated(serve: Serve, ask: Ask) -> None:
    server = serve(lambda _: error(401, "authentication_error", "bad key secret-key-of-the-test"))
    assert "secret-key" not in str(await failed(ask(server)))


async def test_an_error_inside_a_stream_counts_as_its_status(serve: Serve, ask: Ask) -> None:
    begun = list(events([text("It is")], USED))[:4]
    overloaded = event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    failure = await failed(ask(serve(lambda _: Stream(events=(*begun, overloaded)))))
    assert (failure.status, str(failure)) == (529, "overloaded (529): Overloaded")


@pytest.mark.parametrize("then", ["end", "cut"])
async def test_a_reply_that_breaks_off_is_no_reply(serve: Serve, ask: Ask, then: Literal["end", "cut"]) -> None:
    begun = tuple(events([text("It is a long story.")], USED))[:5]
    failure = await failed(ask(serve(lambda _: Stream(events=begun, then=then))))
    assert str(failure).startswith("the reply broke off")
    assert failure.status is None
    assert failure.retryable


@pytest.mark.parametrize(
    ("body", "mime", "said"),
    [
        ("<html>It works!</html>", "text/html", "the answer cannot be read"),
        ("{}", "application/json", "the answer cannot be read"),
        ("event: message_start\ndata: {\n\n", "text/event-stream", "Failed to decode"),
    ],
)
async def test_an_answer_in_another_language_is_a_failure(
    serve: Serve, ask: Ask, body: str, mime: str, said: str
) -> None:
    failure = await failed(ask(serve(lambda _: Whole(status=200, body=body, mime=mime))))
    assert str(failure).startswith(said)


async def test_a_gateway_that_answers_with_a_page_is_quoted_in_one_line(serve: Serve, ask: Ask) -> None:
    page = Whole(status=502, body="<html>Bad\ngateway</html>", mime="text/html")
    failure = await failed(ask(serve(lambda _: page)))
    assert (str(failure), failure.status) == ("<html>Bad (502)", 502)


async def test_a_reply_without_a_word_is_a_reply(serve: Serve, ask: Ask) -> None:
    said = await reply(ask(serve(Anthropic([]))))
    assert (said.text, said.calls, said.finish) == ("", (), "stop")


async def test_nobody_there_is_said_with_the_address(ask: Ask) -> None:
    failure = await failed(ask("http://127.0.0.1:9"))
    assert str(failure).startswith("cannot be reached: ")
    assert failure.status is None


async def test_waiting_for_the_first_word_ends(serve: Serve, ask: Ask) -> None:
    silent = tuple(events([text("So")], USED))[:2]
    server = serve(lambda _: Stream(events=silent, then="wait"))
    failure = await failed(ask(server, patience=Patience(first_s=0.2)))
    assert (str(failure), failure.retryable) == ("no answer within 0.2 s", True)


async def test_waiting_for_the_next_byte_ends(serve: Serve, ask: Ask) -> None:
    begun = tuple(events([text("It is a long story.")], USED))[:5]
    server = serve(lambda _: Stream(events=begun, then="wait"))
    failure = await failed(ask(server, patience=Patience(idle_s=0.2)))
    assert (str(failure), failure.retryable) == ("nothing came for 0.2 s", True)


@pytest.mark.parametrize("how", ["leave", "cancel"])
async def test_whoever_stops_listening_closes_the_connection(serve: Serve, ask: Ask, how: str) -> None:
    begun = tuple(events([text("It is a long story.")], USED))[:5]
    server = serve(lambda _: Stream(events=begun, then="wait"))
    model = ask(server)
    with anyio.fail_after(PATIENCE_S), anyio.CancelScope() as scope:
        async with aclosing(model.stream(HELLO)) as stream:
            async for _ in stream:
                if how == "leave":
                    break
                scope.cancel()
    assert await to_thread.run_sync(server.left.wait, PATIENCE_S)
