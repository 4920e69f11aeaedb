"""Chat completions: what is sent, and what every habit of servers is understood as."""

from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot
from tests.model.model_requests import (
    HELLO,
    PYTHON,
    WITH_TOOLS,
    asking,
    assistant,
    called,
    compatible,
    pieces,
    reply,
    tool,
    user,
)
from tests.model.servers import DONE, Says, chunk, event, failing, said, serving, streamed

from pinfold.events import BlobId, Request, RequestFailed, Thought, Usage

pytestmark = pytest.mark.integration

USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}


async def test_a_reply_comes_in_pieces_that_make_the_whole() -> None:
    answer = streamed(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo."}),
        chunk(finish="stop"),
        event({"choices": [], "usage": USAGE}),
        headers={"x-request-id": "req-7"},
    )
    with serving(answer) as server:
        shown, whole = await pieces(compatible(server.url))
    assert shown == ["Hel", "lo."]
    assert whole.text == "Hello."
    assert whole.usage == Usage(input_tokens=12, output_tokens=3, cached_tokens=8)
    assert (whole.request_id, whole.finish, whole.calls, whole.cost) == ("req-7", "stop", (), None)


async def test_what_is_sent_is_the_conversation_the_tools_and_every_setting() -> None:
    request = Request(
        system="Be brief.",
        messages=(user("hello"),),
        tools=(PYTHON,),
        settings={"temperature": 0, "top_k": 20, "max_tokens": 9, "stop": ["\n"], "mirostat": 2, "seed": None},
    )
    with serving(said("ok")) as server:
        await reply(compatible(server.url, key=" sk-secret\n"), request)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.headers["authorization"] == "Bearer sk-secret"
    assert asked.body == snapshot(
        {
            "temperature": 0,
            "top_k": 20,
            "max_tokens": 9,
            "stop": ["\n"],
            "mirostat": 2,
            "model": "tiny",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "python",
                        "description": "Run code.",
                        "parameters": {
                            "type": "object",
                            "properties": {"code": {"type": "string"}},
                            "required": ["code"],
                        },
                    },
                }
            ],
        }
    )


async def test_a_base_url_keeps_its_query() -> None:
    with serving(said("ok")) as server:
        model = compatible(server.url)
        model = type(model)(name="m", base_url=f"{server.url}/openai/d/?api-version=7", model="m")
        await reply(model)
    assert server.asked[0].path == "/openai/d/chat/completions?api-version=7"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "python", "arguments": '{"code": "1"}'}}
    body = {
        "id": "chatcmpl-9",
        "choices": [{"index": 0, "message": {"content": "Look.", "tool_calls": [call]}, "finish_reason": "tool_calls"}],
        "usage": USAGE,
    }
    for text in (json.dumps(body), json.dumps(body, indent=2)):
        with serving(Says(kind="application/json", steps=(text.encode(),))) as server:
            whole = await reply(compatible(server.url))
        assert (whole.text, called(whole)) == ("Look.", [("python", {"code": "1"})])
        assert (whole.usage.input_tokens, whole.request_id) == (12, "chatcmpl-9")


TWO_WORDS = b"".join([chunk({"content": "a\u00e9\U0001f600"}), chunk({"content": "b"}, finish="stop"), DONE])


@pytest.mark.parametrize(
    "steps",
    [
        (TWO_WORDS,),
        tuple(TWO_WORDS[at : at + 1] for at in range(len(TWO_WORDS))),
        (TWO_WORDS.replace(b"\n", b"\r\n"),),
        (TWO_WORDS.replace(b"\n\n", b"\n"),),
        (TWO_WORDS.replace(b"data: ", b"data:"),),
        (b"\xef\xbb\xbf" + TWO_WORDS,),
        (b": comment\n\nevent: x\nid: 3\nretry: 5\n" + TWO_WORDS,),
        (b": OPENROUTER PROCESSING\n\n" * 3 + TWO_WORDS,),
        (TWO_WORDS.replace(b'"choices"', b'\ndata: "choices"'),),
        (TWO_WORDS.replace(DONE, b""),),
        (TWO_WORDS.replace(b'"stop"', b"null"),),
        (TWO_WORDS.replace(b"data: ", b"").replace(b"[DONE]\n\n", b""),),
    ],
    ids=[
        "plain",
        "bytes",
        "crlf",
        "no blank lines",
        "no space",
        "byte order mark",
        "other fields",
        "comments",
        "an event on two lines",
        "no DONE",
        "no finish_reason",
        "bare lines",
    ],
)
async def test_the_stream_may_be_written_in_any_way_that_servers_have(steps: tuple[bytes, ...]) -> None:
    with serving(Says(steps=steps)) as server:
        shown, whole = await pieces(compatible(server.url))
    assert ("".join(map(str, shown)), whole.text) == ("aé😀b", "aé😀b")


async def test_what_is_not_utf8_costs_the_character_only() -> None:
    broken = chunk({"content": "a*b"}).replace(b"*", b"\xff\xfe")
    with serving(Says(kind="application/octet-stream", steps=(broken, chunk(finish="stop"), DONE))) as server:
        assert (await reply(compatible(server.url))).text == "a\ufffd\ufffdb"


def part(index: int | None, name: str | None = None, arguments: Any = None, id_: str | None = None) -> Any:
    entry: dict[str, Any] = {"index": index, "id": id_, "function": {"name": name, "arguments": arguments}}
    entry["function"] = {key: value for key, value in entry["function"].items() if value is not None}
    return {key: value for key, value in entry.items() if value is not None}


ONE: dict[str, Any] = {"code": "1"}
TWO: dict[str, Any] = {"code": "2"}
NONE: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ([[part(0, "python", '{"co', "x")], [part(0, None, 'de": "1"}')]], [("python", ONE)]),
        (
            [
                [part(0, "python", "", "x"), part(1, "shell", "", "y")],
                [part(1, None, '{"code"')],
                [part(0, None, '{"code": ')],
                [part(1, None, ': "2"}'), part(0, None, '"1"}')],
            ],
            [("python", ONE), ("shell", TWO)],
        ),
        (
            [[part(0, "python", '{"code": "1"}')], [part(1, "python", '{"code": "2"}')]],
            [("python", ONE), ("python", TWO)],
        ),
        ([[part(None, "python", '{"code": "1"}')], [part(None, "now", "")]], [("python", ONE), ("now", NONE)]),
        ([[part(None, "python", '{"code"', "x")], [part(None, None, ': "1"}')]], [("python", ONE)]),
        ([[part(0, "python", '{"co', "x")], [part(0, "python", 'de": "1"}', "x")]], [("python", ONE)]),
        ([[part(0, "python", '{"co', "x")], [part(0, None, 'de": "1"}', "other")]], [("python", ONE)]),
        (
            [[part(0, "python", '{"code": "1"}', "x")], [part(0, "python", '{"code": "2"}', "y")]],
            [("python", ONE), ("python", TWO)],
        ),
        (
            [[part(0, "python", '{"code": "1"}')], [part(0, "shell", '{"code": "2"}')]],
            [("python", ONE), ("shell", TWO)],
        ),
        (
            [[part(0, "python", '{"code": "1"}')], [part(0, "python", ' {"code": "2"}')]],
            [("python", ONE), ("python", TWO)],
        ),
        ([[part(0, "python", ONE, "x")]], [("python", ONE)]),
        ([[part(0, "py", "", "x")], [part(0, "thon", '{"code": "1"}')]], [("python", ONE)]),
        ([[part(0, "python", json.dumps('{"code": "1"}'))]], [("python", ONE)]),
        ([[part(0, "now")]], [("now", NONE)]),
        ([[part(0, "python", "print(1)")]], [("python", "print(1)")]),
        ([[part(0, "python", '{"code": "1')]], [("python", '{"code": "1')]),
        ([[part(0, "python", '{"n": NaN}')]], [("python", '{"n": NaN}')]),
        ([[part(0, "python", "[" * 500 + "]" * 500)]], [("python", "[" * 500 + "]" * 500)]),
        ([[part(0, "python", "[1]")]], [("python", [1])]),
        ([[part(0, None, '{"code": "1"}')]], [("", ONE)]),
    ],
)
async def test_calls_are_put_together_whatever_the_server_leaves_out(
    parts: list[Any], calls: list[tuple[str, Any]]
) -> None:
    answer = streamed(*(chunk({"tool_calls": entry}) for entry in parts), chunk(finish="tool_calls"))
    with serving(answer) as server:
        whole = await reply(compatible(server.url), WITH_TOOLS)
    assert called(whole) == calls
    assert len({call.id for call in whole.calls}) == len(calls)
    assert whole.finish == "stop"


async def test_a_call_of_the_old_kind_is_a_call() -> None:
    old = [chunk({"function_call": {"name": "python"}}), chunk({"function_call": {"arguments": '{"code": "1"}'}})]
    with serving(streamed(*old, chunk(finish="function_call"))) as server:
        assert called(await reply(compatible(server.url), WITH_TOOLS)) == [("python", ONE)]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("stop", "stop"), ("tool_calls", "stop"), ("eos", "stop"), ("length", "length"), ("content_filter", "filter")],
)
async def test_why_a_reply_ended_is_told(reason: str, finish: str) -> None:
    with serving(said("x", finish=reason)) as server:
        assert (await reply(compatible(server.url))).finish == finish


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "Hm."}, {"content": "42"}],
        [{"reasoning": "Hm."}, {"content": "42"}],
        [{"reasoning": "Hm.", "reasoning_content": "Hm."}, {"content": "42"}],
        [{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}, {"content": "42"}],
        [{"content": "<think>Hm.</think>42"}],
        [{"content": letter} for letter in "\n<think>Hm.</think>\n\n42"],
        [{"content": "<think>Hm.</thi"}, {"content": "nk>"}, {"content": "\n"}, {"content": "42"}],
    ],
)
async def test_reasoning_is_told_apart_from_the_answer(deltas: list[dict[str, Any]]) -> None:
    with serving(streamed(*map(chunk, deltas), chunk(finish="stop"))) as server:
        shown, whole = await pieces(compatible(server.url))
    assert "".join(piece.text for piece in shown if isinstance(piece, Thought)) == "Hm."
    assert "".join(piece for piece in shown if isinstance(piece, str)) == "42"
    assert (whole.reasoning, whole.text) == ("Hm.", "42")


async def test_a_refusal_is_the_text() -> None:
    with serving(streamed(chunk({"refusal": "I will not."}), chunk(finish="stop"))) as server:
        assert (await reply(compatible(server.url))).text == "I will not."


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"usage": USAGE}, Usage(input_tokens=12, output_tokens=3, cached_tokens=8)),
        ({"usage": {**USAGE, "prompt_tokens_details": None}}, Usage(input_tokens=12, output_tokens=3)),
        ({"usage": {"prompt_tokens": 12, "prompt_cache_hit_tokens": 5}}, Usage(input_tokens=12, cached_tokens=5)),
        ({"x_groq": {"usage": USAGE}}, Usage(input_tokens=12, output_tokens=3, cached_tokens=8)),
    ],
)
async def test_usage_is_what_the_server_counted(usage: dict[str, Any], counted: Usage) -> None:
    with serving(streamed(chunk({"content": "x"}), chunk(finish="stop"), event({"choices": [], **usage}))) as server:
        assert (await reply(compatible(server.url))).usage == counted


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": -4, "completion_tokens": "many"},
        {"prompt_tokens": True, "completion_tokens": 1e300},
        [1],
    ],
)
async def test_usage_is_estimated_and_said_once_where_the_server_does_not_count(usage: Any) -> None:
    steps = (chunk({"content": "x" * 400}), chunk(finish="stop"), event({"choices": [], "usage": usage}))
    with serving(streamed(*steps), streamed(*steps)) as server:
        model = compatible(server.url)
        first, second = await reply(model), await reply(model)
    assert first.usage.output_tokens == second.usage.output_tokens == 100
    assert 0 < first.usage.input_tokens < 200
    assert (len(first.notices), second.notices) == (1, ())


@pytest.mark.parametrize(
    ("written", "args"),
    [
        ('{"code": "a = 1\nb = 2"}', {"code": "a = 1\nb = 2"}),
        ("{'code': 'x', 'n': None, 'ok': True}", {"code": "x", "n": None, "ok": True}),
        ('{"code": "x"', {"code": "x"}),
        ('{"code": "x",}', {"code": "x"}),
        ("print(1)", "print(1)"),
        ('{"code": "x"} and so on', '{"code": "x"} and so on'),
    ],
)
async def test_broken_arguments_are_read_as_they_are_meant(written: str, args: Any) -> None:
    call = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "python", "arguments": written}}]}
    with serving(streamed(chunk(call), chunk(finish="tool_calls"))) as server:
        (read,) = (await reply(compatible(server.url))).calls
    assert read.args == args


async def test_a_call_that_was_cut_off_is_told_and_not_guessed() -> None:
    calls = [
        {"index": 1, "id": "2", "function": {"name": "shell", "arguments": '{"command": "rm -r bui'}},
        {"index": 0, "id": "1", "function": {"name": "now", "arguments": "{}"}},
    ]
    steps = (chunk({"tool_calls": calls}), chunk(finish="length"))
    with serving(streamed(*steps), streamed(chunk({"tool_calls": calls[:1]}), chunk(finish="length"))) as server:
        model = compatible(server.url)
        both, alone = await reply(model), await reply(model)
    assert [call.tool for call in both.calls] == ["now"]
    assert alone.calls == ()
    assert alone.correction.startswith("The reply was cut off within the call of shell, which was not run.")


async def test_a_call_that_was_cut_off_before_its_arguments_is_not_run_without_them() -> None:
    calls = [{"index": 0, "id": "1", "function": {"name": "shell", "arguments": ""}}]
    with serving(streamed(chunk({"tool_calls": calls}), chunk(finish="length"))) as server:
        said = await reply(compatible(server.url))
    assert (said.calls, said.unreadable) == ((), True)


async def test_calls_come_in_the_order_of_their_indexes() -> None:
    calls = [{"index": at, "id": str(at), "function": {"name": f"t{at}", "arguments": "{}"}} for at in (2, 0, 1)]
    with serving(streamed(chunk({"tool_calls": calls}), chunk(finish="tool_calls"))) as server:
        said = await reply(compatible(server.url))
    assert [call.tool for call in said.calls] == ["t0", "t1", "t2"]


async def test_pictures_go_as_data() -> None:
    message = user("what is this?", ("image/png", "sha256:1"), ("image/png", "sha256:lost"))
    request = asking(message, blobs={BlobId("sha256:1"): b"\x89PNG"})
    with serving(said("a dot")) as server:
        await reply(compatible(server.url), request)
    (sent,) = server.asked[0].body["messages"]
    assert sent["content"] == snapshot(
        [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            {"type": "text", "text": "(a picture that is gone)"},
        ]
    )


async def test_calls_go_back_with_their_answers_right_behind_them() -> None:
    request = asking(
        user("go"),
        assistant("", [("a_1", "python", {"code": "1"}), ("a_2", "no such tool!", "not json")]),
        user("wait"),
        tool("a_2", "there is no such tool"),
        tool("a_1", "1\ud800\0"),
        tool("a_9", "an answer to nothing"),
        assistant("  "),
        assistant("`1`", [("a_3", "python", {"code": "\0"})]),
    )
    with serving(said("ok")) as server:
        await reply(compatible(server.url), request)
    assert server.asked[0].body["messages"] == snapshot(
        [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "1426674c4",
                        "type": "function",
                        "function": {"name": "python", "arguments": '{"code":"1"}'},
                    },
                    {
                        "id": "e5cda8318",
                        "type": "function",
                        "function": {"name": "no_such_tool_", "arguments": '{"input":"not json"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "1426674c4", "content": "1��"},
            {"role": "tool", "tool_call_id": "e5cda8318", "content": "there is no such tool"},
            {"role": "user", "content": "wait"},
            {
                "role": "assistant",
                "content": "`1`",
                "tool_calls": [
                    {
                        "id": "f2cfa6730",
                        "type": "function",
                        "function": {"name": "python", "arguments": '{"code":"\\ufffd"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "f2cfa6730", "content": "(no result: it was interrupted)"},
        ]
    )


async def test_what_the_server_wants_back_with_a_call_goes_back_to_it_and_to_nobody_else() -> None:
    thinking = streamed(
        chunk({"reasoning_content": "Let me see."}),
        chunk({"tool_calls": [{**part(0, "python", '{"code": "1"}', "call_x"), "extra_content": {"g": {"s": 1}}}]}),
        chunk(finish="tool_calls"),
    )
    with serving(thinking, said("ok")) as server:
        model = compatible(server.url)
        first = await reply(model, WITH_TOOLS)
        spoken = assistant("", [(call.id, call.tool, call.args) for call in first.calls], echo=first.echo)
        after = asking(user("hello"), spoken, tool(first.calls[0].id, "1"))
        await reply(model, after)
        other = type(model)(name="test:other", base_url=f"{server.url}/v1", model="other")
        await reply(other, after)
    _, sent, elsewhere = ([*asked.body["messages"]] for asked in server.asked)
    assert sent[1] == snapshot(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_x",
                    "type": "function",
                    "function": {"name": "python", "arguments": '{"code":"1"}'},
                    "extra_content": {"g": {"s": 1}},
                }
            ],
            "reasoning_content": "Let me see.",
        }
    )
    assert sent[2]["tool_call_id"] == "call_x"
    assert set(elsewhere[1]) == {"role", "content", "tool_calls"}
    assert elsewhere[1]["tool_calls"][0]["id"] == elsewhere[2]["tool_call_id"] != "call_x"


async def test_the_beginning_of_an_answer_can_be_given() -> None:
    with serving(said("print(1)")) as server:
        await reply(compatible(server.url), asking(user("code"), assistant("```python\n")))
    assert server.asked[0].body["messages"][-1] == {"role": "assistant", "content": "```python\n"}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "Unknown parameter: 'stream_options'.", "param": "stream_options"}}),
        (
            422,
            {"detail": [{"loc": ["body", "stream_options", "include_usage"], "msg": "Extra inputs are not permitted"}]},
        ),
        (400, {"detail": "Extra parameters ['stream_options'] are not allowed"}),
        (400, {"message": "extraneous key [include_usage] is not permitted"}),
    ],
)
async def test_a_server_that_will_not_count_is_not_asked_to_again(status: int, body: Any) -> None:
    with serving(failing(status, body), said("ok")) as server:
        model = compatible(server.url)
        assert (await reply(model)).text == "ok"
        assert (await reply(model)).text == "ok"
    assert ["stream_options" in asked.body for asked in server.asked] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "tools param requires --jinja flag"),
        (500, "Unsupported param: tools"),
        (404, "No endpoints found that support tool use. To learn more about provider routing, visit: ..."),
        (400, "`tool calling` is not supported with this model"),
    ],
)
async def test_a_server_without_tools_is_asked_again_without_them(status: int, words: str) -> None:
    with serving(failing(status, {"error": {"message": words}}), said("ok")) as server:
        model = compatible(server.url)
        assert model.takes_tools
        assert (await reply(model, WITH_TOOLS)).text == "ok"
        assert not model.takes_tools
        await reply(model, WITH_TOOLS)
    assert ["tools" in asked.body for asked in server.asked] == [True, False, False]


async def test_without_tools_calls_are_told_in_words() -> None:
    request = asking(
        user("go"),
        assistant("I look.", [("a_1", "python", {"code": "1"})]),
        tool("a_1", "1"),
        assistant("```python\n2\n```", [("a_2", "python", {"code": "2"})], in_text=True),
        tool("a_2", "2"),
        user("and?"),
        tools=(PYTHON,),
    )
    with serving(said("ok")) as server:
        await reply(compatible(server.url, takes_tools=False), request)
    assert "tools" not in server.asked[0].body
    assert server.asked[0].body["messages"] == snapshot(
        [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": """\
I look.
<tool name="python">{"code":"1"}</tool>\
""",
            },
            {
                "role": "user",
                "content": """\
Output of python:
1\
""",
            },
            {
                "role": "assistant",
                "content": """\
```python
2
```\
""",
            },
            {
                "role": "user",
                "content": """\
Output of python:
2

and?\
""",
            },
        ]
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {"error": {"message": "Unrecognized request argument supplied: top_k", "param": None}},
            (
                "the server refuses the setting 'top_k': Unrecognized request argument supplied: top_k; "
                "remove it from [model]"
            ),
        ),
        (
            {"error": {"message": "Out of range.", "param": "top_k"}},
            "the server refuses the setting 'top_k': Out of range.; remove it from [model]",
        ),
        (
            {"detail": [{"loc": ["body", "stop"], "msg": "Extra inputs are not permitted"}]},
            (
                "the server refuses the setting 'stop': body.stop: Extra inputs are not permitted; "
                "remove it from [model]"
            ),
        ),
        (
            {"error": {"message": "max_tokens is too large: 99999. This model supports at most 4096"}},
            (
                "the server refuses the setting 'max_tokens': max_tokens is too large: 99999. "
                "This model supports at most 4096; remove it from [model]"
            ),
        ),
        ({"error": "please stop sending this"}, "400 Bad Request: please stop sending this"),
    ],
)
async def test_a_refused_setting_is_named(body: Any, words: str) -> None:
    settings = {"top_k": 1, "stop": ["x"], "max_tokens": 99999}
    with serving(failing(400, body)) as server, pytest.raises(RequestFailed) as caught:
        await reply(compatible(server.url), asking(user("x"), settings=settings))
    assert str(caught.value) == words
    assert not caught.value.retryable


async def test_the_limit_of_tokens_goes_by_the_name_the_server_knows() -> None:
    message = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    )
    answers = (failing(400, {"error": {"message": message, "param": "max_tokens"}}), said("ok"))
    request = asking(user("x"), settings={"max_tokens": 5})
    with serving(*answers) as server:
        await reply(compatible(server.url), request)
        await reply(compatible(server.url, max_tokens_name="n_predict"), request)
    given = [{name: value for name, value in asked.body.items() if value == 5} for asked in server.asked]
    assert given == [{"max_tokens": 5}, {"max_completion_tokens": 5}, {"n_predict": 5}]


async def test_a_kept_connection_that_the_server_closes_is_replaced_and_a_new_one_is_not() -> None:
    closes = Says(raw=True)

    async def ask() -> Any:
        return [piece async for piece in model.stream(HELLO)][-1]

    with serving(said("one"), closes, said("two"), closes) as server:
        model = compatible(server.url)
        assert [(await ask()).text, (await ask()).text] == ["one", "two"]
        assert [one.connection for one in server.asked] == [1, 1, 2]
        assert server.asked[1].body == server.asked[2].body
        with pytest.raises(RequestFailed, match="did not answer: Server disconnected"):
            await ask()
        assert [one.connection for one in server.asked] == [1, 1, 2, 2, 3]
        await model.aclose()


async def test_requests_share_one_connection_until_the_model_is_closed() -> None:
    with serving(said("ok")) as server:
        model = compatible(server.url)
        for _ in range(2):
            assert [piece async for piece in model.stream(HELLO)]
        await model.aclose()
        await reply(model)
    assert [asked.connection for asked in server.asked] == [1, 1, 2]
