"""What a chat needs and is not here: asked about where it is installed beside Pinfold, and one Ctrl-C leaves a download."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest
from tests.front.chat.terminal import Terminal
from tests.wheels import started

from pinfold.model.local.catalogue import CATALOGUE

pytestmark = pytest.mark.integration


def test_a_model_that_needs_an_extra_has_it_offered_and_after_a_no_the_command_is_said(
    start: Callable[..., Terminal],
) -> None:
    terminal = start("--model", "cohere:command-a", CO_API_KEY="k")
    terminal.wait("This needs the extra `cohere` (models of Cohere). Install it into")
    terminal.wait_on_screen("y yes")  # the keys are shown once they count
    terminal.feed("n")
    terminal.wait("cohere: models need the extra `cohere`: pinfold extras add cohere")


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
            "--model",
            "builtin",
            HF_ENDPOINT=f"http://127.0.0.1:{server.server_address[1]}",
            NO_PROXY="127.0.0.1",
        )
        terminal.wait_on_screen("fetching builtin: 3 of 1,117 MB")
        terminal.feed("\x03")
        terminal.wait("pinfold: left; what was fetched is kept")
        assert terminal.process.wait(timeout=30) == 130
    finally:
        over.set()
        server.shutdown()
        server.server_close()
