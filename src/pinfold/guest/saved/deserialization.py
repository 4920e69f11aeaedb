"""Restores variables in a new process from what `serialization` wrote. Reports failures and restores the rest."""

from __future__ import annotations

import os
import signal
import sys
from _pickle import Unpickler as _Unpickler
from _socket import socket  # the whole of `socket` takes milliseconds to import
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from io import BytesIO
from json import loads
from struct import Struct
from typing import Any, NamedTuple, Self

from . import constructors
from .introspection import cut, one_line

AGAIN_S = 0.1
"""After a timeout the alarm repeats at this interval, for code that catches all exceptions."""

# Bound now: a program may replace these names in their modules.
_signal, _setitimer, _REAL, _ALARM = signal.signal, signal.setitimer, signal.ITIMER_REAL, signal.SIGALRM


class OutOfTime(BaseException):
    """Not an Exception, so that the program's own handlers do not catch it."""


class TimeLimit:
    """Takes SIGALRM and the real-time timer for a `with` block, and restores them afterwards."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._before: Any = None
        self._timer = (0.0, 0.0)
        self._running = False

    def __enter__(self) -> Self:
        self._before = _signal(_ALARM, self._on_alarm)
        self._timer = _setitimer(_REAL, 0)
        return self

    def __exit__(self, *_: object) -> None:
        _setitimer(_REAL, 0)
        _signal(_ALARM, self._before if self._before is not None else signal.SIG_DFL)
        _setitimer(_REAL, *self._timer)

    def run(self, work: Callable[[], Any]) -> Any:
        """Run `work`. Raises OutOfTime if it takes too long, but cannot end a C call that does not return to Python."""
        try:
            self._running = True
            _setitimer(_REAL, self._seconds, AGAIN_S)
            try:
                return work()
            finally:
                self._running = False
        finally:
            # Set again, because the alarm may have interrupted between the first time and here.
            self._running = False
            _setitimer(_REAL, 0)

    def run_uncut(self, work: Callable[[], Any]) -> Any:
        """Run a step within `run` that must not be interrupted. The time limit starts anew afterwards."""
        running, self._running = self._running, False
        try:
            return work()
        finally:
            if running:
                _setitimer(_REAL, self._seconds, AGAIN_S)
            self._running = running

    def _on_alarm(self, _signum: int, _frame: object) -> None:
        if self._running:
            raise OutOfTime


Memory = bytes | bytearray | memoryview
Values = dict[str, object]
Lookup = Callable[[str], object]

LENGTH = Struct("<I")
"""The length of the JSON header of a part, which lists the separately stored bytes that its stream needs."""
SECONDS = 30.0
"""Time limit for the program's own code while one part is read, including imports of libraries."""

SIZE = Struct("<Q")
MISSING = (1 << 64) - 1
"""The size that the host sends for bytes it does not have."""


class Entry(NamedTuple):
    """One variable as it was saved, or why it was not. `needs` and `digest` name all the bytes that it needs."""

    name: str
    kind: str
    """`pickle`, `module` or `import` (of the name `of`), `alias` (the same object as `of`), or `lost`."""
    digest: str = ""
    """SHA-256 of its bytes, which variables that share an object have in common; for a package, of its module list."""
    needs: Sequence[str] = ()
    """Digests of memory that is stored separately."""
    size: int = 0
    """All bytes, including those stored separately."""
    of: str = ""
    note: str = ""
    """What the user should know about a restored variable."""
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """Return the fields as JSON values, without empty ones."""
        fields = self._replace(needs=tuple(self.needs))._asdict()
        return {key: value for key, value in fields.items() if value or key in ("name", "kind")}


class Label(NamedTuple):
    """The outcome for a variable: `restored`, with what the user should know, or `lost`, with the reason."""

    name: str
    status: str
    reason: str = ""


class Missing(Exception):
    """Something that the variable needs is lost; the text says what."""


def restore(
    namespace: dict[str, object], entries: Iterable[Entry], read: Callable[[str], Memory], *, seconds: float = SECONDS
) -> list[Label]:
    """Restore as many `entries` as possible, in order, into `namespace`. Return one label for each.

    `read(digest)` returns stored bytes, or raises KeyError or OSError; it is never interrupted. If it returns a
    bytearray, which must be a new one each time, that becomes the memory of the restored value; other types are copied.
    Only complete values are set: a name that is lost keeps its value.
    """
    with TimeLimit(seconds) as bound:
        restoring = _Restoring(namespace, read, bound)
        return [restoring.label(entry) for entry in entries]


class _Restoring:
    def __init__(self, namespace: dict[str, object], read: Callable[[str], Memory], bound: TimeLimit) -> None:
        self._namespace = namespace
        self._read = read
        self._bound = bound
        self._made: dict[str, object] = {}
        self._parts: dict[str, dict[str, object] | str] = {}
        """By digest: the values by name, or why there are none."""

    def label(self, entry: Entry) -> Label:
        if entry.kind == "lost":
            return Label(entry.name, "lost", entry.reason)
        try:
            value = self._bound.run(lambda: self._value(entry))
        except BaseException as error:
            return Label(entry.name, "lost", _why_lost(error))
        self._made[entry.name] = value
        self._namespace[entry.name] = value
        return Label(entry.name, "restored", entry.note)

    def _value(self, entry: Entry) -> object:
        if entry.kind == "module":
            return self._module(entry)
        if entry.kind == "import":
            return constructors.find_import(entry.of)
        if entry.kind == "alias":
            return self._of_name(entry.of)
        if entry.kind != "pickle":
            raise Missing(f"it was saved in a way that this version does not know: {entry.kind!r}")
        if entry.digest not in self._parts:
            self._parts[entry.digest] = self._part(entry.digest)
        known = self._parts[entry.digest]
        if isinstance(known, str):
            raise Missing(known)
        return known[entry.name]

    def _module(self, entry: Entry) -> object:
        """Import a module and the submodules that were loaded: `import xml.dom` binds only `xml`."""
        module = constructors.module(entry.of)
        for name in bytes(self._whole(entry.digest)).decode().split() if entry.digest else ():
            with suppress(Exception):  # the package itself is there; a cell that uses this submodule gets the error
                constructors.module(name)
        return module

    def _part(self, digest: str) -> dict[str, object] | str:
        """Return the values of a part, or why it failed, which then holds for each of its variables."""
        try:
            return read_part(self._whole(digest), self._whole, self._of_name, self._namespace)
        except BaseException as error:
            return _why_lost(error)

    def _of_name(self, name: str) -> object:
        try:
            return self._made[name]
        except KeyError:
            raise Missing(f"it holds {cut(name)!r}, which is lost") from None

    def _whole(self, digest: str) -> bytearray:
        """Return the checked bytes, always a new copy, because two arrays with equal bytes are still two."""
        try:
            data: Memory = self._bound.run_uncut(lambda: self._read(digest))
        except (KeyError, OSError):
            raise Missing("its saved bytes are gone") from None
        if sha256(data).hexdigest() != digest:
            raise Missing("its saved bytes are damaged")
        return data if type(data) is bytearray else bytearray(data)


def _why_lost(error: BaseException) -> str:
    if isinstance(error, OutOfTime):
        return "restoring it took too long"
    return str(error) if isinstance(error, Missing) else one_line(error)


def read_part(data: Memory, apart: Callable[[str], Memory], of_name: Lookup, namespace: Values) -> Values:
    """Return the values by name. `apart` reads separately stored bytes by digest; `of_name` returns other variables."""
    view = memoryview(data)
    start = LENGTH.size
    end = start + LENGTH.unpack_from(view)[0]
    header = loads(bytes(view[start:end]))
    buffers = [apart(digest) for digest in header["apart"]]
    texts = [bytes(apart(digest)) for digest in header["texts"]]
    return Unpickler(view[end:], buffers, texts, of_name, namespace).load()


class Unpickler(_Unpickler):
    def __init__(
        self, stream: Memory, buffers: Sequence[Memory], texts: Sequence[bytes], of_name: Lookup, namespace: Values
    ) -> None:
        super().__init__(BytesIO(stream), buffers=buffers)
        self._texts = texts
        self._of_name = of_name
        self._namespace = namespace

    def persistent_load(self, pid: int | str | tuple[str, str]) -> Any:
        if isinstance(pid, int):
            return self._texts[pid]
        if isinstance(pid, tuple):
            return constructors.attribute(*pid)
        return self._of_name(pid) if pid else self._namespace

    def find_class(self, module: str, name: str, /) -> Any:
        """Look a name of the session up with `of_name`: it must exist already, and not be what is being read."""
        if module != "__main__":
            return super().find_class(module, name)
        first, *rest = name.split(".")
        found = self._of_name(first)
        for part in rest:
            found = getattr(found, part)
        return found


def restore_session(namespace: dict[str, object], told: Mapping[str, Any], fd: int) -> list[dict[str, object]]:
    """Restore the session's variables and return a label for each. `fd`: socket to the host, which has the bytes."""
    around = told["around"]
    sys.path += [it for it in around["path"] if type(it) is str and it not in sys.path]
    with suppress(OSError, ValueError):  # the folder no longer exists
        os.chdir(around["folder"])
    host = socket(fileno=fd)
    try:
        labels = restore(namespace, (Entry(**row) for row in told["entries"]), partial(_fetch, host))
    finally:
        host.close()
    return [label._asdict() for label in labels]


def _fetch(host: socket, digest: str) -> bytearray:
    host.sendall(digest.encode())
    (size,) = SIZE.unpack(_read_exactly(host, SIZE.size))
    if size == MISSING:
        raise KeyError(digest)
    return _read_exactly(host, size)


def _read_exactly(host: socket, size: int) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        came = host.recv_into(view[at:])
        if not came:
            raise OSError("the host has hung up")
        at += came
    return data
