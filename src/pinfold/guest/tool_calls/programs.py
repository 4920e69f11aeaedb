"""Runs programs for the host, between cells or while a cell waits for a call: bounded in time and output.

Each program has its own process group. It is a child of this process and is reaped when it ends, so that it is not left
for `os.wait()` in a cell. The namespace of the cells is not touched.
"""

from __future__ import annotations

import os
import select
import signal
from _thread import allocate_lock
from contextlib import suppress
from json import dumps
from time import monotonic

from ..kernel.processes import SignalHandlers

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen
    from typing import Any

    from ..frames import Channel

    Request = dict[str, Any]
    Question = Callable[[], bool]
    Tell = Callable[[str, bytes], None] | None
    Ended = tuple[bytes, BaseException | None]

READ_BYTES = 1 << 16
"""The most output that is read, and reported, at once."""
LAST_READS = 16
"""Reads after its end, for as much as the largest pipe holds: processes left in the background may write endlessly."""
TICK_S = 0.1
"""How often to check whether the program is still wanted."""
LOOK_S = 0.01
"""How often to check whether the program has ended, where there is no pidfd."""
REAP_S = 2.0
"""Time for a killed program to end."""

# Bound at import: a program may replace these names in their modules.
_waitpid, _killpg, _read, _write, _close = os.waitpid, os.killpg, os.read, os.write, os.close


class Programs:
    def __init__(self, root: str, channel: Channel) -> None:
        self._root = root
        self._channel = channel
        self._kept = {name: value for name, value in os.environ.items() if name == "TMPDIR" and value}
        """TMPDIR as at the start: without a PID namespace, processes that a session leaves running are found by it."""

        self.starting = allocate_lock()
        """Held while a program is started: a process forked meanwhile would keep the program's pipes open."""

    def run(self, request: Request, stdin: bytes, is_unwanted: Question, tell: Tell) -> Ended:
        """Run a program. Return a line of JSON on how it ended, then its stdout and stderr; and what cut it short.

        `tell` receives output as it comes. The program is ended once `is_unwanted` says that the host does not need it.
        """
        with SignalHandlers() as handlers:
            told, stray = self._run(request, stdin, is_unwanted, tell, handlers)
            try:
                handlers.call()
            except BaseException as raised:
                stray = stray or raised
        return told, stray

    def _run(
        self, request: Request, stdin: bytes, is_unwanted: Question, tell: Tell, handlers: SignalHandlers
    ) -> Ended:
        read_only = request.get("read_only", "")
        scratch = ""
        try:
            if read_only:
                from ..kernel.landlock import scratch_in

                scratch = scratch_in(self._kept.get("TMPDIR", "/tmp"), self._root)
            program = _Program(self._start(request, stdin, scratch), stdin, request["limit"], tell)
        except Exception as error:  # such as no such file, no more processes, a NUL in the name
            words = getattr(error, "strerror", None) or str(error)
            what = getattr(error, "filename", None) or request["argv"][0]
            is_unbound = type(error).__name__ == "NotBound"
            return encode_failure(f"{what}: {words}", read_only="impossible" if is_unbound else ""), None
        status, stray = "error", None

        def is_over() -> bool:
            handlers.call()
            return is_unwanted()

        try:
            status = program.follow(self._channel.fd, is_over, monotonic() + request["timeout_s"])
        except BaseException as raised:  # a timer or a signal handler of the program in the cells
            stray = raised
            program.err += f"it was cut short: {type(stray).__name__}\n".encode()
        finally:
            program.end(whole=status != "ended")
        if status == "ended":
            status = "ok" if program.code == 0 else "error"
        out, err = bytes(program.out), bytes(program.err)
        bound = ""
        if read_only:
            from ..kernel.landlock import was_refused

            refused = status == "error" and was_refused(
                program.code, out, err, os.path.join(self._root, request["workdir"])
            )
            bound = "refused" if refused else "kept"
            with suppress(OSError):  # not empty, or the session's own folder
                os.rmdir(scratch)
        told = _encode_result(status, program.code, out, err, dropped=program.dropped, pid=program.pid, read_only=bound)
        return told, stray

    def _start(self, request: Request, stdin: bytes, scratch: str) -> Popen[bytes]:
        """Start the program; it may only read if there is a scratch folder."""
        from subprocess import DEVNULL, PIPE, Popen

        env = None if request["env"] is None else {**self._kept, **request["env"]}
        if scratch:
            env = {**(os.environ if env is None else env), "TMPDIR": scratch}

        def start() -> Popen[bytes]:
            return Popen(
                request["argv"],
                bufsize=0,
                cwd=os.path.join(self._root, request["workdir"]),
                env=env,
                stdin=PIPE if stdin else DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                process_group=request["group"],
            )

        with self.starting:
            if not scratch:
                return start()
            from ..kernel.landlock import start_read_only

            return start_read_only(start, bytes.fromhex(request["read_only"]), scratch)


def encode_failure(why: str, *, read_only: str = "") -> bytes:
    """Encode the result of a program that did not run."""
    words = f"{why}\n".encode("utf-8", "backslashreplace")
    return _encode_result("error", None, b"", words, read_only=read_only)


def _encode_result(
    status: str, code: int | None, out: bytes, err: bytes, *, dropped: int = 0, pid: int = 0, read_only: str = ""
) -> bytes:
    head = {"status": status, "code": code, "out": len(out), "err": len(err), "dropped": dropped, "pid": pid}
    return b"".join([dumps({**head, "read_only": read_only}).encode(), b"\n", out, err])


class _Program:
    def __init__(self, process: Popen[bytes], stdin: bytes, limit: int, tell: Tell) -> None:
        self.pid = process.pid
        self.code: int | None = None
        """The exit code; None if it was killed and not seen to end, or another thread has waited for it."""
        self.out, self.err = bytearray(), bytearray()
        self.dropped = 0
        self._process = process
        self._tell = tell
        self._limit = limit
        self._stdin = memoryview(stdin)
        self._files = [file for name in ("stdin", "stdout", "stderr") if (file := getattr(self._process, name))]
        self._kept = {self._files[-2].fileno(): self.out, self._files[-1].fileno(): self.err}
        for file in self._files:
            os.set_blocking(file.fileno(), False)

    def follow(self, channel: int, is_unwanted: Question, until: float) -> str:
        """Serve the program until it has `ended`, its time is over (`timeout`), or it is no longer wanted (`error`)."""
        poll = select.poll()
        for fd in self._kept:
            poll.register(fd, select.POLLIN)
        if self._stdin:
            poll.register(self._files[0].fileno(), select.POLLOUT)
        poll.register(channel, select.POLLIN)
        pidfd = _pidfd(self.pid)
        tick_s = LOOK_S if pidfd is None else TICK_S
        try:
            if pidfd is not None:
                poll.register(pidfd, select.POLLIN)
            while not is_unwanted():
                left = until - monotonic()
                if left <= 0:
                    return "timeout"
                ready = poll.poll(min(left, tick_s) * 1000)
                for fd, _ in ready:
                    self._serve(poll, fd)
                if (pidfd is None or any(fd == pidfd for fd, _ in ready)) and self._is_reaped():
                    return "ended"
            return "error"
        finally:
            if pidfd is not None:
                _close(pidfd)

    def end(self, *, whole: bool) -> None:
        """Read the rest of the output. With `whole`, kill the process group first."""
        if whole:
            self._tell = None  # its receiver may be gone
            with suppress(OSError):
                _killpg(self.pid, signal.SIGKILL)
            until = monotonic() + REAP_S
            while not self._is_reaped() and monotonic() < until:
                select.select((), (), (), LOOK_S)
        for fd in self._kept:
            for _ in range(LAST_READS):
                if not self._take(fd):
                    break
        self._process.returncode = 0 if self.code is None else self.code  # or `subprocess` would wait for it again
        for file in self._files:
            file.close()

    def _serve(self, poll: select.poll, fd: int) -> None:
        if fd in self._kept:
            if self._take(fd) is False:
                poll.unregister(fd)
        elif self._stdin and fd == self._files[0].fileno():
            try:
                self._stdin = self._stdin[_write(fd, self._stdin[:READ_BYTES]) :]
            except BlockingIOError:
                return
            except OSError:  # the program stopped reading
                self._stdin = self._stdin[:0]
            if not self._stdin:
                poll.unregister(fd)
                self._files[0].close()

    def _take(self, fd: int) -> bool | None:
        """Read some output. Returns False at its end, None if there is nothing now."""
        try:
            data = _read(fd, READ_BYTES)
        except BlockingIOError:
            return None
        kept = self._kept[fd]
        if data and self._tell is not None:
            self._tell("stdout" if kept is self.out else "stderr", data)
        room = self._limit - len(kept)
        kept += data[:room]
        self.dropped += max(0, len(data) - room)
        return bool(data)

    def _is_reaped(self) -> bool:
        try:
            pid, status = _waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # a thread of a cell waits for any child, or SIGCHLD is ignored
            return True
        if pid == 0:
            return False
        self.code = os.waitstatus_to_exitcode(status)
        return True


def _pidfd(pid: int) -> int | None:
    with suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    return None
