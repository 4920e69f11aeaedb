"""The chat in a terminal: CPU until its prompt stands, and how soon a key is seen while a cell prints at full speed.

.venv/bin/python bench/chat.py [--json] [--starts 10] [--keys 200] [--megabytes 200]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import resource
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
START_GOAL = 20.0
ECHO_GOAL_MS = 50.0
PROMPT = b"starting"
"""Drawn together with the prompt, before anything else is loaded."""
KEYS = "αβγδεζηθικλμνξοπρστυφχψω"
"""Nothing else on the screen looks like them."""
PATIENCE_S = 60.0
PAUSE_S = 0.03
"""Between two keys."""


class Screen:
    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path) -> None:
        self.fd, theirs = pty.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env,
            cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - there are none
        )
        os.close(theirs)
        self.seen = b""

    def read(self, patience_s: float) -> bytes:
        if not select.select([self.fd], [], [], patience_s)[0]:
            return b""
        data = os.read(self.fd, 1 << 16)
        self.seen = (self.seen + data)[-(1 << 20) :]
        return data

    def wait(self, text: bytes) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in self.seen:
            self.read(1.0)
            if time.monotonic() > until:
                raise TimeoutError(f"{text!r} did not appear: {self.seen[-2000:]!r}")

    def cpu_s(self) -> float:
        """Of all its threads, as the kernel's scheduler counts it."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


def environment(folder: Path) -> dict[str, str]:
    own = {f"XDG_{name.upper()}_HOME": str(folder / name) for name in ("config", "data", "state", "cache")}
    path = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
    return {**path, **own, "HOME": str(folder), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}


def command(folder: Path, *replies: dict[str, Any]) -> list[str]:
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    flags = ["--mode", "auto", "--workspace", str(workspace), "--model", f"scripted:{script}"]
    return [sys.executable, "-m", "pinfold", *flags]


def bare_cpu_s() -> float:
    """Of `python -c pass`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starts(folder: Path, count: int) -> dict[str, float]:
    bare: list[float] = []
    ours: list[float] = []
    argv = command(folder, {"text": "hello"})
    for number in range(count + 1):
        plain = bare_cpu_s()
        screen = Screen(argv, environment(folder), folder)
        try:
            screen.wait(PROMPT)
            used = screen.cpu_s()
        finally:
            screen.close()
        if number:  # the first one fills the caches
            bare.append(plain)
            ours.append(used)
    ratio = statistics.median(ours) / statistics.median(bare)
    return {
        "python_ms": round(1000 * statistics.median(bare), 1),
        "prompt_ms": round(1000 * statistics.median(ours), 1),
        "ratio": round(ratio, 1),
    }


def echoes(folder: Path, keys: int, megabytes: int) -> dict[str, dict[str, float]]:
    """Milliseconds from a key to its echo, one key at a time: at rest, while a cell prints, and while
    what it printed is kept and told."""
    code = (
        "import pathlib, sys\nline = 'x' * 99 + '\\n'\nblock = line * 10_000\nfor _ in range(MB):\n"
        "    sys.stdout.write(block)\nwhile not pathlib.Path('enough').exists():\n    sys.stdout.write(block)\n"
        "print('printed')"
    ).replace("MB", str(megabytes))
    argv = command(folder, {"calls": [{"tool": "python", "args": {"code": code}}]}, {"text": "all of it"})
    screen = Screen(argv, environment(folder), folder)
    end: list[float] = []
    try:
        screen.wait(b" 0 in 0 out")
        rest = [_echo(screen, KEYS[number % len(KEYS)]) for number in range(keys)]
        os.write(screen.fd, b"print\r")
        screen.wait(b"xxxxxxxxxx")
        took = [_echo(screen, KEYS[number % len(KEYS)]) for number in range(keys)]
        (folder / "workspace" / "enough").touch()
        while b"all of it" not in screen.seen:  # what is kept of it is written meanwhile
            end.append(_echo(screen, KEYS[len(end) % len(KEYS)]))
    finally:
        screen.close()
    return {"rest": _figures(rest), "flood": _figures(took), "end": _figures(end)}


def _figures(took: list[float]) -> dict[str, float]:
    took = sorted(took)
    return {
        "keys": len(took),
        "median_ms": round(1000 * statistics.median(took), 2),
        "p99_ms": round(1000 * took[max(0, int(len(took) * 0.99) - 1)], 2),
        "worst_ms": round(1000 * took[-1], 2),
    }


def _echo(screen: Screen, key: str) -> float:
    """Every key is erased again, so that each is drawn as a new letter at the same place."""
    began = time.perf_counter()
    os.write(screen.fd, key.encode())
    _until(screen, key.encode())
    took = time.perf_counter() - began
    os.write(screen.fd, b"\x15")  # Ctrl-U
    until = time.monotonic() + PAUSE_S
    while (left := until - time.monotonic()) > 0:
        screen.read(left)
    return took


def _until(screen: Screen, mark: bytes) -> None:
    data = b""
    until = time.monotonic() + PATIENCE_S
    while mark not in data:
        data = (data + screen.read(0.5))[-(1 << 18) :]
        if time.monotonic() > until:
            raise TimeoutError(f"{mark!r} was not echoed")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        start = starts(Path(one), given.starts)
        echo = echoes(Path(two), given.keys, given.megabytes)
    if given.json:
        print(json.dumps({"start": start, "echo": echo}))
    else:
        print(
            f"prompt after {start['prompt_ms']} ms of CPU: {start['ratio']} times `python -c pass` (goal {START_GOAL})"
        )
        for when, figures in echo.items():
            words = ", ".join(f"{name} {value}" for name, value in figures.items())
            print(f"key to echo, {when}: {words} (goal p99 {ECHO_GOAL_MS})")
    return 0 if start["ratio"] <= START_GOAL and echo["flood"]["p99_ms"] < ECHO_GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
