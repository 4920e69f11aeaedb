"""What a chat needs and is not here: asked about where it is installed beside Pinfold, and one Ctrl-C leaves a download."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tests.front.chat.terminal import Terminal, cell
from tests.wheels import Index, pinfold_in, pinfold_with, started, uv

from pinfold.model.local.weights import CATALOGUE

pytestmark = pytest.mark.integration
SECRET = "gsk_heron_at_the_pond"


def of_index() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("UV_", "NO_PROXY"))}


def test_a_model_that_needs_an_extra_has_it_offered_and_after_a_no_the_command_is_said(
    start: Callable[..., Terminal],
) -> None:
    terminal = start("--model", "cohere:command-a", CO_API_KEY="k")
    terminal.wait("This needs the extra `cohere` (models of Cohere). Install it into")
    terminal.wait_on_screen("y yes")  # the keys are shown once they count
    terminal.feed("n")
    terminal.wait("cohere: models need the extra `cohere`: pinfold extras add cohere")


def test_after_a_yes_the_extra_is_installed_and_the_key_that_is_missing_is_asked_for(
    start: Callable[..., Terminal], index: Index, tmp_path: Path
) -> None:
    needs = "cohere; extra == 'cohere'\nProvides-Extra: cohere"
    index.add("pinfold", files={"pinfold_stub.py": ""}, requires=(needs,))
    index.add("cohere", files={"cohere.py": "", "pydantic_ai.py": ""})
    python = tmp_path / "venv" / "bin" / "python"
    uv("venv", tmp_path / "venv", "--python", sys.executable)
    uv("pip", "install", "--python", python, "pinfold")
    terminal = start("--model", "cohere:command-a", program=pinfold_in(python), **of_index())
    terminal.wait_on_screen("y yes")
    terminal.feed("y")
    terminal.wait_on_screen("cohere needs a key (CO_API_KEY)")
    terminal.wait(f"Installed the extra `cohere` into {tmp_path}"[:80])
    assert list((tmp_path / "venv").rglob("cohere.py"))
    terminal.wait_on_screen("key:")
    terminal.feed("\x1b")
    terminal.wait("pinfold: cohere needs a key: set CO_API_KEY, or choose another model")
    assert terminal.exit_code() == 2


def test_a_database_has_its_extra_offered(start: Callable[..., Terminal], tmp_path: Path) -> None:
    settings = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[data.shop]\nurl = "sqlite:////nosuch.db"\n', encoding="utf-8")
    without = "import sys; sys.modules['sqlglot'] = None; from pinfold.__main__ import main; main()"
    terminal = start(replies=[], program=[sys.executable, "-c", without], columns=200)
    terminal.wait("This needs the extra `sql` (databases: PostgreSQL, SQLite, DuckDB). Install it into")
    terminal.wait_on_screen("y yes")
    terminal.feed("n")
    terminal.wait("Without it code cannot read databases.")
    terminal.wait_on_screen("auto · ")


def test_what_would_need_installing_is_refused_in_mode_read_only_without_a_question(
    start: Callable[..., Terminal], index: Index
) -> None:
    index.add("heron")
    install = {"calls": [{"tool": "install", "args": {"package": "heron"}}]}
    replies = [cell("import heron"), install, {"text": "over"}]
    terminal = start(replies=replies, mode="read-only", columns=200, **of_index())
    terminal.wait_on_screen("read-only · ")
    terminal.enter("go")
    terminal.wait("No module named 'heron'")
    terminal.wait("[not run: a package would be installed, and the mode is read-only]")
    terminal.wait("over")
    assert b"Allow this?" not in terminal.raw
    assert index.asked == []


@pytest.mark.slow
def test_one_ctrl_c_leaves_while_the_environment_is_built(
    start: Callable[..., Terminal], index: Index, tmp_path: Path
) -> None:
    (tmp_path / "lock.txt").write_text(index.add("heron"), encoding="utf-8")
    index.hold()
    terminal = start(
        "--model",
        "groq:heron-1",
        program=pinfold_with(tmp_path / "lock.txt"),
        GROQ_API_KEY=SECRET,
        PINFOLD_SANDBOX_BUILD="auto",
        **of_index(),
    )
    terminal.wait("building the Python that code runs in, once")
    assert index.held.wait(30)
    terminal.feed("\x03")
    terminal.wait("pinfold: stopped; the part that was downloaded is kept")
    assert terminal.exit_code() == 130
    assert [path.name for path in (tmp_path / "xdg/data/pinfold/environments").iterdir()] == [".lock"]


def test_a_chat_that_begins_without_the_models_key_asks_for_it_and_keeps_it(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    terminal = start("--model", "groq:heron-1")
    terminal.wait_on_screen("groq needs a key (GROQ_API_KEY)")
    terminal.wait_on_screen("key:")
    terminal.enter(SECRET)
    terminal.wait("GROQ_API_KEY is stored in")
    terminal.wait_on_screen("groq:heron-1")
    terminal.wait_on_screen("ask · ")
    assert SECRET not in terminal.text()
    assert "GROQ_API_KEY" in (tmp_path / "xdg" / "config" / "pinfold" / "secrets.json").read_text()


def test_one_ctrl_c_leaves_while_weights_are_fetched(start: Callable[..., Terminal]) -> None:
    over = threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(CATALOGUE["builtin"].size))
        request.end_headers()
        request.wfile.write(bytes(3_000_000))
        request.wfile.flush()
        over.wait(60)

    server = started(answer)
    try:
        terminal = start(
            "--model", "builtin", HF_ENDPOINT=f"http://127.0.0.1:{server.server_address[1]}", NO_PROXY="127.0.0.1"
        )
        terminal.wait_on_screen("builtin: downloading 3 of 1,117 MB")
        terminal.feed("\x03")
        terminal.wait("pinfold: stopped; the part that was downloaded is kept")
        assert terminal.process.wait(timeout=30) == 130
    finally:
        over.set()
        server.shutdown()
        server.server_close()
