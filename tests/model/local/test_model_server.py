"""A served model answers as OpenAI's servers do, and what cannot be served is told in one line."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.model.local.conftest import data_folder
from tests.model.local.process_wait import until

import pinfold
from pinfold.events import Reply, Request, RequestFailed, ToolSchema, UserMessage
from pinfold.model.local.files import is_held
from pinfold.model.local.model_host import Host, Served, Spec
from pinfold.model.local.server import openai_format
from pinfold.model.local.server.model_server import LlamaBackend
from pinfold.model.wire.openai import OpenAIModel

pytestmark = pytest.mark.integration

# Looked up now: a test sees folders of its own only.
_TORCH = os.environ.get("PINFOLD_TEST_TORCH_PYTHON")
START_S = 200
READ = ToolSchema(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
A_CALL = {
    "type": "object",
    "properties": {
        "name": {"const": "read_file"},
        "arguments": {"type": "object", "properties": {"path": {"const": "a.csv"}}, "required": ["path"]},
    },
    "required": ["name", "arguments"],
}


class Endpoint:
    """A running `pinfold model serve`."""

    def __init__(self, argv: list[str], environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.process.communicate(timeout=200)[1]

    def model(self, name: str = "small", key: str | None = None) -> OpenAIModel:
        return OpenAIModel(name=name, base_url=self.url, model=name, key=key)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        import httpx2

        answer = httpx2.post(f"{self.url}/{path}", json=body, headers=headers, timeout=60, trust_env=False)
        return answer.status_code, answer.json()

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        import httpx2

        answer = httpx2.get(f"{self.url}/{path}", headers=headers, timeout=60, trust_env=False)
        return answer.status_code, answer.json()

    def end(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=200)
        return self.process.returncode


@pytest.fixture
def serve(data: Path) -> Generator[Callable[..., Endpoint]]:
    started: list[Endpoint] = []

    def begin(*args: str | Path) -> Endpoint:
        argv = [sys.executable, "-m", "pinfold", "model", "serve", *map(str, args), "--port", "0"]
        started.append(Endpoint(argv))
        return started[-1]

    yield begin
    for endpoint in started:
        if endpoint.process.poll() is None:
            endpoint.end()


@pytest.fixture(scope="module")
def smollm2(small: Path, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Endpoint]:
    """An endpoint for all tests that only ask it."""
    base = tmp_path_factory.mktemp("smollm2")
    data_folder(base / "data" / "pinfold", small, llama)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINFOLD_")}
    for name in ("config", "data", "state", "cache"):
        environment[f"XDG_{name.upper()}_HOME"] = str(base / name)
    endpoint = Endpoint([sys.executable, "-m", "pinfold", "model", "serve", "smollm2", "--port", "0"], environment)
    yield endpoint
    endpoint.end()


def streamed(endpoint: Endpoint, path: str, body: Any) -> str:
    import httpx2

    said = httpx2.post(f"{endpoint.url}/{path}", json={**body, "stream": True}, timeout=60, trust_env=False)
    *events, last = [line.removeprefix("data: ") for line in said.text.split("\n") if line]
    assert last == "[DONE]"
    return "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])


def asked(text: str, tools: tuple[ToolSchema, ...] = (), **settings: Any) -> Request:
    settings = {"temperature": 0, "max_tokens": 16, **settings}
    return Request(system="", messages=(UserMessage(text=text),), tools=tools, settings=settings)


async def reply_of(model: OpenAIModel, request: Request) -> tuple[int, Reply]:
    """How many pieces came, and the whole."""
    async with aclosing(model), aclosing(model.stream(request)) as pieces:
        got = [piece async for piece in pieces]
    assert isinstance(got[-1], Reply)
    return len(got) - 1, got[-1]


async def test_a_gguf_file_is_served_with_streams_usage_and_embeddings(
    serve: Callable[..., Endpoint], small: Path
) -> None:
    endpoint = serve(small)
    pieces, reply = await reply_of(endpoint.model(), asked("Count to twenty.", ignore_eos=True))
    assert pieces > 3
    assert (reply.usage.output_tokens, reply.finish) == (16, "length")
    status, whole = endpoint.post(
        "chat/completions", {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 4}
    )
    assert (status, whole["object"]) == (200, "chat.completion")
    status, listed = endpoint.get("models")
    assert [(each["id"], each["max_model_len"]) for each in listed["data"]] == [(small.stem, 8192)]
    status, vectors = endpoint.post("embeddings", {"input": ["a heron", "a heron", "a bill"]})
    assert status == 200
    first, same, other = (each["embedding"] for each in vectors["data"])
    assert first == pytest.approx(same, abs=1e-3)
    assert first != pytest.approx(other, abs=1e-3)
    assert sum(x * x for x in first) == pytest.approx(1.0, abs=1e-3)
    assert endpoint.get("../health") == (200, {"status": "ok"})


@pytest.mark.slow
def test_a_text_is_gone_on_with_whole_and_streamed(smollm2: Endpoint) -> None:
    endpoint = smollm2
    body = {"prompt": "The heron is", "temperature": 0}
    status, whole = endpoint.post("completions", body)
    (choice,) = whole["choices"]
    assert (status, whole["object"], choice["finish_reason"]) == (200, "text_completion", "length")
    assert whole["usage"]["completion_tokens"] == 16  # as OpenAI's do where nothing is said
    assert streamed(endpoint, "completions", {**body, "prompt": ["The heron is"]}) == choice["text"]
    for wrong in ({"prompt": ["a", "b"]}, {"echo": True}, {"suffix": "x"}, {"best_of": 2}, {"prompt": None}):
        assert endpoint.post("completions", {**body, **wrong})[0] == 400
    assert endpoint.get("models/smollm2")[1]["id"] == "smollm2"
    status, said = endpoint.get("models/gpt-9")
    assert (status, said["error"]["code"]) == (404, "model_not_found")


@pytest.mark.slow
def test_a_seed_gives_the_same_reply_again_also_where_the_prompt_was_read_before(smollm2: Endpoint) -> None:
    def say(text: str = "Tell me a story about a heron.", **settings: Any) -> str:
        messages = [{"role": "system", "content": "You write short stories about animals, " * 3}]
        messages.append({"role": "user", "content": text})
        body = {"messages": messages, "max_tokens": 8, "temperature": 1.0, **settings}
        return smollm2.post("chat/completions", body)[1]["choices"][0]["message"]["content"]

    first = say(seed=7)
    assert say(seed=7) == first
    say("Tell me of a bill.")
    assert say(seed=7) == first
    assert say(seed=8) != first


class Relay:
    """Between an endpoint and llama.cpp: a connection over which one answer came is closed when it is used again."""

    def __init__(self, to: str) -> None:
        parts = urlsplit(to)
        self._to = (parts.hostname or "", parts.port or 0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._pass, args=(self._listener.accept()[0],), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._to) as server:
            answered = False
            while ready := select.select([client, server], [], [])[0]:
                data = ready[0].recv(65536)
                if not data or (answered and ready[0] is client):
                    self.closed += bool(data)
                    return
                answered = ready[0] is server
                (client if answered else server).sendall(data)

    def end(self) -> None:
        self._listener.close()


async def test_a_kept_connection_that_llama_cpp_closes_as_it_is_used_again_is_no_fault(
    data: Path, small: Path, llama: Path, tmp_path: Path
) -> None:
    host = Host(Spec(model=small, alias="small", context=512, runtime=llama, linger_s=0.0), tmp_path)
    served = await host.ready()
    relay = Relay(served.url)
    backend = LlamaBackend("small", host, msgspec.structs.replace(served, url=relay.url), weights="smollm2")
    body = {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 2, "temperature": 0}
    try:
        said = [await backend.answer(body) for _ in range(3)]
        assert len({str(one["choices"]) for one in said}) == 1
        assert relay.closed == 2
    finally:
        await backend.aclose()
        relay.end()


def test_the_result_of_a_call_is_told_whatever_the_client_calls_it() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
    for id_ in ({"tool_call_id": "c1"}, {"tool_call_id": "another"}, {}):
        messages: list[Any] = [
            {"role": "user", "content": "Read a."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "rows", **id_},
        ]
        tools = [{"type": "function", "function": msgspec.to_builtins(READ)}]
        told = openai_format.in_words({"messages": messages, "tools": tools})["messages"]
        assert told[0]["content"].startswith("Call a tool with one line")
        assert told[-2:] == [
            {"role": "assistant", "content": '<tool name="read_file">{"path":"a"}</tool>'},
            {
                "role": "user",
                "content": ("Output of read_file" if id_.get("tool_call_id") == "c1" else "Output") + ":\nrows",
            },
        ]


def test_a_model_that_does_not_go_by_its_template_is_told_of_tools_in_words(tmp_path: Path) -> None:
    served = Served(pid=1, url="", key="", tells_tools=True)

    def tells(weights: str) -> bool:
        spec = Spec(model=tmp_path, alias="", context=1, runtime=None)
        return LlamaBackend("builtin", Host(spec, tmp_path), served, weights=weights).tells_tools

    assert not tells("qwen2.5-coder-1.5b-instruct-q4_k_m")
    assert tells("Qwen3-8B-Q4_K_M")


@pytest.mark.slow
async def test_a_call_that_a_model_without_tools_writes_reaches_the_client_as_a_native_one(smollm2: Endpoint) -> None:
    endpoint = smollm2
    # The grammar stands in for a larger model: it is the server's, and so is everything behind it.
    settings = {"max_tokens": 60, "json_schema": A_CALL}
    _, reply = await reply_of(endpoint.model(), asked("Read a.csv.", (READ,), **settings))
    assert [(call.tool, call.args) for call in reply.calls] == [("read_file", {"path": "a.csv"})]
    assert reply.text == ""
    body = {
        "messages": [{"role": "user", "content": "Read a.csv."}],
        "tools": [{"type": "function", "function": msgspec.to_builtins(READ)}],
        **settings,
    }
    _, whole = endpoint.post("chat/completions", body)
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "read_file"
    without = {name: value for name, value in body.items() if name != "tools"}
    _, plain = endpoint.post("chat/completions", without)
    assert json.loads(plain["choices"][0]["message"]["content"])["name"] == "read_file"


async def test_with_a_key_only_those_who_know_it_are_answered(serve: Callable[..., Endpoint]) -> None:
    endpoint = serve("smollm2", "--key", "sesame")
    assert endpoint.get("models")[0] == 401
    assert endpoint.get("models", Authorization="Bearer nonsense")[0] == 401
    assert endpoint.get("models", Authorization="Bearer sesame", Origin="http://a.page")[0] == 200
    _, reply = await reply_of(endpoint.model(key="sesame"), asked("Hi."))
    assert reply.text


async def test_faults_have_the_clients_usual_form(serve: Callable[..., Endpoint]) -> None:
    endpoint = serve("smollm2", "--context", "256")
    status, said = endpoint.post("chat/completions", {"messages": []})
    assert (status, said["error"]["type"]) == (400, "invalid_request_error")
    assert endpoint.get("models", Origin="http://a.page")[0] == 403
    with pytest.raises(RequestFailed) as caught:
        await reply_of(endpoint.model(), asked("heron " * 500))
    assert caught.value.status == 400
    long = {"messages": [{"role": "user", "content": "heron " * 500}]}
    assert endpoint.post("chat/completions", long)[1]["error"]["code"] == "context_length_exceeded"


async def test_what_runs_the_model_ends_with_the_endpoint(serve: Callable[..., Endpoint], tmp_path: Path) -> None:
    endpoint = serve("smollm2")
    (lock,) = (tmp_path / "xdg" / "state" / "pinfold" / "models").glob("*/server.lock")
    assert is_held(lock)
    endpoint.process.kill()
    endpoint.process.communicate(timeout=200)
    await until(lambda: not is_held(lock))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "things"
    made.mkdir()
    (made / "no.gguf").write_text("hello")
    (made / "cut.gguf").write_bytes(b"GGUF\x03")
    (made / "empty").mkdir()
    return made


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nobody", "there is no nobody; name a GGUF file, a Transformers folder, or one of builtin"),
        ("builtin", "builtin is not on this machine yet: `pinfold model pull builtin` fetches it (1,117 MB)"),
        ("no.gguf", "is not a GGUF file"),
        ("cut.gguf", "is a broken GGUF file; fetch it again"),
        ("empty", "is not a model: a Transformers folder has a config.json"),
        (".", "holds 2 GGUF files; name one of them"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(pinfold: Any, folder: Path, what: str, words: str) -> None:
    done = pinfold("model", "serve", what, "--port", "0", cwd=folder)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_a_port_that_is_taken_is_named(pinfold: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = pinfold("model", "serve", "builtin", "--port", str(port))
    assert done.code == 2
    assert f"port {port} is taken; name another with --port" in done.err


def test_a_model_is_not_offered_to_everybody_without_a_key(pinfold: Any) -> None:
    done = pinfold("model", "serve", "builtin", "--host", "0.0.0.0", "--port", "0")
    assert done.code == 2
    assert "give it a --key" in done.err


def test_a_transformers_folder_without_torch_names_the_extra(pinfold: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    done = pinfold("model", "serve", str(tmp_path), "--port", "0")
    assert done.code == 2
    assert "pinfold extras add transformers" in done.err


@pytest.fixture(scope="module")
def torch_python() -> str:
    if not _TORCH:
        pytest.skip("no Python with torch and transformers: PINFOLD_TEST_TORCH_PYTHON names none")
    return _TORCH


@pytest.fixture(scope="module")
def tiny(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders with random weights: `chat`, `plain` without a template, `encoder`, and `broken`."""
    folder = tmp_path_factory.mktemp("tiny")
    argv = [torch_python, Path(__file__).with_name("tiny_models.py"), folder, "chat", "plain", "encoder"]
    subprocess.run(argv, check=True, capture_output=True, timeout=250)
    shutil.copytree(folder / "chat", folder / "broken")
    (folder / "broken" / "model.safetensors").write_bytes(b"nonsense")
    return folder


@pytest.fixture(scope="module")
def with_torch(
    torch_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], tuple[list[str], dict[str, str]]]:
    """How to serve a folder by a Python that has torch, and everything else from ours."""
    ours = [Path(pinfold.__file__).parent.parent, Path(msgspec.__file__).parent.parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, ours))}
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        environment[f"XDG_{name}_HOME"] = str(tmp_path_factory.mktemp(name))

    def command(folder: Path) -> tuple[list[str], dict[str, str]]:
        argv = [torch_python, "-m", "pinfold", "model", "serve", str(folder), "--port", "0"]
        return argv, environment

    return command


@pytest.fixture(scope="module")
def served(tiny: Path, with_torch: Any) -> Generator[Callable[[str], Endpoint]]:
    """The endpoint of one of these folders, started with the first who asks for it."""
    started: dict[str, Endpoint] = {}

    def endpoint(kind: str) -> Endpoint:
        if kind not in started:
            started[kind] = Endpoint(*with_torch(tiny / kind))
        return started[kind]

    yield endpoint
    for each in started.values():
        each.end()


@pytest.mark.slow
async def test_a_transformers_folder_is_served_with_streams_and_embeddings(served: Callable[[str], Endpoint]) -> None:
    endpoint = served("chat")
    pieces, reply = await reply_of(endpoint.model(), asked("Hello.", max_tokens=80))
    assert pieces > 1
    assert (reply.usage.output_tokens, reply.finish) == (80, "length")
    _, again = await reply_of(endpoint.model(), asked("Hello.", max_tokens=80))
    assert again.text == reply.text
    _, sampled = await reply_of(endpoint.model(), asked("Hello.", max_tokens=80, temperature=1.0, seed=7))
    assert sampled.text != reply.text
    body = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 80, "temperature": 0}
    _, whole = endpoint.post("chat/completions", body)
    assert whole["choices"][0]["message"]["content"] == reply.text
    assert whole["usage"]["completion_tokens"] == 80
    _, listed = endpoint.get("models")
    assert [(each["id"], each["max_model_len"]) for each in listed["data"]] == [("chat", 256)]
    _, vectors = endpoint.post("embeddings", {"input": ["a", "a", "b"]})
    first, same, other = (each["embedding"] for each in vectors["data"])
    assert first == same != other
    long = {"messages": [{"role": "user", "content": "heron " * 500}]}
    assert endpoint.post("chat/completions", long)[1]["error"]["code"] == "context_length_exceeded"
    text = {"prompt": "a heron", "temperature": 0}
    _, whole = endpoint.post("completions", text)
    assert whole["usage"]["completion_tokens"] == 16
    assert streamed(endpoint, "completions", text) == whole["choices"][0]["text"] != ""


@pytest.mark.slow
async def test_a_client_that_leaves_stops_a_transformers_model(served: Callable[[str], Endpoint]) -> None:
    endpoint = served("chat")
    model = endpoint.model()
    async with aclosing(model.stream(asked("Hello.", max_tokens=200))) as pieces:
        await anext(pieces)
    await model.aclose()
    # One reply at a time: this one is answered only because the other has ended.
    assert (await reply_of(endpoint.model(), asked("Hello.", max_tokens=2)))[1].usage.output_tokens == 2


@pytest.mark.slow
async def test_tools_are_told_by_the_template_or_in_words(served: Callable[[str], Endpoint]) -> None:
    more: dict[str, int] = {}
    for kind in ("chat", "plain"):
        _, without = await reply_of(served(kind).model(), asked("Hello.", max_tokens=2))
        _, reply = await reply_of(served(kind).model(), asked("Hello.", (READ,), max_tokens=2))
        more[kind] = reply.usage.input_tokens - without.usage.input_tokens
    assert 0 < more["chat"] < 30  # the name alone, as the template has it
    assert more["plain"] > 30  # a sentence about it


@pytest.mark.slow
def test_an_encoder_has_embeddings_only(served: Callable[[str], Endpoint]) -> None:
    endpoint = served("encoder")
    assert endpoint.post("embeddings", {"input": "a heron"})[0] == 200
    status, said = endpoint.post("chat/completions", {"messages": [{"role": "user", "content": "Hi."}]})
    assert (status, said["error"]["message"]) == (501, "encoder writes no text; it has embeddings")


@pytest.mark.slow
def test_a_broken_folder_is_told_in_one_line(tiny: Path, with_torch: Any) -> None:
    argv, environment = with_torch(tiny / "broken")
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be loaded: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
