"""Runs a program for the host, between cells or while one waits for a call: bounded in time and output.

It has a process group of its own. It is a child of this process while it runs, and reaped when it ends: nothing of it is
left for `os.wait()` in a cell. The namespace of the cells is not touched.
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
"""Of output, at once; no more is told at once either."""
LAST_READS = 16
"""Once it has ended, as much as the largest pipe can hold: what it left in the background may write for ever."""
TICK_S = 0.1
"""How often to look whether it is still wanted."""
LOOK_S = 0.01
"""How often to look whether it has ended, where the kernel cannot tell."""
REAP_S = 2.0
"""For a killed program to be gone."""

# Bound now: a program may replace these names in their modules.
_waitpid, _killpg, _read, _write, _close = os.waitpid, os.killpg, os.read, os.write, os.close


class Programs:
    def __init__(self, root: str, channel: Channel) -> None:
        self._root = root
        self._channel = channel
        self._kept = {name: value for name, value in os.environ.items() if name == "TMPDIR" and value}
        """As in the beginning: where no namespace ends what a session leaves running, it is known by this."""

        self.starting = allocate_lock()
        """Held while one is started: a process forked from this one meanwhile would hold pipes open that must close."""

    def run(self, request: Request, stdin: bytes, is_unwanted: Question, tell: Tell) -> Ended:
        """A line of JSON that tells how it ended, then what it wrote to stdout and to stderr; and what cut it short.

        `tell` hears what it writes as it comes. When it `is_unwanted`, it ends; the host that speaks wants no more of it.
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
        except Exception as error:  # whatever is wrong: no such file, no more processes, a NUL in its name
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
        except BaseException as raised:  # a timer or a signal of the cells' own code
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
            with suppress(OSError):  # it holds something, or is the session's own
                os.rmdir(scratch)
        told = _encode_result(status, program.code, out, err, dropped=program.dropped, pid=program.pid, read_only=bound)
        return told, stray

    def _start(self, request: Request, stdin: bytes, scratch: str) -> Popen[bytes]:
        """Bound to reading if there is a scratch folder."""
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
    """How a program is told of that did not run."""
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
        """None: killed and not seen to end, or another thread has waited for it."""
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
        """Until it has `ended`, its time is over (`timeout`), or it is no longer wanted (`error`)."""
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
        """Take what is left of its output. `whole`: of its process group nothing may be left either."""
        if whole:
            self._tell = None  # the listener may be gone
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
            except OSError:  # it does not read on
                self._stdin = self._stdin[:0]
            if not self._stdin:
                poll.unregister(fd)
                self._files[0].close()

    def _take(self, fd: int) -> bool | None:
        """False at the end of it, None when there is nothing now."""
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
        except ChildProcessError:  # a thread of the cells' waits for any child, or SIGCHLD is ignored
            return True
        if pid == 0:
            return False
        self.code = os.waitstatus_to_exitcode(status)
        return True


def _pidfd(pid: int) -> int | None:
    with suppress(AttributeError, OSError):
        return os.pidfd_open(pid)
    return None
