"""`pinfold model`: what is said while weights come, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.model.local.registry import Registry
from tests.model.servers import failing, serving

pytestmark = pytest.mark.integration

DRIVER = """
import pickle, sys
from pathlib import Path
from pinfold.model.local.weights import CATALOGUE
weights = pickle.loads(Path(sys.argv.pop(1)).read_bytes())
CATALOGUE[weights.name] = weights
from pinfold.__main__ import main
main()
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Generator[Registry]:
    registry = Registry()
    monkeypatch.setenv("HF_ENDPOINT", f"{registry.url}/hub")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{registry.url}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield registry
    registry.close()


@pytest.fixture
def argv(registry: Registry, tmp_path: Path) -> Callable[..., list[str]]:
    """The real command, with one more name in its catalogue."""
    given = tmp_path / "weights.pickle"
    given.write_bytes(pickle.dumps(registry.offer((2_000_000,))))
    return lambda *args: [sys.executable, "-c", DRIVER, str(given), "model", *args]


def test_a_pull_says_how_far_it_is_and_a_second_says_nothing(argv: Any, tmp_path: Path) -> None:
    first = subprocess.run(argv("pull", "tiny"), capture_output=True, text=True, timeout=200, check=False)
    assert (first.returncode, first.stdout) == (0, "")
    lines = first.stderr.splitlines()
    assert lines[0] == "pinfold: downloading ..."
    assert lines[-2] == "pinfold: checking ..."
    file = tmp_path / "xdg/data/pinfold/models/tiny.gguf"
    assert lines[-1].endswith(f"made up, {file}")
    assert file.stat().st_size == 2_000_000
    second = subprocess.run(argv("pull", "tiny"), capture_output=True, text=True, timeout=200, check=False)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")


def test_on_a_terminal_a_bar_is_drawn_and_taken_away(argv: Any) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(argv("pull", "tiny"), stderr=theirs, timeout=200, check=False)
    os.close(theirs)
    drawn = b""
    with contextlib.suppress(OSError):  # EIO at the end
        while some := os.read(ours, 1 << 16):
            drawn += some
    os.close(ours)
    assert done.returncode == 0
    shown = drawn.decode()
    assert "downloading" in shown
    assert "######################## checking 2 of 2 MB" in shown
    assert shown.rpartition("\x1b[K")[2].startswith("pinfold: ready in")


def test_ctrl_c_leaves_a_pull_at_once_and_the_next_goes_on_from_what_came(
    argv: Any, registry: Registry, tmp_path: Path
) -> None:
    registry.manners.hold_after = 1_000_000
    running = subprocess.Popen(argv("pull", "tiny"), stderr=subprocess.PIPE, text=True)
    assert running.stderr
    assert any(line.startswith("pinfold: downloading 1 of 2 MB") for line in iter(running.stderr.readline, ""))
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=20)  # the server holds the connection open for longer
    assert running.returncode == 130
    assert said.splitlines()[-1] == ("pinfold: stopped; the next pull continues from here")
    begun = sum(path.stat().st_size for path in (tmp_path / "xdg/data/pinfold/models").iterdir())
    assert begun >= 500_000
    registry.manners.hold_after = None
    registry.go.set()
    again = subprocess.run(argv("pull", "tiny"), capture_output=True, text=True, timeout=200, check=False)
    assert again.returncode == 0
    assert registry.asked[-1][1].startswith("bytes="), "the rest was asked for, not the whole"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nobody", 2, "no weights are called 'nobody'; there are builtin, builtin-small, smollm2"),
        ("ollama:", 2, "no weights are called 'ollama:'"),
    ],
)
def test_a_wrong_name_is_one_line(pinfold: Any, name: str, code: int, words: str) -> None:
    done = pinfold("model", "pull", name)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_a_pull_that_fails_is_one_line_and_exit_75(argv: Any, registry: Registry) -> None:
    registry.manners.file_status = 403
    done = subprocess.run(argv("pull", "tiny"), capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (75, "")
    assert "it answered 403" in done.stderr.splitlines()[-1]


@pytest.fixture
def ollama(monkeypatch: pytest.MonkeyPatch) -> Generator[list[dict[str, Any]]]:
    """A server that answers a pull with these lines, as Ollama would."""
    lines: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert (self.path, asked["model"]) == ("/api/pull", "heron")
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(json.dumps(line) + "\n" for line in lines).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quietly."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{server.server_address[1]}")
    yield lines
    server.shutdown()
    server.server_close()


def test_ollama_is_asked_to_fetch_its_own(pinfold: Any, ollama: list[dict[str, Any]]) -> None:
    ollama += [
        {"status": "pulling manifest"},
        {"status": "pulling 1", "digest": "1", "total": 8_000_000, "completed": 4_000_000},
        {"status": "pulling 1", "digest": "1", "total": 8_000_000, "completed": 8_000_000},
        {"status": "verifying sha256 digest"},
        {"status": "success"},
    ]
    done = pinfold("model", "pull", "ollama:heron")
    assert (done.code, done.out) == (0, "")
    assert "pinfold: downloading 4 of 8 MB\n" in done.err
    assert done.err.endswith("ollama:heron\n")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"error": "pull model manifest: file does not exist"}], "could not fetch heron: pull model manifest"),
        ([{"status": "pulling manifest"}], "Ollama stopped while fetching heron; try again"),
    ],
)
def test_what_ollama_could_not_do_is_said(
    pinfold: Any, ollama: list[dict[str, Any]], lines: list[dict[str, Any]], words: str
) -> None:
    ollama += lines
    done = pinfold("model", "pull", "ollama:heron")
    assert done.code == 75
    assert words in done.err


def test_without_ollama_it_is_said_how_to_start_it(pinfold: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    done = pinfold("model", "pull", "ollama:heron")
    assert done.code == 75
    assert "nothing answers at http://127.0.0.1:9; start Ollama with `ollama serve`" in done.err


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of whoever runs the tests, and no Ollama of theirs."""
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "HF_TOKEN"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


def test_a_list_names_what_could_answer_and_never_a_key(
    pinfold: Any, quiet: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-user")
    answers = {
        "/api/tags": {"models": [{"name": "qwen3:4b"}]},
        "/api/show": {"capabilities": ["tools"], "model_info": {"qwen3.context_length": 40960}},
    }
    with serving(failing(404, {})) as server:
        server.route({"": [failing(404, {})], **{path: [failing(200, said)] for path, said in answers.items()}})
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        shown = pinfold("model", "list", "--json")
        page = pinfold("model", "list")
        url = server.url
    assert (shown.code, shown.err) == (0, "")
    listed = json.loads(shown.out)
    (ollama,) = (found for found in listed["servers"] if found["kind"] == "ollama")
    assert ollama == {
        "kind": "ollama",
        "url": url,
        "needs_key": False,
        "models": [{"name": "ollama:qwen3:4b", "id": "qwen3:4b", "context": 40960, "tools": "native"}],
    }
    assert listed["keys"] == [{"provider": "anthropic", "variable": "ANTHROPIC_API_KEY"}]
    assert [model["name"] for model in listed["builtin"]] == ["builtin", "builtin-small", "smollm2"]
    assert listed["builtin"][0] == {
        "name": "builtin",
        "title": "Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
        "pulled": False,
        "path": None,
        "size": 1117320768,
        "memory": 2000000000,
        "context": 8192,
        "tools": "text",
    }
    assert "    ollama:qwen3:4b: context 40,960 tokens, tools native\n" in page.out
    assert "  anthropic      ANTHROPIC_API_KEY is set\n" in page.out
    assert "sk-ant" not in shown.out + page.out + page.err


def test_an_empty_list_says_what_to_do(pinfold: Any, quiet: None) -> None:
    page = pinfold("model", "list")
    assert page.code == 0
    assert "`pinfold model pull builtin`" in page.out
    assert "no provider key is set" in page.out


def test_a_list_knows_the_keys_of_a_trusted_env_file(pinfold: Any, quiet: None, workspace: Path) -> None:
    (workspace / ".env").write_text("GROQ_API_KEY=gsk-of-the-folder\n", encoding="utf-8")
    assert json.loads(pinfold("model", "list", "--json").out)["keys"] == []
    assert pinfold("trust", "--yes").code == 0
    shown = pinfold("model", "list", "--json")
    assert json.loads(shown.out)["keys"] == [{"provider": "groq", "variable": "GROQ_API_KEY"}]
    assert "gsk-of" not in shown.out


def test_a_model_that_keeps_failing_is_left_alone_by_other_processes_too(pinfold: Any, quiet: None) -> None:
    with serving(failing(503, {"error": {"message": "overloaded"}}, Retry_After="0")) as server:
        turns = [pinfold("run", "--model", f"{server.url}/v1#m", "hello") for _ in range(3)]
        asked = len(server.asked)
    assert [turn.code for turn in turns] == [75, 75, 75]
    assert asked == 5
    assert ["it keeps failing and is paused for" in turn.err for turn in turns] == [False, True, True]
