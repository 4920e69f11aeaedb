"""Runs a program inside and carries its streams to the host, by calls of the cell that asked for it.

One call at a time does both ways: it hands over what the program wrote and comes back with what it is to read. The host
keeps a call that has nothing to come back with; a line on our own output, which goes another way, says that there is
something to hand over. So neither side polls.
"""

from __future__ import annotations

import os
import threading
from select import select
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO

from .. import calls

PIECE = 128 << 10
"""Bytes in one call; each may take six in its arguments."""
PROMPT_S = 0.002
"""A program that answers within this is waited for: it saves the bell."""
ENDING_S = 2.0
"""For it to end when it has read all there is, and when it has closed its output."""
_programs: list[_Program] = []


class _Program:
    def __init__(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        self.process = Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **env}, cwd=cwd)
        self.out = _Reader(self.process.stdout)
        self.err = _Reader(self.process.stderr)
        self.unread = b""
        """What it is to read and has not taken yet."""
        self.is_over = False
        """Nothing more comes for it to read."""
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
        except OSError:  # it reads no more; how it ends is told
            self.unread = b""
        if self.is_over and self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
            # A copy of this interpreter may hold the other end open: then it does not learn that this was all.
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
        """What is there; only after it was seen to be readable."""
        data = os.read(self.fileno(), PIECE)
        self.ended = not data
        return data.decode("latin-1")


class _OutputWatcher(threading.Thread):
    """Rings when the program has written something while a call waits."""

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
            # What woke us may have been taken before that call was made.
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
    """Raises OSError."""
    _programs[:] = [_Program(argv, env, cwd)]


def relay() -> bool:
    """Until the program has ended, or the calls of this cell are used up: then the next one goes on. Whether it has ended."""
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
    """Hand over what there is, take what comes for it."""
    told = {"out": "", "err": ""}
    writing, wait_s = ([program.stdin], None) if program.unread else ([], PROMPT_S)
    for reader in select(program.readers(), writing, [], wait_s)[0]:
        told["out" if reader is program.out else "err"] = reader.take()
    program.feed()
    # What it does not take is not asked for more of: then the host's side waits.
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
