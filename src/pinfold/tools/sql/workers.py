"""The host's side of the SQL workers: a few processes that talk to databases, kept for the whole session."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec.structs import replace

from pinfold.events import Json
from pinfold.text import without_known
from pinfold.tools.results import BadCall
from pinfold.tools.sql.sources import Source, WorkerReply, WorkerRequest

SIDE_BY_SIDE = 4
"""Maximum number of concurrent statements; more wait."""
GRACE_S = 20.0
"""Extra time for starting, connecting and building the table, beyond a statement's own limit."""
_ENDING_S = 3.0
"""Time for the process to cancel its query on the server before it is killed."""
_LONGEST = 64 << 20
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead)
"""Errors raised if the process has ended."""
_NEEDED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
_FAMILIES = ("PG", "LC_", "KRB5")


@dataclass(eq=False, kw_only=True)
class _Worker:
    process: anyio.abc.Process
    shared_file: int
    """Descriptor of a file open in both processes, in which tables are passed."""
    replies: BufferedByteReceiveStream

    async def ask(self, request: WorkerRequest) -> WorkerReply:
        """Send a request and return the reply. Raises the errors in _GONE."""
        assert self.process.stdin is not None
        message = msgspec.msgpack.encode(request)
        await self.process.stdin.send(len(message).to_bytes(4, "big") + message)
        size = int.from_bytes(await self.replies.receive_exactly(4), "big")
        if size > _LONGEST:
            raise anyio.IncompleteRead
        reply = msgspec.msgpack.decode(await self.replies.receive_exactly(size), type=WorkerReply)
        if not reply.size:
            return reply
        return replace(reply, table=await anyio.to_thread.run_sync(self._read_table, reply.size))

    def _read_table(self, size: int) -> bytes:
        """Read the table from the shared file, and empty the file."""
        with os.fdopen(os.dup(self.shared_file), "rb") as file:
            file.seek(0)
            data = file.read(size)
        os.ftruncate(self.shared_file, 0)
        return data

    async def end(self) -> int:
        """End the process and return its exit code. It first cancels its query on the server, if there is time."""
        assert self.process.stdin is not None
        code = 0
        with anyio.CancelScope(shield=True):
            await self.process.stdin.aclose()
            with anyio.move_on_after(_ENDING_S):
                code = await self.process.wait()
            await self.process.aclose()  # kills it if it is still running
        os.close(self.shared_file)
        return code


class Workers:
    def __init__(self) -> None:
        self._idle: dict[str, list[_Worker]] = {}
        self._limit = anyio.CapacityLimiter(SIDE_BY_SIDE)

    async def ask(self, source: Source, sql: str | None, params: Json = None) -> WorkerReply:
        """Run a statement, or list the tables if `sql` is None. Raises BadCall with a message for the model.

        Cancelling the call also cancels the query on the server.
        """
        async with self._limit:
            worker = self._take_worker(source) or await _start_worker()
            try:
                with anyio.fail_after(source.timeout_s + GRACE_S):
                    reply = await worker.ask(WorkerRequest(source=source, sql=sql, params=params))
            except _GONE:
                code = await worker.end()
                why = "it ran out of memory, or the driver failed" if code < 0 else f"it ended with {code}"
                words = f"the process that reads the database ended before it answered: {why}; ask for less"
                raise BadCall(words) from None
            except TimeoutError:
                await worker.end()
                words = f"{source.name} did not answer in {source.timeout_s:g} s; ask for less, or aggregate in SQL"
                raise BadCall(words) from None
            except BaseException:
                await worker.end()
                raise
            self._idle.setdefault(source.name, []).append(worker)
        if reply.refused:
            raise BadCall(without_known(reply.refused, filter(None, [source.address.password])))
        return reply

    def _take_worker(self, source: Source) -> _Worker | None:
        idle = self._idle.get(source.name, [])
        while idle:
            worker = idle.pop()
            if worker.process.returncode is None:
                return worker
            os.close(worker.shared_file)
        return None

    @property
    def idle(self) -> tuple[int, ...]:
        """Process ids of the idle workers."""
        return tuple(worker.process.pid for workers in self._idle.values() for worker in workers)

    async def close(self) -> None:
        for workers in self._idle.values():
            while workers:
                await workers.pop().end()


async def _start_worker() -> _Worker:
    if hasattr(os, "memfd_create"):
        shared_file = os.memfd_create("pinfold-table")
    else:
        with tempfile.TemporaryFile() as file:
            shared_file = os.dup(file.fileno())
    with ExitStack() as on_failure:
        on_failure.callback(os.close, shared_file)
        # `-P`: no modules are imported from the current folder.
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", "pinfold.tools.sql.worker", str(shared_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=_environment(os.environ),
            pass_fds=(shared_file,),
            start_new_session=True,
        )
        on_failure.pop_all()
    assert process.stdout is not None
    return _Worker(process=process, shared_file=shared_file, replies=BufferedByteReceiveStream(process.stdout))


def _environment(whole: Mapping[str, str]) -> dict[str, str]:
    """Return only the variables a driver may need, so no API keys."""
    return {name: value for name, value in whole.items() if name in _NEEDED or name.startswith(_FAMILIES)}
