"""The host's side of one live guest process. Each request has calls while it is open, and exactly one end.

While a call is open, a command can be nested in the request. All I/O is done by event-loop callbacks and never
blocks. The session decides what an end means for a cell.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pinfold.events import Json
from pinfold.sandbox.contract import SandboxUnavailable
from pinfold.sandbox.guards.ports import WorkspaceGuard
from pinfold.sandbox.session.channel import (
    ASK_STATUSES,
    ChannelBroken,
    GuestCall,
    GuestStatus,
    OnGuestCall,
    OnPiece,
    Ran,
    ReplyReader,
    frame,
)
from pinfold.sandbox.session.guest_process import Death, End, GuestProcess, ProgramEnd, how_it_died
from pinfold.sandbox.session.output import Output

HELLO = frozenset[GuestStatus]({"hello"})
RECEIVE_BYTES = 1 << 18
EXIT_S = 0.5
"""Longest time from the end of the channel to the end of the process; after that, the program closed the channel."""
EXIT_POLL_S = 0.005
"""How often to look for the exit where the kernel has no pidfd."""
END_S = 2.5
"""Time for the session's init to end the program and report it; then the whole session is ended."""
KILL_S = 5.0
"""Time for SIGKILL to take effect; a process stuck in the kernel for longer is given up."""


class Guest:
    """Owns the process, the channel and both output streams."""

    def __init__(
        self, body: GuestProcess, channel: socket.socket, stdout: Output, stderr: Output, *, greeted: bool = False
    ) -> None:
        self.body = body
        self.stdout = stdout
        self.stderr = stderr
        self.guard: WorkspaceGuard | None = None
        """Guards the workspace while this guest lives."""
        self.scratch = ""
        """A private folder on the host's disk, besides the folders of the spec."""
        self.is_tried = False
        """True for a woken copy that is still on trial: if it ends, the old guest goes on."""
        self.copies: set[int] = set()
        """Cells after which it should have left a copy. A copy said to belong to another cell is not trusted."""
        self.death: Death | None = None
        self._loop = asyncio.get_running_loop()
        self.channel = channel
        self._reader = ReplyReader()
        self._outbox: deque[memoryview] = deque()
        self._id = 0
        self._busy = False
        self._closing = False
        self._end: End | None = None
        self._takes: OnGuestCall | None = None
        self._nested: tuple[int, asyncio.Future[Ran | None]] | None = None
        """Number and result of the nested command that is awaited."""
        self._waiter: asyncio.Future[None] | None = None
        self._is_interrupted = False
        """True while a signal may still be on its way."""
        self._killed_for: str | None = None
        self._last_report: ProgramEnd | None = None
        channel.setblocking(False)
        self.listen()
        if not greeted:
            self._open(0, HELLO, 0)

    def listen(self) -> None:
        """Register with the event loop; also again after `leave`."""
        if self.stdout.fd < 0:
            self.death = self.death or Death(how="its session ended while another state of it was woken")
            self.channel.close()
            self._resolve(self.death)
            return
        self._loop.add_reader(self.channel.fileno(), self._on_channel)
        self._loop.add_reader(self.stdout.fd, lambda: self._on_output(self.stdout))
        self._loop.add_reader(self.stderr.fd, lambda: self._on_output(self.stderr))
        if self.body.fd is not None:
            self._loop.add_reader(self.body.fd, self._on_exit)
        if self.body.report_fd is not None:
            self._loop.add_reader(self.body.report_fd, self._on_report)

    def leave(self) -> None:
        """Unregister from the event loop, because another guest takes over the file descriptors."""
        channel = self.channel.fileno()
        if channel >= 0:
            self._loop.remove_writer(channel)
        for fd in (channel, self.stdout.fd, self.stderr.fd, self.body.fd, self.body.report_fd):
            if fd is not None and fd >= 0:
                self._loop.remove_reader(fd)

    def give_up_copies(self) -> None:
        """Drop the kept copies of a dead guest by ending its session, if that still lives."""
        if self.death is not None and self.death.cells:
            self.body.kill()
            self._release()

    def let_go(self) -> None:
        """Close the channel and streams after `leave`; the session goes on with others."""
        self.channel.close()
        self.stdout.close()
        self.stderr.close()

    def post(
        self,
        op: str,
        body: bytes,
        statuses: frozenset[GuestStatus],
        reply_bytes: int,
        fields: Mapping[str, str | int],
        *,
        calls: bool = False,
        on_piece: OnPiece | None = None,
    ) -> None:
        """Send a request. Await its end with `end`; with `calls`, serve its calls with `serve_calls` before that."""
        self._id = _new_id()
        self._open(self._id, statuses, reply_bytes, self._on_call if calls else None, on_piece)
        if self.death is None:
            more = {"calls": True} if calls else {}
            self._send(*frame({"id": self._id, "op": op, **more, **fields}, body))

    async def ask(self, op: str, body: bytes, reply_bytes: int, limit_s: float, **fields: str | int) -> End | None:
        """Send a request that is not a cell. Returns its end, or None if it did not end in time."""
        self.post(op, body, ASK_STATUSES, reply_bytes, fields)
        try:
            return await asyncio.wait_for(self.end(), limit_s)
        except TimeoutError:
            return None

    def give(self, fd: int) -> None:
        """Send a file descriptor to a guest that waits for it between two requests. Raises OSError."""
        socket.send_fds(self.channel, [b"\0"], [fd])

    async def end(self) -> End:
        """Wait for the end of the open request; the first is the hello. Can be awaited again after a cancellation."""
        while self._end is None:
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._end

    async def serve_calls(self, take: OnGuestCall) -> None:
        """Pass each call and each dropped call to `take`, until the request ends or `stop_serving_calls`."""
        self._takes = take
        try:
            while self._end is None and self._takes is not None:
                self._waiter = self._loop.create_future()
                await self._waiter
        finally:  # otherwise a cancelled caller would get the first calls of the next request
            self._takes = None

    def stop_serving_calls(self) -> None:
        """End `serve_calls` before the request has ended."""
        self._takes = None
        self._wake()

    def answer(self, call: GuestCall, header: Mapping[str, Json], parts: Sequence[bytes]) -> None:
        """Answer a call of the open request. An answer that comes too late is dropped."""
        self._reader.open_calls -= 1
        if self._busy and self._end is None and self.death is None:
            self._send(*frame({"id": self._id, "op": "answer", "call": call.number, **header}, *parts))

    async def run_nested(
        self, call: int, command: bytes, head: int, limit_s: float, on_piece: OnPiece | None
    ) -> Ran | None:
        """Let the program that waits for this call run a command, and return how it ended. One command at a time.

        Returns None if no result came in time or the request ended first. A later result is dropped.
        """
        if not self._busy or self.death is not None:
            return None
        number = self._reader.expect_command(self._on_ran, on_piece)
        words: dict[str, object] = {"id": self._id, "op": "nested", "call": call, "command": number}
        request_id, ran = self._id, self._loop.create_future()
        self._nested = number, ran
        self._send(*frame({**words, "head": head, "tell": on_piece is not None}, command))
        try:
            return await asyncio.wait_for(ran, limit_s)
        except TimeoutError:
            return None
        finally:
            self._nested = None
            if ran.cancelled() and self._busy and self._id == request_id and self.death is None:
                self._send(*frame({"id": request_id, "op": "stop", "command": number}))

    def request_branch(self, state: int) -> None:
        """Tell the program, which waits for a call, to leave a copy of itself as this state."""
        if self._busy and self.death is None:
            self._send(*frame({"id": self._id, "op": "branch", "state": state}))

    def interrupt(self) -> None:
        """Send the equivalent of Ctrl-C to the guest and its foreground processes."""
        if not self._busy or self.death is not None:
            return
        # The frame first: a cell that has not started yet looks for it, so frame and signal cannot both be missed.
        self._send(*frame({"id": self._id, "op": "interrupt"}))
        self.body.interrupt()
        self._is_interrupted = True

    async def settle_interrupt(self) -> None:
        """Wait until a sent interrupt has arrived; otherwise it would end a program that starts now."""
        if self._is_interrupted and self.death is None:
            self._is_interrupted = False
            with suppress(SandboxUnavailable):  # the guest is ending, and `_on_exit` will report how
                await self.body.wait_for_interrupt()

    def kill(self, why: str) -> None:
        if self.death is None and self._killed_for is None:
            self._killed_for = why
            if self._closing:
                self.body.kill()
            else:
                self.body.end_program()
                self._loop.call_later(END_S, lambda: None if self.death else self.body.kill())
            self._loop.call_later(KILL_S, self._give_up)

    def kill_busy(self, why: str) -> None:
        """Kill it, unless the open request has ended, perhaps in this same iteration of the event loop."""
        if self._busy:
            self.kill(why)

    async def kill_and_wait(self, why: str) -> None:
        """Kill it and wait for its death."""
        self.hang_up()
        self.kill(why)
        await self.end()
        self.give_up_copies()

    async def stop_program(self, why: str) -> Death:
        """After a reply: end the program and all it started, and wait for their death. Copies stay."""
        self._busy, self._end = True, self.death
        self.kill(why)
        await self.end()
        return self.death or Death(how=why, ours=True)

    def hang_up(self) -> None:
        """Send the last request: the guest closes the program's files and exits. Its end is a Death."""
        self._busy = self._closing = True
        self._end = self.death
        if self.death is None:
            self.body.prepare_close()
            with suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    def drain(self) -> None:
        if self.stdout.fd >= 0:
            self.stdout.drain()
            self.stderr.drain()

    def _open(
        self,
        request_id: int,
        statuses: frozenset[GuestStatus],
        reply_bytes: int,
        on_call: OnGuestCall | None = None,
        on_piece: OnPiece | None = None,
    ) -> None:
        self._end = self.death
        self._busy = True
        self._reader.expect(request_id, statuses, reply_bytes, on_call, on_piece)

    def _resolve(self, end: End) -> None:
        if not self._busy:
            return
        self._busy = False
        self._end = end
        self._on_ran(None, None)
        self._wake()

    def _on_ran(self, number: int | None, ran: Ran | None) -> None:
        """Resolve the awaited nested command if it has this number; None means the whole request ended."""
        if self._nested is not None and number in (None, self._nested[0]) and not self._nested[1].done():
            self._nested[1].set_result(ran)

    def _on_call(self, call: GuestCall | int) -> None:
        if self._takes is not None:
            self._takes(call)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _send(self, *parts: bytes) -> None:
        is_idle = not self._outbox
        self._outbox += (memoryview(part) for part in parts if part)
        if is_idle:
            self._flush()
            if self._outbox:
                self._loop.add_writer(self.channel.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        if not self._outbox:
            self._loop.remove_writer(self.channel.fileno())

    def _flush(self) -> None:
        try:
            sent = self.channel.send(self._outbox[0])
            if left := self._outbox.popleft()[sent:]:
                self._outbox.appendleft(left)
        except BlockingIOError:
            return
        except OSError:  # the guest is gone; `_on_exit` reports how
            self._outbox.clear()

    def _on_channel(self) -> None:
        data = self._receive()
        if data == b"":
            self._loop.remove_reader(self.channel.fileno())
            if self.is_tried:
                self.death = Death(how="it has ended")
                self.leave()
                self._resolve(self.death)
                return
            if self.body.fd is None:
                self._poll_exit()
            self._loop.call_later(EXIT_S, self.kill, "its channel was broken: the program closed it")
            return
        try:
            if data is not None:
                self._accept(data)
        except ChannelBroken as broken:
            self._loop.remove_reader(self.channel.fileno())
            self.kill(f"its channel was broken: {broken}")

    def _receive(self) -> bytes | None:
        """Return what has arrived; empty at the end of the channel, None if there is nothing now."""
        try:
            return self.channel.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _accept(self, data: bytes) -> None:
        reply = self._reader.feed(data)
        # A guest that is being killed ends with a Death, even if a reply still arrives.
        if reply is not None and self._killed_for is None:
            self.drain()
            self._resolve(reply)

    def _on_output(self, output: Output) -> None:
        if not output.read():
            self._loop.remove_reader(output.fd)

    def _poll_exit(self) -> None:
        if self.body.poll() is None:
            self._loop.call_later(EXIT_POLL_S, self._poll_exit)
        else:
            self._on_exit()

    def _on_report(self) -> None:
        report = self.body.report()
        if report is None:
            if self.body.report_fd is not None:
                self._loop.remove_reader(self.body.report_fd)  # the session ends, and `_on_exit` reports how
        elif report.cells:
            self._record_death(report.code, report.out_of_memory, report.cells)
        else:
            self._last_report = report

    def _on_exit(self) -> None:
        last = self._last_report
        code = last.code if last else self.body.reap()
        self._record_death(code, last.out_of_memory if last else self.body.out_of_memory)

    def _record_death(self, code: int, out_of_memory: bool, cells: tuple[int, ...] = ()) -> None:
        # A reply sent before the death still counts, unless the guest was killed.
        with suppress(ChannelBroken):
            while self._busy and (data := self._receive()):
                self._accept(data)
        self.drain()
        how = self._killed_for or ("it ran out of memory" if out_of_memory else how_it_died(code))
        self._bury(Death(how=how, ours=self._killed_for is not None, cells=cells))

    def _give_up(self) -> None:
        if self.death is None:
            self._bury(Death(how=f"{self._killed_for}; it did not die of SIGKILL within {KILL_S:g} s", ours=True))

    def _bury(self, death: Death) -> None:
        self.death = death
        self.leave()
        self.channel.close()
        if not death.cells:
            self._release()
        self._resolve(death)

    def _release(self) -> None:
        self.stdout.close()
        self.stderr.close()
        self.body.release()


def _new_id() -> int:
    """Return an unguessable number, so that no reply can be written before its request is sent."""
    return 1 + (int.from_bytes(os.urandom(8), "little") >> 2)
