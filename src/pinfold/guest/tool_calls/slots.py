"""The calls of one cell: their state, their encoded arguments and their decoded answers."""

from __future__ import annotations

import os
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from json import JSONEncoder, loads

from ..frames import Channel, Header

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

_getpid = os.getpid  # bound at import: a program may replace it


class Slot:
    """One call that was made."""

    def __init__(self, tool: str, body: bytes, done: Callable[[], None] | None) -> None:
        self.tool = tool
        self.body = body
        self.number = 0
        """Set when the call is sent."""
        self.answer: tuple[Header, bytes] | None = None
        self.done = done
        """Called on the answer, in the thread that receives it; None if a thread waits for it."""
        self.wake = allocate_lock()
        """Released to wake the thread that waits."""
        self.wake.acquire()

    def awaken(self) -> None:
        """Wake the thread that waits."""
        with suppress(RuntimeError):  # it is awake
            self.wake.release()


class Cell:
    """The calls of one cell."""

    def __init__(self, request_id: object, channel: Channel) -> None:
        self.id = request_id
        self.pid = _getpid()
        self.count = self.size = self.unanswered = 0
        self.told = 0
        """Number of the last program whose end was reported to the host."""
        self.is_unwanted = False
        """True if the host no longer wants the program that runs for it now."""
        self.seat = allocate_lock()
        """Held by the thread that listens."""
        self.wait_for_input = channel.wait
        """Only for the thread that holds `seat`."""
        self.waiting: dict[int, Slot] = {}
        """Calls that were sent and not answered, by number."""
        self.queue: deque[Slot] = deque()
        self.callers: set[int] = set()
        """Threads inside a call. Code run there meanwhile, such as a finaliser, must not make one, or it deadlocks."""


class ToolError(Exception):
    """A call did not give a result; the message says why."""

    __module__ = "builtins"  # so that a traceback shows the plain name


class ToolRefused(ToolError):
    """The call was not run: policy or the user denied it, or it could not be requested."""

    __module__ = "builtins"


class ToolFailed(ToolError):
    """The call was run and failed."""

    __module__ = "builtins"


def _plain(value: object) -> object:
    """Convert common values that JSON has no form for."""
    if isinstance(value, bytes | bytearray):
        from base64 import b64encode

        return b64encode(value).decode()
    for name in ("__fspath__", "isoformat", "tolist"):  # paths, times, values of numpy
        as_plain = getattr(value, name, None)
        if as_plain is not None and not isinstance(value, type):
            return as_plain()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_encode = JSONEncoder(allow_nan=False, default=_plain).encode


def encode_args(args: dict[str, object]) -> bytes:
    return _encode(args).encode()


def decode_answer(header: Header, body: bytes) -> Any:
    """Return the result of a call, or raise its error."""
    beside: Any = header.get("beside")
    if beside is None:
        told = loads(body.decode())
        if header["ok"]:
            return told
        raise (ToolRefused if told["refused"] else ToolFailed)(told["reason"])
    at = int(str(header["json"]))
    value = loads(body[:at])
    for path, kind, size in beside:
        data = body[at : at + size]
        at += size
        value = _place_at(value, path, _table(data) if kind == "arrow" else data)
    return value


def _place_at(value: Any, path: list[Any], item: object) -> Any:
    if not path:
        return item
    inside = value
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = item
    return value


def _table(data: bytes) -> object:
    from importlib import import_module

    try:
        ipc: Any = import_module("pyarrow.ipc")
    except ImportError:
        raise ToolFailed("the result is a table, and pyarrow is not installed here") from None
    return ipc.open_stream(data).read_all()
