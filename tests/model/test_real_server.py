"""The wire against a real server and a real model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import httpx2
import pytest
from tests.model.model_requests import PYTHON, asking, assistant, compatible, pieces, reply, user
from tests.model.servers import Llama

from pinfold.events import ContextTooLong, Request, RequestFailed

pytestmark = pytest.mark.integration

SOON_S = 20


@pytest.fixture(scope="module")
def llama(start_llama: Callable[..., Llama]) -> Llama:
    return start_llama()


def story(max_tokens: int = 900, **settings: Any) -> Request:
    return asking(user("Tell me a long story."), settings={"max_tokens": max_tokens, "temperature": 0, **settings})


async def busy(llama: Llama) -> bool:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{llama.url}/slots")).json()[0]["is_processing"]


async def test_a_reply_is_streamed_and_counted(llama: Llama) -> None:
    shown, whole = await pieces(compatible(llama.url), story(16))
    assert len(shown) > 8
    assert "".join(map(str, shown)) == whole.text
    assert (whole.finish, whole.usage.output_tokens) == ("length", 16)
    assert whole.usage.input_tokens > 8
    assert whole.request_id


@pytest.mark.slow
async def test_a_prompt_that_was_read_before_is_counted_as_cached(llama: Llama) -> None:
    first = await reply(compatible(llama.url), story(4))
    again = await reply(compatible(llama.url), story(4))
    assert again.text == first.text
    assert 0 < again.usage.cached_tokens <= again.usage.input_tokens == first.usage.input_tokens


@pytest.mark.slow
async def test_the_beginning_of_an_answer_is_continued(llama: Llama) -> None:
    counting = asking(
        user("Count to nine."), assistant("One, two, three,"), settings={"max_tokens": 6, "temperature": 0}
    )
    assert "four" in (await reply(compatible(llama.url), counting)).text.lower()


async def test_cancelling_frees_the_server(llama: Llama) -> None:
    model = compatible(llama.url)
    begun = anyio.Event()

    async def listen() -> None:
        async for _ in model.stream(story()):
            begun.set()

    with anyio.fail_after(SOON_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            await begun.wait()
            assert await busy(llama)
            tasks.cancel_scope.cancel()
        while await busy(llama):
            pass
    assert (await reply(model, story(2))).usage.output_tokens == 2


async def test_a_conversation_that_does_not_fit_is_told_with_both_sizes(llama: Llama) -> None:
    model = compatible(llama.url)
    with pytest.raises(ContextTooLong) as caught:
        await reply(model, asking(user("word " * 3000)))
    assert caught.value.size == llama.context == model.context
    assert caught.value.needed is not None
    assert caught.value.needed > 3000
    assert (caught.value.status, caught.value.retryable) == (400, False)
    assert (await reply(model, story(2))).text


async def test_tools_and_unknown_settings_are_taken(llama: Llama) -> None:
    model = compatible(llama.url)
    request = asking(user("hi"), tools=(PYTHON,), settings={"max_tokens": 4, "mirostat": 0, "cache_prompt": True})
    assert (await reply(model, request)).usage.output_tokens
    assert model.takes_tools


async def test_a_setting_the_server_refuses_is_named(llama: Llama) -> None:
    with pytest.raises(RequestFailed, match=r"the server refuses the setting 'top_k': .*; remove it from"):
        await reply(compatible(llama.url), story(2, top_k="many"))


@pytest.mark.slow
async def test_a_wrong_key_is_told(start_llama: Callable[..., Llama]) -> None:
    locked = start_llama(keys=("right-key",))
    with pytest.raises(RequestFailed, match="check the key") as caught:
        await reply(compatible(locked.url, key="wrong-key"), story(2))
    assert (caught.value.status, caught.value.retryable) == (401, False)
    assert (await reply(compatible(locked.url, key="right-key"), story(2))).text


@pytest.mark.slow
async def test_a_server_killed_in_mid_reply_is_a_failed_request(start_llama: Callable[..., Llama]) -> None:
    doomed = start_llama()
    model = compatible(doomed.url)
    stream = model.stream(story())
    with anyio.fail_after(SOON_S):
        assert await anext(stream)
        doomed.process.kill()
        await anyio.to_thread.run_sync(doomed.process.wait)
        with pytest.raises(RequestFailed) as caught:
            _ = [piece async for piece in stream]
        assert (str(caught.value), caught.value.status, caught.value.retryable) == ("the reply broke off", None, True)
        assert caught.value.request_id
        with pytest.raises(RequestFailed, match="nothing answers at"):
            await reply(model, story())
