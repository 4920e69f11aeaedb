"""Notes found by meaning, with a real server of `/v1/embeddings` on loopback: what is sent, kept, and done without it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from pinfold.app import ConfigError
from pinfold.app.config.layers import check_project
from pinfold.app.config.schema import Config, MemoryConfig
from pinfold.app.session.notes import memory_file, open_memory, search_notes
from pinfold.memory import Note
from pinfold.memory.relevance import CANDIDATES, rank

pytestmark = pytest.mark.integration
MEANINGS = (("car", "automobile", "vehicle"), ("doctor", "physician"), ("holiday", "vacation"))


class EmbeddingServer:
    """A vector counts the words of each meaning."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.keys: list[str] = []
        self.fault = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert (self.path, body["model"]) == ("/v1/embeddings", "tiny")
                outer.asked.append(body["input"])
                outer.keys.append(self.headers.get("authorization", ""))
                vectors = [[float(sum(word in text for word in words)) for words in MEANINGS] for text in body["input"]]
                data: list[Any] = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
                if outer.fault == "short":
                    data = data[:-1]
                elif outer.fault == "words":
                    data = [{"index": at, "embedding": ["x"]} for at in range(len(data))]
                said = json.dumps({"data": data[::-1]}).encode()
                self.send_response(500 if outer.fault == "500" else 200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.name = f"http://127.0.0.1:{self.listener.server_port}/v1#tiny"
        Thread(target=self.listener.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.listener.shutdown()
        self.listener.server_close()


@pytest.fixture
def server() -> Generator[EmbeddingServer]:
    serving = EmbeddingServer()
    yield serving
    serving.close()


def config(name: str) -> Config:
    return Config(memory=MemoryConfig(embeddings=name))


def texts(notes: list[Note]) -> list[str]:
    return [note.text for note in notes]


def remember(*notes: str) -> None:
    for text in notes:
        open_memory(Path("/work/a"), "s_1").remember(text, trusted=True)


def test_a_note_is_found_by_its_meaning_and_each_note_is_sent_once(server: EmbeddingServer) -> None:
    remember("the automobile is red", "the physician is away on Fridays", "lunch is at noon")
    assert search_notes("car", 1, Config()).notes == [], "the control"
    found = search_notes("car", 1, config(server.name), workspace=Path("/work/a"))
    assert texts(found.notes) == ["the automobile is red"]
    assert (found.notice, found.sent) == ("", ()), "nothing left this machine"
    assert server.asked == [
        ["lunch is at noon", "the physician is away on Fridays", "the automobile is red"],
        ["car"],
    ]
    assert texts(search_notes("a doctor", 1, config(server.name)).notes) == ["the physician is away on Fridays"]
    assert server.asked[2:] == [["a doctor"]]
    sizes = sqlite3.connect(memory_file()).execute("SELECT typeof(vector), length(vector) FROM vectors").fetchall()
    assert sizes == [("blob", 2 * len(MEANINGS))] * 3


def test_an_edited_note_is_embedded_again_and_a_forgotten_one_has_no_vector(server: EmbeddingServer) -> None:
    remember("the automobile is red", "lunch is at noon")
    search_notes("car", 1, config(server.name))
    open_memory().edit(1, "the vacation is in May")
    assert texts(search_notes("holiday", 1, config(server.name)).notes) == ["the vacation is in May"]
    open_memory().forget(1, trusted=True)
    assert sqlite3.connect(memory_file()).execute("SELECT id FROM vectors").fetchall() == [(2,)]


def test_only_notes_that_can_be_recalled_here_are_sent(server: EmbeddingServer) -> None:
    remember("the automobile is red")
    open_memory(Path("/work/b"), "s_2").remember("a vehicle of the other project", trusted=True)
    found = search_notes("car", 5, config(server.name), workspace=Path("/work/a"))
    assert texts(found.notes) == ["the automobile is red"]
    assert "other project" not in str(server.asked)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("500", "500"),
        ("short", "one vector for each text"),
        ("words", "other than embeddings"),
        ("gone", "nothing answers"),
    ],
)
def test_without_the_server_notes_are_found_by_words_and_it_is_said(
    server: EmbeddingServer, fault: str, words: str
) -> None:
    remember("the automobile is red")
    server.fault = fault
    if fault == "gone":
        server.close()
    found = search_notes("red automobile", 5, config(server.name))
    assert texts(found.notes) == ["the automobile is red"]
    assert words in found.notice
    assert found.notice.endswith("searched by words alone")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nonsense", "no model is called 'nonsense'"),
        ("anthropic:claude", "has no embeddings"),
        ("openai:text-embedding-3-small", "needs a key"),
    ],
)
def test_a_name_that_cannot_be_used_is_said_in_one_line(name: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    remember("the automobile is red")
    found = search_notes("automobile", 5, config(name))
    assert len(found.notes) == 1
    assert words in found.notice
    assert "\n" not in found.notice


def test_a_session_that_has_read_outside_text_sends_nothing_to_another_machine(server: EmbeddingServer) -> None:
    remember("the automobile is red")
    found = search_notes("automobile", 5, config("http://192.0.2.1:9/v1#tiny"), untrusted=True)
    assert len(found.notes) == 1
    assert "nothing was sent" in found.notice
    assert texts(search_notes("car", 5, config(server.name), untrusted=True).notes) == ["the automobile is red"]


def test_a_project_cannot_have_notes_sent_anywhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a project may not set memory\.embeddings"):
        check_project(b'[memory]\nembeddings = "http://evil.example/v1#x"\n', tmp_path / "pinfold.toml")


def test_a_rank_by_meaning_counts_a_third_of_one_by_words() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, session TEXT, text TEXT, tags TEXT)")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(text, tags, content='notes', content_rowid='id')")
    rows = [(1, "a", "walrus walrus"), (2, "b", "walrus and seal"), (3, "c", "whale"), (4, "d", "dolphin")]
    connection.executemany("INSERT INTO notes VALUES (?, ?, ?, '')", rows)
    connection.execute("INSERT INTO words(words) VALUES ('rebuild')")

    def best(*nearest: int) -> list[int]:
        return rank(connection, "walrus", 5, table="notes", visible="1", values={}, nearest=nearest)

    assert best() == [1, 2]
    assert best(3, 4) == [1, 2, 3, 4]
    assert best(2) == [2, 1], "both agree on it"
    assert CANDIDATES <= 200
