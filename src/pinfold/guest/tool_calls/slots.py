"""What the calls of one cell consist of: which were made, what goes out with each, and what comes back."""

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

_getpid = os.getpid  # bound now: a program may replace it


class Slot:
    """One call that was made."""

    def __init__(self, tool: str, body: bytes, done: Callable[[], None] | None) -> None:
        self.tool = tool
        self.body = body
        self.number = 0
        """When it is sent."""
        self.answer: tuple[Header, bytes] | None = None
        self.done = done
        """Told of the answer, in whichever thread hears it; None where a thread waits."""
        self.wake = allocate_lock()
        """Held until the thread that waits is to look."""
        self.wake.acquire()

    def awaken(self) -> None:
        """The thread that waits."""
        with suppress(RuntimeError):  # it is awake
            self.wake.release()


class Cell:
    """The calls of one cell."""

    def __init__(self, request_id: object, channel: Channel) -> None:
        self.id = request_id
        self.pid = _getpid()
        self.count = self.size = self.unanswered = 0
        self.told = 0
        """Of the programs the host wanted, the last it has heard the end of."""
        self.is_unwanted = False
        """The program that runs for the host now."""
        self.seat = allocate_lock()
        """Of the thread that listens."""
        self.wait_for_input = channel.wait
        """Only for the thread that has the seat."""
        self.waiting: dict[int, Slot] = {}
        """By number; sent, and not answered."""
        self.queue: deque[Slot] = deque()
        self.callers: set[int] = set()
        """Threads that are in a call: what runs in one meanwhile, a finaliser say, must not wait for its own turn."""


class ToolError(Exception):
    """A call did not give a result; the text says why."""

    __module__ = "builtins"  # so that a traceback shows the plain name


class ToolRefused(ToolError):
    """It was not run: policy or the user said no, or it could not even be asked for."""

    __module__ = "builtins"


class ToolFailed(ToolError):
    """It was run, and failed."""

    __module__ = "builtins"


def _plain(value: object) -> object:
    """What JSON has no form for and everybody would write in the same way."""
    if isinstance(value, bytes | bytearray):
        from base64 import b64encode

        return b64encode(value).decode()
    for name in ("__fspath__", "isoformat", "tolist"):  # paths, times, and whatever numpy has
        as_plain = getattr(value, name, None)
        if as_plain is not None and not isinstance(value, type):
            return as_plain()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_encode = JSONEncoder(allow_nan=False, default=_plain).encode


def encode_args(args: dict[str, object]) -> bytes:
    return _encode(args).encode()


def decode_answer(header: Header, body: bytes) -> Any:
    """The result, or its exception."""
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
