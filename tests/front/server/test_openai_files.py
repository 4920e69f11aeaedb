"""`/v1/files` and `/v1/embeddings` of a real `pinfold serve`, by the unmodified `openai` client."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def test_a_file_is_uploaded_listed_read_and_deleted(openai: OpenAI) -> None:
    made = openai.files.create(file=("../a table.csv", b"1,2\n"), purpose="assistants")
    assert (made.filename, made.bytes, made.purpose) == ("a table.csv", 4, "assistants")
    assert made in list(openai.files.list())
    assert made not in list(openai.files.list(purpose="batch"))
    assert openai.files.retrieve(made.id) == made
    assert openai.files.content(made.id).read() == b"1,2\n"
    assert openai.files.delete(made.id).deleted
    with pytest.raises(NotFoundError):
        openai.files.retrieve(made.id)


def test_an_unknown_purpose_is_refused(openai: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="user_data"):
        openai.files.create(file=("x", b"x"), purpose="nonsense")  # pyright: ignore[reportArgumentType]


class _Embedder(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = [{"index": place, "embedding": [float(len(text)), 0.5]} for place, text in enumerate(asked["input"])]
        body = json.dumps({"data": data}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def embedder() -> Generator[str]:
    """Stands in for a server of embeddings."""
    server = HTTPServer(("127.0.0.1", 0), _Embedder)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1#any"
    server.shutdown()
    thread.join()
    server.server_close()


def test_texts_become_vectors(openai: OpenAI, embedder: str) -> None:
    plain = openai.embeddings.create(model=embedder, input=["a", "four"], encoding_format="float")
    packed = openai.embeddings.create(model=embedder, input=["a", "four"])  # the client asks for base64 then
    assert [one.embedding for one in plain.data] == [one.embedding for one in packed.data] == [[1.0, 0.5], [4.0, 0.5]]
    assert plain.usage.total_tokens > 0


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="the extra `embeddings` is not installed")
def test_the_builtin_embeddings_need_no_network(openai: OpenAI) -> None:
    near, same, far = (
        one.embedding for one in openai.embeddings.create(model="builtin", input=["a dog", "a puppy", "tax law"]).data
    )
    assert sum(map(float.__mul__, near, same)) > sum(map(float.__mul__, near, far))


def test_embeddings_that_are_not_there_are_told(openai: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="builtin"):
        openai.embeddings.create(model="nonsense", input="x")
