"""The process that talks to one database: started by the host, sent requests over a pipe, ended by closing that pipe.

It is a separate process because a driver blocks, and may crash or run out of memory on a server's data; only ending the
process reliably stops it. It holds the database's password and no other secret.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pinfold.tools.sql.sources import Source, WorkerReply, WorkerRequest
from pinfold.tools.sql.statements import DatabaseFault, Refused

if TYPE_CHECKING:
    from pinfold.tools.sql.engines import Engine

IDLE_S = 60
"""Idle time after which it ends by itself."""
_MEMORY = 1 << 30
"""Memory in addition to that for results, which are held several times over while a table is built."""
_GRACE_S = 1.5
_MISSING = "reading {} needs {}, which is not installed; the user must: pinfold extras add sql"
_FULL = "the rows take more memory than there is for them; select fewer or shorter ones"


class _Worker:
    """Runs each request in a thread while the main thread listens. Keeps the connection for the next if possible."""

    def __init__(self, shared_file: int) -> None:
        self._shared_file = shared_file
        self._source: Source | None = None
        self._engine: Engine | None = None
        self._thread = threading.Thread()
        self.reply = WorkerReply()
        self.done, self._done_in = os.pipe()

    def start(self, request: WorkerRequest) -> None:
        self._thread = threading.Thread(target=self._run, args=(request,), daemon=True)
        self._thread.start()

    def _run(self, request: WorkerRequest) -> None:
        try:
            self.reply = self._execute(request)
        except ImportError as error:
            self.reply = WorkerReply(refused=_MISSING.format(request.source.kind, error.name))
        except (Refused, DatabaseFault) as error:
            self.reply = WorkerReply(refused=str(error))
        except Exception as error:  # noqa: BLE001 - drivers raise anything; it is reported
            said = str(error).lower()
            is_full = isinstance(error, MemoryError) or "memory" in said or "alloc" in said
            self.reply = WorkerReply(refused=_FULL if is_full else f"{type(error).__name__}: {error}")
        finally:
            os.write(self._done_in, b"!")

    def _execute(self, request: WorkerRequest) -> WorkerReply:
        from pinfold.tools.sql.engines import open_engine, run_request

        source = request.source
        if self._engine is not None and not (self._source == source and self._engine.is_as_new()):
            self._close_engine()
        if self._engine is None:
            self._source, self._engine = source, open_engine(source)
        try:
            return run_request(self._engine, source, request.sql, request.params, self._shared_file)
        finally:
            if source.kind != "postgresql":
                self._close_engine()

    def _close_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def cancel(self) -> None:
        if self._engine:
            self._engine.cancel()
        self._thread.join(_GRACE_S)

    def finish(self) -> WorkerReply:
        os.read(self.done, 1)
        self._thread.join()
        return self.reply


def main() -> None:
    """Serve requests until the host closes the pipe. The argument is a descriptor of the file shared with the host, in
    which tables are passed."""
    worker = _Worker(int(sys.argv[1]))
    # Redirect stdout, so that a driver's output is not taken for a reply.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    # The host sends nothing before it has the reply, so the buffer is empty whenever `select` waits.
    while select.select([0], [], [], IDLE_S)[0] and (head := sys.stdin.buffer.read(4)):
        request = msgspec.msgpack.decode(sys.stdin.buffer.read(int.from_bytes(head, "big")), type=WorkerRequest)
        with suppress(OSError, ValueError):
            most = _MEMORY + 6 * request.source.max_bytes
            resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        worker.start(request)
        if 0 in select.select([0, worker.done], [], [])[0]:
            # The host has closed the pipe during a request: cancel the request.
            worker.cancel()
            os._exit(0)
        message = msgspec.msgpack.encode(worker.finish())
        replies.write(len(message).to_bytes(4, "big") + message)
        replies.flush()


if __name__ == "__main__":
    main()
