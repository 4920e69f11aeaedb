"""Servers are known by their answers, not by their ports, and silence costs little."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest
from tests.model.servers import Llama, Says, Server, failing, serving

from pinfold.model.local.discovery import LIMIT_S, FoundModel, FoundServer, probe
from pinfold.model.names import ollama_url

pytestmark = pytest.mark.integration

NOBODY = {"OLLAMA_HOST": "127.0.0.1:9"}


@contextmanager
def answering(routes: Mapping[str, Any]) -> Generator[tuple[Server, str]]:
    with serving(failing(404, {"error": "not found"})) as server:
        nothing = [failing(404, {"error": "not found"})]
        server.route({"": nothing, **{path: [failing(200, said)] for path, said in routes.items()}})
        yield server, server.url


async def test_ollama_tells_size_and_tools_of_each_model() -> None:
    routes = {
        "/api/tags": {"models": [{"name": "qwen3:4b"}, {"name": "old:1b"}]},
        "/api/ps": {"models": [{"name": "qwen3:4b", "context_length": 8192}]},
        "/api/show": {"capabilities": ["completion", "tools"], "model_info": {"qwen3.context_length": 40960}},
    }
    with answering(routes) as (server, url):
        found = await probe({"OLLAMA_HOST": url}, places=())
    models = (
        FoundModel(id="qwen3:4b", context=8192, tools="native"),
        FoundModel(id="old:1b", context=40960, tools="native"),
    )
    assert found == (FoundServer(kind="ollama", base_url=url, models=models),)
    assert found[0].name_of(models[0]) == "ollama:qwen3:4b"
    assert {asked.body["model"] for asked in server.asked if asked.path == "/api/show"} == {"qwen3:4b", "old:1b"}


async def test_an_old_ollama_that_does_not_tell_is_found_all_the_same() -> None:
    with answering({"/api/tags": {"models": [{"name": "old:1b"}]}}) as (_, url):
        (found,) = await probe({"OLLAMA_HOST": url}, places=())
    assert found.models == (FoundModel(id="old:1b"),)


async def test_lm_studio_tells_what_is_loaded() -> None:
    routes: dict[str, Any] = {
        "/v1/models": {"data": [{"id": "gemma", "owned_by": "organization_owner"}, {"id": "bge"}]},
        "/api/v0/models": {
            "data": [
                {"id": "gemma", "state": "loaded", "loaded_context_length": 4096, "max_context_length": 131072}
                | {"capabilities": ["tool_use"]},
                {"id": "bge", "state": "not-loaded", "max_context_length": 512, "capabilities": []},
            ]
        },
    }
    with answering(routes) as (_, url):
        found = await probe(NOBODY, places=(url,))
    models = (FoundModel(id="gemma", context=4096, tools="native"), FoundModel(id="bge", context=512, tools="none"))
    assert found == (FoundServer(kind="lmstudio", base_url=f"{url}/v1", models=models),)
    assert found[0].name_of(models[0]) == f"{url}/v1#gemma"


async def test_vllm_tells_its_length() -> None:
    routes = {"/v1/models": {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}]}}
    with answering(routes) as (_, url):
        (found,) = await probe(NOBODY, places=(url,))
    assert (found.kind, found.models) == ("vllm", (FoundModel(id="m", context=32768),))


async def test_a_real_llama_cpp_tells_the_size_it_runs_with(start_llama: Callable[..., Llama]) -> None:
    server = start_llama(context=768)
    (found,) = await probe(NOBODY, places=(server.url,))
    assert (found.kind, found.needs_key) == ("llamacpp", False)
    assert [(model.context, model.tools) for model in found.models] == [(768, "none")]


@pytest.mark.slow
async def test_a_real_llama_cpp_with_a_key_tells_nothing(start_llama: Callable[..., Llama]) -> None:
    server = start_llama(keys=("sesame",))
    (found,) = await probe(NOBODY, places=(server.url,))
    assert found == FoundServer(kind="openai", base_url=f"{server.url}/v1", needs_key=True)


async def test_llama_cpp_without_a_key_is_asked_for_its_properties() -> None:
    routes = {
        "/v1/models": {"data": [{"id": "small", "owned_by": "llamacpp", "meta": {"n_ctx": 512}}]},
        "/props": {"default_generation_settings": {"n_ctx": 1024}, "chat_template_caps": {"supports_tools": False}},
    }
    with answering(routes) as (_, url):
        (found,) = await probe(NOBODY, places=(url,))
    assert (found.kind, found.models) == ("llamacpp", (FoundModel(id="small", context=1024, tools="none"),))


async def test_a_server_that_wants_a_key_is_told_apart_from_none() -> None:
    with serving(failing(401, {"error": "who are you?"})) as server:
        url = server.url
        (found,) = await probe(NOBODY, places=(url,))
    assert found == FoundServer(kind="openai", base_url=f"{url}/v1", needs_key=True)


async def test_where_nothing_listens_nothing_is_found() -> None:
    assert await probe(NOBODY, places=("http://127.0.0.1:9",)) == ()


@pytest.mark.parametrize(
    "answer",
    [
        Says(raw=True, steps=(b"220 mail.example ESMTP\r\n",)),
        Says(raw=True, steps=(b"\xff\x00\x01",)),
        Says(raw=True, steps=()),
        Says(kind="text/html", steps=(b"<html>hello</html>",)),
        Says(kind="application/json", steps=(b'{"data": "none", "models": 7}',)),
        Says(kind="application/json", steps=(b'{"data": [7, null, {"id": 3}]}',)),
        Says(kind="application/json", steps=(b"[" * 100_000,)),
        Says(raw=True, steps=(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n0\r\n\r\n",)),
    ],
)
async def test_whatever_else_listens_there_does_no_harm(answer: Says) -> None:
    with serving(answer) as server:
        found = await probe({"OLLAMA_HOST": server.url}, places=(server.url.replace("127.0.0.1", "localhost"),))
    assert all(not server.models for server in found)


async def test_servers_that_say_nothing_are_waited_for_together() -> None:
    with serving(Says(steps=(threading.Event(),), end="hang")) as server:
        began, url = monotonic(), server.url
        places = tuple(f"{url}/{number}" for number in range(120))
        assert await probe({"OLLAMA_HOST": server.url}, places=places) == ()
        assert monotonic() - began < 60 * LIMIT_S  # one after the other would take twice as long
        server.hanging.set()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("box:80", "http://box:80"),
        (":5000", "http://127.0.0.1:5000"),
        ("http://box", "http://box:80"),
        ("https://box/ollama/", "https://box:443/ollama"),
        ("[::1]:5", "http://[::1]:5"),
    ],
)
def test_the_host_of_ollama_is_read_as_ollama_reads_it(given: str, url: str) -> None:
    assert ollama_url({"OLLAMA_HOST": given}) == url


def test_looking_around_needs_no_heavy_library() -> None:
    program = (
        "import sys, anyio\nfrom pinfold.model.local.discovery import probe\n"
        "anyio.run(probe, {'OLLAMA_HOST': '127.0.0.1:9'}, ('http://127.0.0.1:9',))\n"
        "heavy = {'httpx2', 'xllamacpp', 'pydantic', 'starlette', 'uvicorn', 'transformers', 'torch'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
