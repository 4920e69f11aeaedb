"""The process that talks to one database: started by the host, asked over a pipe, ended with the host's end of it.

A process of its own, because a driver blocks, may crash or run out of memory on what a server sends, and is only surely
stopped by ending it. It holds the password; it has nothing else.
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

from pinfold.tools.sql.sources import Asked, Source, Told
from pinfold.tools.sql.statements import DatabaseFault, Refused

if TYPE_CHECKING:
    from pinfold.tools.sql.engines import Engine

IDLE_S = 60
"""After which it ends by itself."""
_MEMORY = 1 << 30
"""Beyond what the results may take, several times over while they are put together."""
_GRACE_S = 1.5
_MISSING = "reading {} needs {}, which is not installed; the user must: pinfold extras add sql"
_FULL = "the rows take more memory than there is for them; select fewer or shorter ones"


class _Open:
    """The connection of the request before, if it can be used again."""

    def __init__(self) -> None:
        self._source: Source | None = None
        self._engine: Engine | None = None

    def engine(self, source: Source) -> Engine:
        """Raises Refused, DatabaseFault, ImportError."""
        engine, self._engine = self._engine, None
        if engine is not None and self._source == source and engine.is_as_new():
            return engine
        if engine is not None:
            engine.close()
        from pinfold.tools.sql.engines import open_engine

        return open_engine(source)

    def put_back(self, source: Source, engine: Engine) -> None:
        if source.kind == "postgresql":
            self._source, self._engine = source, engine
        else:
            engine.close()


class _Work:
    """One request, in a thread beside the one that listens."""

    def __init__(self, asked: Asked, held: _Open, shelf: int) -> None:
        self._asked = asked
        self._held = held
        self._shelf = shelf
        self._engine: Engine | None = None
        self.told = Told(refused="it was not done")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.done_r, self._done_w = os.pipe()
        self._thread.start()

    def _run(self) -> None:
        try:
            self.told = self._execute()
        except ImportError as error:
            self.told = Told(refused=_MISSING.format(self._asked.source.kind, error.name))
        except (Refused, DatabaseFault) as error:
            self.told = Told(refused=str(error))
        except Exception as error:  # noqa: BLE001 - whatever a driver raises is told, not a reason to be silent
            said = str(error).lower()
            is_full = isinstance(error, MemoryError) or "memory" in said or "alloc" in said
            self.told = Told(refused=_FULL if is_full else f"{type(error).__name__}: {error}")
        finally:
            os.write(self._done_w, b"!")

    def _execute(self) -> Told:
        asked = self._asked
        self._engine = engine = self._held.engine(asked.source)
        from pinfold.tools.sql.engines import run_request

        try:
            return run_request(engine, asked.source, asked.sql, asked.params, self._shelf)
        finally:
            self._held.put_back(asked.source, engine)

    def cancel(self) -> None:
        if self._engine:
            self._engine.cancel()
        self._thread.join(_GRACE_S)

    def close(self) -> None:
        self._thread.join()
        os.close(self.done_r)
        os.close(self._done_w)


def main() -> None:
    """Ends when the host's end of the pipe is closed. Its argument is a file that the host holds as well, for tables."""
    shelf, held = int(sys.argv[1]), _Open()
    # What a driver prints must not be taken for an answer.
    speaking = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    while select.select([0], [], [], IDLE_S)[0] and (message := _read()):
        asked = msgspec.msgpack.decode(message, type=Asked)
        _limit_memory(asked.source)
        work = _Work(asked, held, shelf)
        if 0 in select.select([0, work.done_r], [], [])[0]:
            # Nothing is said while a request is under way but that it is given up.
            work.cancel()
            os._exit(0)
        work.close()
        _write(speaking, msgspec.msgpack.encode(work.told))


def _read() -> bytes:
    """The next message; empty when there is none any more."""
    head = _exactly(4)
    return _exactly(int.from_bytes(head, "big")) if len(head) == 4 else b""


def _exactly(count: int) -> bytes:
    data = b""
    while len(data) < count and (more := os.read(0, count - len(data))):
        data += more
    return data


def _write(fd: int, message: bytes) -> None:
    data = len(message).to_bytes(4, "big") + message
    while data:
        data = data[os.write(fd, data) :]


def _limit_memory(source: Source) -> None:
    with suppress(OSError, ValueError):
        most = _MEMORY + 6 * source.max_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


if __name__ == "__main__":
    main()
