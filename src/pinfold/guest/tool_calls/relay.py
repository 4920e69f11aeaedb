"""Runs a program in the sandbox and carries its streams to the host, by tool calls of the cell that started it.

One call at a time serves both directions: it hands over the program's output and returns its input. The host holds back
the answer while there is no input; a line on this process's stdout, which takes another way, tells the host that there
is output to hand over. So neither side polls.
"""

from __future__ import annotations

import os
import threading
from select import select
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO

from .. import calls

PIECE = 128 << 10
"""Bytes in one call; each may take six in the JSON arguments."""
PROMPT_S = 0.002
"""How long to wait for output before a call: output that comes in time needs no line on stdout."""
ENDING_S = 2.0
"""Time for the program to end once its input is closed, and once it has closed its output."""
_programs: list[_Program] = []


class _Program:
    def __init__(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        self.process = Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **env}, cwd=cwd)
        self.out = _Reader(self.process.stdout)
        self.err = _Reader(self.process.stderr)
        self.unread = b""
        """Input that the program has not read yet."""
        self.is_over = False
        """True if no more input comes."""
        stdin = self.process.stdin
        assert stdin is not None
        self.stdin = stdin.fileno()
        os.set_blocking(self.stdin, False)

    def readers(self) -> list[_Reader]:
        return [reader for reader in (self.out, self.err) if not reader.ended]

    def feed(self) -> None:
        try:
            while self.unread:
                self.unread = self.unread[os.write(self.stdin, self.unread) :]
        except BlockingIOError:
            return
        except OSError:  # it reads no more; its exit code is reported
            self.unread = b""
        if self.is_over and self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
            # A forked copy of this interpreter may hold the pipe open: then the program sees no end of its input.
            timer = threading.Timer(ENDING_S, self.process.terminate)
            timer.daemon = True
            timer.start()


class _Reader:
    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None
        self._stream = stream
        self.ended = False

    def fileno(self) -> int:
        return self._stream.fileno()

    def take(self) -> str:
        """Read what is there. Call it only when the stream is readable."""
        data = os.read(self.fileno(), PIECE)
        self.ended = not data
        return data.decode("latin-1")


class _OutputWatcher(threading.Thread):
    """Writes a line to stdout when the program has written something while a call waits."""

    def __init__(self, program: _Program) -> None:
        super().__init__(daemon=True)
        self._program = program
        self._wake, self._waker = os.pipe()
        self._changed = threading.Condition()
        self._is_calling = self._is_over = False
        self._calls = 0

    def run(self) -> None:
        while True:
            readers = self._program.readers()
            select([self._wake, *readers], [], [])
            with self._changed:
                while not (self._is_calling or self._is_over):
                    self._changed.wait()
                if self._is_over:
                    return
                call = self._calls
            # The output that woke this thread may have been read before that call.
            if select(readers, [], [], 0)[0]:
                os.write(1, b"\n")
                with self._changed:
                    while self._calls == call and not self._is_over:
                        self._changed.wait()

    def __enter__(self) -> None:
        with self._changed:
            self._is_calling = True
            self._calls += 1
            self._changed.notify()

    def __exit__(self, *_: object) -> None:
        self._is_calling = False

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        os.write(self._waker, b".")
        self.join()
        os.close(self._wake)
        os.close(self._waker)


def start(argv: list[str], env: dict[str, str], cwd: str) -> None:
    """Start the program to relay. Raises OSError."""
    _programs[:] = [_Program(argv, env, cwd)]


def relay() -> bool:
    """Relay until the program ends (True), or until this cell's calls are used up (False) and the next cell goes on."""
    program = _programs[0]
    bell = _OutputWatcher(program)
    bell.start()
    try:
        for _ in range(calls.CALLS - 2):
            if not program.readers():
                calls.call("relay", out="", err="", full=False, code=_wait_for_exit(program.process))
                return True
            _exchange(program, bell)
        return False
    finally:
        bell.end()


def _exchange(program: _Program, bell: _OutputWatcher) -> None:
    """Hand over the program's output and receive its input."""
    told = {"out": "", "err": ""}
    writing, wait_s = ([program.stdin], None) if program.unread else ([], PROMPT_S)
    for reader in select(program.readers(), writing, [], wait_s)[0]:
        told["out" if reader is program.out else "err"] = reader.take()
    program.feed()
    # No more input is asked for while the program does not read: then the host's side waits.
    is_full = bool(program.unread) or not program.readers()
    if is_full and not (told["out"] or told["err"]):
        return
    with bell:
        answer = calls.call("relay", full=is_full, **told)
    program.unread += answer["in"].encode("latin-1")
    program.is_over = program.is_over or answer["over"]
    program.feed()


def _wait_for_exit(process: Popen[bytes]) -> int:
    try:
        return process.wait(ENDING_S)
    except TimeoutExpired:
        process.kill()
        return process.wait()
