"""A real pseudo-terminal, with all that was ever written to it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyte

PATIENCE_S = 40.0
FORBIDDEN = tuple(f"\x1b[?{number}h".encode() for number in (1049, 1047, 47, 1000, 1001, 1002, 1003, 1005, 1006, 1015))
"""The alternate screen, and the mouse."""


class Terminal:
    """Waits for what is to be seen, never for a time."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], cwd: Path, *, columns: int = 80, rows: int = 24
    ) -> None:
        self.raw = bytearray()
        self._ended = False
        self._screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.001)
        self._stream = pyte.ByteStream(self._screen)
        self._moved = threading.Condition(threading.RLock())
        self._ours, theirs = pty.openpty()
        self._set_size(columns, rows)
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - it does nothing but one call
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:
                data = b""
            with self._moved:
                self.raw += data
                self._stream.feed(data)
                self._ended = not data
                self._moved.notify_all()
            if not data:
                return

    def feed(self, keys: str) -> None:
        data = keys.encode()
        while data:
            data = data[os.write(self._ours, data) :]

    def enter(self, line: str) -> None:
        self.feed(line + "\r")

    def wait(self, text: str, *, times: int = 1) -> None:
        """Until it is on the screen, or above it."""
        self.wait_until(lambda: self.text().count(text) >= times, f"{text!r} did not appear")

    def wait_on_screen(self, text: str) -> None:
        self.wait_until(lambda: text in "\n".join(self.screen()), f"{text!r} is not on the screen")

    def wait_gone(self, text: str) -> None:
        self.wait_until(lambda: text not in "\n".join(self.screen()), f"{text!r} stayed")

    def wait_until(self, seen: Callable[[], bool], otherwise: str) -> None:
        until = time.monotonic() + PATIENCE_S
        with self._moved:
            while not seen():
                if not self._moved.wait(until - time.monotonic()) or self._ended:
                    assert seen(), f"{otherwise}:\n{self.text()}"
                    return

    def screen(self) -> list[str]:
        with self._moved:
            return [line.rstrip() for line in self._screen.display]

    def lines(self) -> list[str]:
        """The scrollback and the screen."""
        with self._moved:
            above = [
                "".join(row[column].data for column in range(self._screen.columns)).rstrip()
                for row in self._screen.history.top
            ]
            return [*above, *self.screen()]

    def text(self) -> str:
        return "\n".join(self.lines())

    def resize(self, columns: int, rows: int) -> None:
        """As terminals do: what does not fit any more goes up into the scrollback. pyte's own would drop it."""
        with self._moved:
            screen, at = self._screen, self._screen.cursor.y
            over = max(0, at - rows + 1)
            screen.cursor.y = screen.lines - 1
            for _ in range(over):
                screen.index()
            screen.cursor.y, screen.cursor.x = at - over, min(screen.cursor.x, columns - 1)
            for row in range(rows, screen.lines):
                screen.buffer.pop(row, None)
            for line in screen.buffer.values():
                for column in range(columns, screen.columns):
                    line.pop(column, None)
            screen.lines, screen.columns = rows, columns
            screen.set_margins()
            self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def exit_code(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE_S)
        os.close(self._ours)
        assert not [code for code in FORBIDDEN if code in self.raw]


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Folders of its own below `folder`, and a terminal with colours."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH") if name in os.environ}
    own = {f"XDG_{name.upper()}_HOME": str(folder / "xdg" / name) for name in ("config", "data", "state", "cache")}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    own |= {"PINFOLD_SANDBOX_BUILD": "off", "PINFOLD_SANDBOX_WARM": "off"}
    return {**kept, **own, "HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **more}


def chat(*args: str) -> list[str]:
    return [sys.executable, "-m", "pinfold", *args]


def cell(code: str, **more: Any) -> dict[str, Any]:
    return {"calls": [{"tool": "python", "args": {"code": code}}], **more}


def shell(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "shell", "args": {"command": command}}]}


def eventually(seen: Callable[[], bool], otherwise: str) -> None:
    """For what no terminal shows."""
    until = time.monotonic() + PATIENCE_S
    never = threading.Event()
    while not seen():
        assert time.monotonic() < until, otherwise
        never.wait(0.02)
