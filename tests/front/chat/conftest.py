"""The chat as a user has it: the real program on a real pseudo-terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.front.chat.terminal import Terminal, chat, environment


@pytest.fixture
def start(tmp_path: Path, workspace: Path) -> Generator[Callable[..., Terminal]]:
    """Start a chat with a scripted model, or go on with a session where there are no replies."""
    started: list[Terminal] = []

    def begin(
        *args: str,
        replies: list[dict[str, Any]] | None = None,
        mode: str = "auto",
        program: Sequence[str] = (),
        columns: int = 80,
        rows: int = 24,
        **env: str,
    ) -> Terminal:
        flags = list(args)
        if replies is not None:
            script = tmp_path / "script.jsonl"
            script.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
            flags += ["--mode", mode, "--workspace", str(workspace), "--model", f"scripted:{script}"]
        argv = [*program, *flags] if program else chat(*flags)
        terminal = Terminal(argv, environment(tmp_path, **env), workspace, columns=columns, rows=rows)
        started.append(terminal)
        return terminal

    yield begin
    for terminal in started:
        terminal.close()
