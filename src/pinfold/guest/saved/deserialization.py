"""Makes variables again, in a new process, from what `serialization` wrote. One that cannot be made is named, and the rest go on."""

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
"""Code that catches everything is told again."""

# Bound now: a program may replace these names in their modules.
_signal, _setitimer, _REAL, _ALARM = signal.signal, signal.setitimer, signal.ITIMER_REAL, signal.SIGALRM


class OutOfTime(BaseException):
    """Not an Exception: the program's own handlers are not to take it for theirs."""


class TimeLimit:
    """Between `with` and its end SIGALRM is ours; what was there before comes back."""

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
        """Raises OutOfTime when it takes too long in Python; nothing ends a call that never returns to it."""
        try:
            self._running = True
            _setitimer(_REAL, self._seconds, AGAIN_S)
            try:
                return work()
            finally:
                self._running = False
        finally:
            # A second time, because the alarm may have cut in between the first and here.
            self._running = False
            _setitimer(_REAL, 0)

    def run_uncut(self, work: Callable[[], Any]) -> Any:
        """A step of ours within `run` that must not be cut; what follows has its time anew."""
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
"""Of the JSON that a part begins with: which bytes stored apart its stream takes."""
SECONDS = 30.0
"""For the program's own code while one part is read; a library that is imported for it counts too."""

SIZE = Struct("<Q")
MISSING = (1 << 64) - 1
"""The size of what the host does not have."""


class Entry(NamedTuple):
    """One variable as it was saved, or why it was not. `needs` and `digest` name all the bytes it takes."""

    name: str
    kind: str
    """`pickle`, `module` and `import` (by the name `of`), `alias` (the same object as `of`), `lost`."""
    digest: str = ""
    """SHA-256 of its bytes. Variables that share an object have one in common; of a package, what was imported in it."""
    needs: Sequence[str] = ()
    """Digests of the memory that is stored apart from them."""
    size: int = 0
    """With what is apart."""
    of: str = ""
    note: str = ""
    """What the user should know of a variable that is restored."""
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """For JSON."""
        fields = self._replace(needs=tuple(self.needs))._asdict()
        return {key: value for key, value in fields.items() if value or key in ("name", "kind")}


class Label(NamedTuple):
    """What became of a variable: `restored`, with what the user should know of it, or `lost`, with the reason."""

    name: str
    status: str
    reason: str = ""


class Missing(Exception):
    """Another variable is needed that is lost."""


def restore(
    namespace: dict[str, object], entries: Iterable[Entry], read: Callable[[str], Memory], *, seconds: float = SECONDS
) -> list[Label]:
    """Put what can be had of `entries`, in their order, into `namespace`; one label for each.

    `read(digest)` gives stored bytes, or raises KeyError or OSError; it is never cut short. A bytearray, a new one each
    time, becomes the memory of what is restored; all else is copied. Only what is whole is put there: a name that is
    lost keeps what it had.
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
        """What a digest gave: values by name, or why there are none."""

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
        """With what was imported inside it: `import xml.dom` binds `xml` only."""
        module = constructors.module(entry.of)
        for name in bytes(self._whole(entry.digest)).decode().split() if entry.digest else ():
            with suppress(Exception):  # the package itself is there; a cell that wants this part is told
                constructors.module(name)
        return module

    def _part(self, digest: str) -> dict[str, object] | str:
        """Several variables come from one: its failure is told to each of them."""
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
        """Its own copy, because two arrays with equal bytes are still two."""
        try:
            data: Memory = self._bound.run_uncut(lambda: self._read(digest))
        except (KeyError, OSError):
            raise Missing("its saved bytes are gone") from None
        if sha256(data).hexdigest() != digest:
            raise Missing("its saved bytes are damaged")
        return data if type(data) is bytearray else bytearray(data)


def _why_lost(error: BaseException) -> str:
    if isinstance(error, OutOfTime):
        return "making it again took too long"
    return str(error) if isinstance(error, Missing) else one_line(error)


def read_part(data: Memory, apart: Callable[[str], Memory], of_name: Lookup, namespace: Values) -> Values:
    """The values by name. What it needs that is stored apart is asked for by digest, other variables by name."""
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
        """What is only known by its name in the session must be there already, and not be what is being read."""
        if module != "__main__":
            return super().find_class(module, name)
        first, *rest = name.split(".")
        found = self._of_name(first)
        for part in rest:
            found = getattr(found, part)
        return found


def restore_session(namespace: dict[str, object], told: Mapping[str, Any], fd: int) -> list[dict[str, object]]:
    """What became of each variable. `fd` leads to the host, which has the bytes."""
    around = told["around"]
    sys.path += [it for it in around["path"] if type(it) is str and it not in sys.path]
    with suppress(OSError, ValueError):  # it is no longer there
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
