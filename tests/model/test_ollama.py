"""Ollama's own protocol: room for the request, what is sent, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from tests.model.model_requests import HELLO, WITH_TOOLS, asking, assistant, called, ollama, pieces, reply, tool, user
from tests.model.servers import Asked, Says, Server, failing, lines, serving

from pinfold.events import BlobId, ContextTooLong, Reply, RequestFailed, Thought, Usage
from pinfold.model.wire.http import Patience
from pinfold.model.wire.ollama import OllamaModel

pytestmark = pytest.mark.integration


def line(content: str = "", **message: Any) -> dict[str, Any]:
    return {"model": "tiny", "message": {"role": "assistant", "content": content, **message}, "done": False}


END: dict[str, Any] = {**line(), "done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 5}


def shown(size: int = 32768, *capabilities: str) -> Says:
    info = {"general.architecture": "llama", "llama.context_length": size, "llama.block_count": 3}
    body = {"model_info": info, "capabilities": ["completion", *(capabilities or ("tools",))]}
    return failing(200, body)


def running(size: int | None = None, model: str = "tiny:latest") -> Says:
    entry = {"name": model, "model": model, **({"context_length": size} if size else {})}
    return failing(200, {"models": [{"name": "other", "context_length": 7}, entry] if size else []})


def said(*texts: str, **end: Any) -> Says:
    return lines(*map(line, texts), {**END, **end})


@dataclass
class Ollama:
    """A server with answers by path, and a model that asks it."""

    server: Server
    model: OllamaModel

    @property
    def chats(self) -> list[Asked]:
        return [asked for asked in self.server.asked if asked.path == "/api/chat"]

    @property
    def sizes(self) -> list[int]:
        return [asked.body["options"]["num_ctx"] for asked in self.chats]


def routed(server: Server, *chat: Says, show: Says | None = None, ps: Sequence[Says] = ()) -> Ollama:
    server.route({"/api/show": [show or shown()], "/api/ps": ps or [running()], "/api/chat": chat or [said("ok")]})
    return Ollama(server, ollama(server.url))


async def test_a_reply_comes_in_pieces_that_make_the_whole() -> None:
    with serving() as server:
        served = routed(server, said("Hel", "lo."))
        heard, whole = await pieces(served.model)
    assert heard == ["Hel", "lo."]
    assert whole == Reply(text="Hello.", usage=Usage(input_tokens=26, output_tokens=5))


async def test_what_is_sent_is_the_conversation_and_every_setting_in_its_place() -> None:
    settings = {
        "temperature": 0,
        "top_p": 0.9,
        "top_k": 40,
        "seed": 1,
        "stop": ["x"],
        "max_tokens": 50,
        "mirostat": 2,
        "think": False,
        "keep_alive": "5m",
        "min_p": None,
    }
    request = asking(
        user("what is this?", ("image/png", "sha256:1")),
        assistant("", [("a_1", "python", {"code": "1"}), ("a_2", "odd name", "broken")]),
        tool("a_1", "1"),
        tool("a_2", "no"),
        user("go on"),
        settings=settings,
        blobs={BlobId("sha256:1"): b"\x89PNG"},
    )
    with serving() as server:
        served = routed(server)
        await reply(served.model, request)
    assert [asked.path for asked in server.asked] == ["/api/show", "/api/ps", "/api/chat", "/api/ps"]
    assert served.chats[0].body == snapshot(
        {
            "model": "tiny",
            "messages": [
                {"role": "user", "content": "what is this?", "images": ["iVBORw=="]},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {"function": {"name": "python", "arguments": {"code": "1"}}},
                        {"function": {"name": "odd_name", "arguments": {"input": "broken"}}},
                    ],
                },
                {"role": "tool", "content": "1", "tool_name": "python"},
                {"role": "tool", "content": "no", "tool_name": "odd_name"},
                {"role": "user", "content": "go on"},
            ],
            "stream": True,
            "truncate": False,
            "options": {
                "temperature": 0,
                "top_p": 0.9,
                "top_k": 40,
                "seed": 1,
                "stop": ["x"],
                "num_predict": 50,
                "mirostat": 2,
                "num_ctx": 4096,
            },
            "think": False,
            "keep_alive": "5m",
        }
    )


async def test_calls_and_thoughts_are_understood_and_thoughts_go_back_with_the_calls() -> None:
    calls = [
        {"function": {"name": "python", "arguments": {"code": "1"}}},
        {"function": {"name": "python", "arguments": '{"code": "2"}'}},
        {"function": {"name": "now"}},
    ]
    with serving() as server:
        chat = (lines(line(thinking="Let me "), line(thinking="see."), line(tool_calls=calls), END), said("ok"))
        served = routed(server, *chat)
        heard, first = await pieces(served.model, WITH_TOOLS)
        spoken = assistant("", [(call.id, call.tool, call.args) for call in first.calls], echo=first.echo)
        await reply(served.model, asking(user("hello"), spoken))
    assert heard == [Thought("Let me "), Thought("see.")]
    assert (first.reasoning, first.text) == ("Let me see.", "")
    assert called(first) == [("python", {"code": "1"}), ("python", {"code": "2"}), ("now", {})]
    assert served.chats[0].body["tools"][0]["function"]["name"] == "python"
    assert served.chats[1].body["messages"][1]["thinking"] == "Let me see."


async def test_thoughts_in_the_answer_are_told_apart_too() -> None:
    with serving() as server:
        whole = await reply(routed(server, said("<thi", "nk>Hm.</think>", "\n42")).model)
    assert (whole.reasoning, whole.text) == ("Hm.", "42")


async def test_a_reply_that_hit_the_limit_says_so() -> None:
    with serving() as server:
        assert (await reply(routed(server, said("x", done_reason="length")).model)).finish == "length"


def of_size(tokens: int) -> Any:
    return asking(user("x" * 3 * tokens))


async def test_room_follows_need_and_never_shrinks() -> None:
    with serving() as server:
        served = routed(server)
        for tokens in (10, 4000, 100, 20_000, 10):
            await reply(served.model, of_size(tokens))
    assert served.sizes == [4096, 8192, 8192, 32768, 32768]
    assert served.model.context == 32768


async def test_room_for_the_answer_is_counted_in() -> None:
    with serving() as server:
        served = routed(server)
        await reply(served.model, asking(user("x"), settings={"max_tokens": 9000}))
    assert served.sizes == [16384]


async def test_room_is_never_more_than_the_model_has() -> None:
    with serving() as server:
        served = routed(server, show=shown(10_000))
        await reply(served.model, of_size(9_500))
    assert served.sizes == [10_000]


async def test_a_model_that_is_loaded_with_more_is_not_loaded_anew() -> None:
    with serving() as server:
        served = routed(server, ps=[running(16384)])
        await reply(served.model)
    assert served.sizes == [16384]


async def test_room_that_was_fixed_stays() -> None:
    with serving() as server:
        routed(server)
        await reply(ollama(server.url), asking(user("x"), settings={"num_ctx": 3000}))
    sizes = [asked.body["options"]["num_ctx"] for asked in server.asked if asked.path == "/api/chat"]
    assert sizes == [3000]


async def test_the_room_there_really_is_is_read_back() -> None:
    with serving() as server:
        served = routed(server, ps=[running(), running(2048)])
        assert served.model.context is None
        whole = await reply(served.model, of_size(3000))
    assert served.sizes == [4096]
    assert served.model.context == 2048
    told = "the request is about 3,016 tokens and tiny runs with room for 2,048"
    assert whole.notices == (f"{told}: Ollama may have left out its oldest part",)


async def test_a_request_that_fits_needs_no_notice() -> None:
    with serving() as server:
        served = routed(server, ps=[running(4096)])
        assert (await reply(served.model)).notices == ()
    assert served.model.context == 4096


async def test_what_surely_cannot_fit_is_not_sent() -> None:
    with serving() as server:
        served = routed(server, show=shown(8192))
        with pytest.raises(ContextTooLong) as caught:
            await reply(served.model, of_size(100_000))
    assert str(caught.value) == ("the conversation (100,016 tokens) is longer than the model's context (8,192 tokens)")
    assert (caught.value.size, caught.value.needed, caught.value.retryable) == (8192, 100_016, False)
    assert served.chats == []


async def test_a_request_that_was_estimated_too_small_gets_more_room_as_long_as_there_is_some() -> None:
    refused = failing(400, {"error": "the input length exceeds the context length"})
    with serving() as server:
        served = routed(server, refused, refused, said("ok"), show=shown(16384))
        assert (await reply(served.model)).text == "ok"
        assert served.sizes == [4096, 8192, 16384]
        served = routed(server, refused, show=shown(16384))
        with pytest.raises(ContextTooLong):
            await reply(served.model)
    assert served.sizes[3:] == [4096, 8192, 16384]


NO_TOOLS = failing(400, {"error": "registry.ollama.ai/library/tiny:latest does not support tools"})


@pytest.mark.parametrize(
    ("show", "chat"),
    [
        (shown(8192, "vision"), [said("ok")]),
        (failing(200, {}), [NO_TOOLS, said("ok")]),
        (failing(500, b"what?"), [NO_TOOLS, said("ok")]),
    ],
)
async def test_a_model_without_tools_gets_none(show: Says, chat: list[Says]) -> None:
    with serving() as server:
        served = routed(server, *chat, show=show)
        assert (await reply(served.model, WITH_TOOLS)).text == "ok"
    assert not served.model.takes_tools
    assert ["tools" in asked.body for asked in served.chats] == [True, False][-len(chat) :]


async def test_a_model_that_is_not_there_is_told_with_the_way_to_get_it() -> None:
    missing = failing(404, {"error": "model 'tiny' not found"})
    with serving() as server:
        for show in (missing, failing(405, b"")):
            with pytest.raises(RequestFailed) as caught:
                await reply(routed(server, missing, show=show).model)
            assert str(caught.value) == "ollama has no model tiny; `pinfold model pull ollama:tiny` fetches it"
            assert (caught.value.status, caught.value.retryable) == (404, False)


async def test_an_ollama_that_does_not_run_is_told_with_the_way_to_start_it() -> None:
    with serving() as server:
        url = server.url
    with pytest.raises(RequestFailed) as caught:
        await reply(ollama(url))
    assert str(caught.value) == f"nothing answers at {url}; start Ollama with `ollama serve`"
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("chat", "message", "status"),
    [
        (lines(line("Hel")), "the reply broke off", None),
        (lines(line("Hel"), end="cut"), "the reply broke off", None),
        (lines(line("Hel"), {"error": "llama runner died"}), "llama runner died", None),
        (lines({"error": "busy", "status": 503}), "503 Service Unavailable: busy", 503),
        (Says(steps=(b'{"message": {"content": "a"}}\n{oops\n',)), "the reply broke off", None),
        (lines({"ok": True}), "did not answer with a chat reply", 404),
        (failing(500, {"error": "out of memory"}), "500 Internal Server Error: out of memory", 500),
        (
            failing(400, {"error": "option 'top_k' must be an integer"}),
            "the server refuses the setting 'top_k': option 'top_k' must be an integer; remove it from [model]",
            400,
        ),
    ],
)
async def test_each_fault_is_told_and_the_next_request_works(chat: Says, message: str, status: int | None) -> None:
    with serving() as server:
        routed(server, chat, said("fine"))
        model = ollama(server.url)
        with pytest.raises(RequestFailed) as caught:
            await reply(model, asking(user("x"), settings={"top_k": "a"}))
        assert message in str(caught.value)
        assert caught.value.status == status
        assert (await reply(model)).text == "fine"


async def test_an_ollama_that_falls_silent_is_not_waited_for() -> None:
    with serving() as server:
        routed(server, lines(line("Hel"), end="hang"), said("fine"))
        with pytest.raises(RequestFailed, match=r"^the reply stopped: nothing came for 0\.2 s$"):
            await reply(ollama(server.url, patience=Patience(idle_s=0.2)))
        assert (await reply(ollama(server.url))).text == "fine"


async def test_cancelling_closes_the_connection_at_once() -> None:
    with serving() as server:
        model = routed(server, lines(line("x"), end="hang")).model
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pieces, model)
            assert await anyio.to_thread.run_sync(server.hanging.wait, 5)
            tasks.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(server.left.wait, 5)


async def test_a_server_that_keeps_the_line_open_after_the_end_is_not_waited_for() -> None:
    with serving() as server:
        model: OllamaModel = routed(server, lines(line("fine"), END, end="hang")).model
        assert (await reply(model, HELLO)).text == "fine"


FRAGMENTS = st.sampled_from(
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b"{",
        b'{"error": {"a": []}}\n',
        b'{"message": {"content": 3, "tool_calls": [{"function": {"arguments": [[]]}}, 4], "thinking": {}}}\n',
        b'{"message": {"content": "<think>", "tool_calls": {}}, "done": 1}\n',
        b'{"message": [], "done": true, "eval_count": "many", "prompt_eval_count": -1}\n',
        b'{"model_info": {"x.context_length": 1e99}, "capabilities": "all", "models": [[]]}\n',
        b'{"model_info": [], "models": [{"name": "tiny", "context_length": 1}]}\n',
    ]
)


async def ended(body: bytes, end: Literal["whole", "cut"]) -> Reply | RequestFailed:
    with serving(Says(kind="application/x-ndjson", steps=(body,), end=end)) as server:
        try:
            return await reply(ollama(server.url))
        except RequestFailed as failed:
            return failed


@settings(max_examples=100)
@given(st.lists(FRAGMENTS | st.binary(max_size=20), max_size=6).map(b"".join), st.sampled_from(["whole", "cut"]))
def test_any_answers_at_all_end_in_a_reply_or_a_failed_request(body: bytes, end: Literal["whole", "cut"]) -> None:
    began = time.process_time()
    assert isinstance(anyio.run(ended, body, end), Reply | RequestFailed)
    assert time.process_time() - began < 10
