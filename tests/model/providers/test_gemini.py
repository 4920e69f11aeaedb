"""`google:` through its real SDK, against a server that speaks and refuses as Gemini's does."""

from __future__ import annotations

import base64
import hashlib
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from anyio import to_thread
from inline_snapshot import snapshot
from msgspec.structs import replace
from tests.model.providers.conversations import HELLO, Ask, Serve, failed, pieces, reply, request, went_on
from tests.model.providers.gemini import Gemini, call, error, event, events
from tests.model.providers.loopback import PATIENCE_S, Answer, Asked, Stream, Whole

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

pytestmark = pytest.mark.integration
SIGNED = "EtoBCtcBAdHtim9s"
SIGNED_TOO = "EusBCugBAdHtim9t"
SO = [[{"text": "So"}]]


# What is said


async def test_a_task_is_solved_in_two_steps_and_signatures_go_back(serve: Serve, ask: Ask) -> None:
    api = Gemini(
        [
            [{"text": "Two sums.", "thought": True}],
            [{"text": "I will "}],
            [{"text": "compute both."}],
            [call("python", {"code": "1 + 1"}, SIGNED), call("python", {"code": "2 + 2"})],
        ],
        [[{"text": "They are "}], [{"text": "2 and 4."}], [{"text": "", "thoughtSignature": SIGNED_TOO}]],
        [[{"text": "You are welcome."}]],
    )
    server = serve(api)
    model = ask(server, "google")

    first = await reply(model)
    then = went_on(HELLO, first, "2", "4")
    second = await reply(model, then)
    thanks = went_on(then, second)
    third = await reply(model, replace(thanks, messages=(*thanks.messages, UserMessage(text="thanks"))))

    assert [call.args for call in first.calls] == [{"code": "1 + 1"}, {"code": "2 + 2"}]
    assert (first.reasoning, first.text) == ("Two sums.", "I will compute both.")
    assert (second.text, third.text) == ("They are 2 and 4.", "You are welcome.")
    one, two = (call.id for call in first.calls)
    assert server.bodies[2]["contents"] == [
        {"role": "user", "parts": [{"text": "hello"}]},
        {
            "role": "model",
            "parts": [
                {"text": "I will compute both."},
                {"functionCall": {"id": one, "name": "python", "args": {"code": "1 + 1"}}, "thoughtSignature": SIGNED},
                {"functionCall": {"id": two, "name": "python", "args": {"code": "2 + 2"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": one, "name": "python", "response": {"return_value": "2"}}},
                {"functionResponse": {"id": two, "name": "python", "response": {"return_value": "4"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "They are 2 and 4.", "thoughtSignature": SIGNED_TOO}]},
        {"role": "user", "parts": [{"text": "thanks"}]},
    ]


async def test_thoughts_and_text_come_in_pieces(serve: Serve, ask: Ask) -> None:
    thought = {"text": "Hm.", "thought": True}
    server = serve(Gemini([[thought], [thought], [{"text": "It "}], [{"text": "is."}]]))
    *said, whole = await pieces(ask(server, "google"), HELLO)
    assert said == [Thought("Hm."), Thought("Hm."), "It ", "is."]
    assert isinstance(whole, Reply)
    assert (whole.reasoning, whole.text) == ("Hm.Hm.", "It is.")


async def test_usage_counts_thoughts_as_output_and_what_was_cached(serve: Serve, ask: Ask) -> None:
    said = await reply(ask(serve(Gemini(SO)), "google"))
    assert said.usage == Usage(input_tokens=1200, output_tokens=42, cached_tokens=1000)
    assert said.cost == pytest.approx((200 * 2 + 1000 * 0.2 + 42 * 12) / 1e6)
    assert said.request_id == "mAitaLmkHPPlz7IPvtfUqQ4"


@pytest.mark.parametrize(
    ("reason", "finish", "notices"),
    [("STOP", "stop", ()), ("MAX_TOKENS", "length", ()), ("SAFETY", "filter", ("google cut the reply off: SAFETY",))],
)
async def test_a_reply_says_why_it_ends(
    serve: Serve, ask: Ask, reason: str, finish: str, notices: tuple[str, ...]
) -> None:
    said = await reply(ask(serve(Gemini(SO, finish=reason)), "google"))
    assert (said.finish, said.notices) == (finish, notices)


async def test_a_blocked_question_has_an_empty_answer_that_says_so(serve: Serve, ask: Ask) -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "responseId": "r1"}
    said = await reply(ask(serve(lambda _: Stream(events=(event(blocked),))), "google"))
    assert (said.text, said.finish) == ("", "filter")
    assert said.notices == ("google cut the reply off: PROHIBITED_CONTENT",)


async def test_a_call_that_the_model_garbled_is_asked_for_again(serve: Serve, ask: Ask) -> None:
    failure = await failed(ask(serve(Gemini([[]], finish="MALFORMED_FUNCTION_CALL")), "google"))
    assert str(failure) == "the model broke its reply off: MALFORMED_FUNCTION_CALL"
    assert failure.retryable


# What is sent


async def test_settings_are_sent_under_their_names_there(serve: Serve, ask: Ask) -> None:
    server = serve(Gemini(SO))
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "max_tokens": 321,
        "seed": 7,
        "stop": ["END", "STOP"],
        "reasoning_effort": "low",
    }
    said = await reply(ask(server, "google"), replace(HELLO, settings=settings))
    assert said.notices == ()
    assert server.bodies[0]["generationConfig"] == snapshot(
        {
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 20,
            "maxOutputTokens": 321,
            "stopSequences": ["END", "STOP"],
            "responseModalities": ["TEXT"],
            "seed": 7,
            "thinkingConfig": {"include_thoughts": True, "thinking_level": "LOW"},
        }
    )


async def test_a_setting_that_cannot_be_passed_on_is_left_out_and_said(serve: Serve, ask: Ask) -> None:
    said = await reply(ask(serve(Gemini(SO)), "google"), replace(HELLO, settings={"min_p": 0.1}))
    assert said.notices == ("google has no setting 'min_p'; it was left out",)


async def test_pictures_of_kinds_it_knows_are_sent_and_others_are_named(serve: Serve, ask: Ask) -> None:
    server = serve(Gemini(SO))
    picture = b"\x89PNG\r\n\x1a\n"
    blob = BlobId(f"sha256:{hashlib.sha256(picture).hexdigest()}")
    images = (Image(mime="image/png", blob=blob), Image(mime="image/gif", blob=blob))
    asked = request(UserMessage(text="what is this?", images=images), blobs={blob: picture})
    await reply(ask(server, "google"), asked)
    assert server.bodies[0]["contents"][0]["parts"] == [
        {"text": "what is this?\n\n[1 picture left out]"},
        {"inlineData": {"mime_type": "image/png", "data": base64.b64encode(picture).decode()}},
    ]


async def test_a_conversation_from_another_provider_goes_on_here(serve: Serve, ask: Ask) -> None:
    odd = ToolSchema(name="1 look", description="", parameters={"type": "object", "properties": {}})
    made = Call(id=ActionId("a_1"), tool=odd.name, args="{broken")
    echo = {"provider": "anthropic", "pieces": [{"thought": "hm", "signature": "theirs"}, {"call": 0}]}
    asked = request(
        UserMessage(text="go"),
        AssistantMessage(text="", calls=(made,), echo=echo),
        ToolMessage(id=made.id, text="not JSON"),
        tools=(odd,),
    )
    server = serve(Gemini(SO))
    assert (await reply(ask(server, "google"), asked)).text == "So"
    assert "theirs" not in str(server.bodies)


async def test_the_server_of_these_tests_refuses_what_the_real_one_refuses() -> None:
    """The control: each flaw, sent as it is, is a 400."""
    go: dict[str, Any] = {"role": "user", "parts": [{"text": "go"}]}
    called = {"role": "model", "parts": [call("python", {}, SIGNED)]}
    flaws: list[list[dict[str, Any]]] = [
        [called],
        [go, {"role": "model", "parts": [call("python", {})]}, go],
        [go, {"role": "model", "parts": [call("python", {}, "Zm9yZ2Vk")]}, go],
        [go, called, go],
        [go, {"role": "model", "parts": []}, go],
    ]
    api = Gemini([[call("python", {}, SIGNED)]])
    for contents in flaws:
        path = "/v1/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"
        answer = api(Asked(path=path, headers={}, body={"contents": contents}))
        assert isinstance(answer, Whole)
        assert answer.status == 400


# What goes wrong


async def test_too_many_requests_say_in_the_body_when_to_come_back(serve: Serve, ask: Ask) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"}
    help_ = {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"description": "Learn more"}]}
    server = serve(lambda _: error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", help_, info))
    failure = await failed(ask(server, "google"))
    assert str(failure) == "too many requests (429): You exceeded your current quota."
    assert (failure.status, failure.retry_after_s, failure.retryable) == (429, 17.5, True)
    assert len(server.asked) == 1


INVALID_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}


@pytest.mark.parametrize(
    ("answer", "said", "retryable"),
    [
        (
            error(400, "INVALID_ARGUMENT", "API key not valid.", INVALID_KEY),
            "the key (GEMINI_API_KEY or GOOGLE_API_KEY) is refused (400): API key not valid.",
            False,
        ),
        (
            error(400, "INVALID_ARGUMENT", "it has a topK value of 900"),
            "refuses the setting 'top_k' (400): it has a topK value of 900; remove it from [model]",
            False,
        ),
        (
            error(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
            "overloaded (503): The model is overloaded. Please try again later.",
            True,
        ),
        (error(500, "INTERNAL", "An internal error has occurred."), "An internal error has occurred. (500)", True),
    ],
)
async def test_a_refusal_says_what_to_do_about_it(
    serve: Serve, ask: Ask, answer: Answer, said: str, retryable: bool
) -> None:
    server = serve(lambda _: answer)
    failure = await failed(ask(server, "google"), replace(HELLO, settings={"top_k": 900}))
    assert (str(failure), failure.retryable) == (said, retryable)
    assert len(server.asked) == 1


async def test_a_conversation_that_is_too_long_says_by_how_much(serve: Serve, ask: Ask) -> None:
    said = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    failure = await failed(ask(serve(lambda _: error(400, "INVALID_ARGUMENT", said)), "google"))
    assert isinstance(failure, ContextTooLong)
    assert (failure.needed, failure.size, failure.retryable) == (1200000, 1048576, False)


async def test_a_reply_that_breaks_off_is_no_reply(serve: Serve, ask: Ask) -> None:
    begun = tuple(events([[{"text": "It is"}], [{"text": " a story."}]]))[:1]
    for answer in (Stream(events=begun, then="cut"), Stream(events=begun)):
        failure = await failed(ask(serve(lambda _, answer=answer: answer), "google"))
        assert str(failure).startswith("the reply broke off")
        assert failure.retryable


@pytest.mark.parametrize("how", ["leave", "cancel"])
async def test_whoever_stops_listening_closes_the_connection(serve: Serve, ask: Ask, how: str) -> None:
    begun = tuple(events([[{"text": "It is"}], [{"text": " a story."}]]))[:1]
    server = serve(lambda _: Stream(events=begun, then="wait"))
    model = ask(server, "google")
    with anyio.fail_after(PATIENCE_S), anyio.CancelScope() as scope:
        async with aclosing(model.stream(HELLO)) as stream:
            async for _ in stream:
                if how == "leave":
                    break
                scope.cancel()
    assert await to_thread.run_sync(server.left.wait, PATIENCE_S)
