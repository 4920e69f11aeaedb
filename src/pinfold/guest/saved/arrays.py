"""Reducers for arrays, frames and arrow values: views stay views of the same memory. Imports none of the libraries."""

from __future__ import annotations

import os
import sys
from _pickle import PickleBuffer
from gc import get_referents
from typing import TYPE_CHECKING, Any

from . import constructors
from .introspection import Unsaved, kind_of, module_of, name_of

if TYPE_CHECKING:
    from .pickler import Pickler

SPARE_BYTES = 1 << 16
"""An arrow value is copied if its buffers exceed twice its own data plus this: then it is part of a larger value."""

HOLDERS = ("bytearray", "array", "mmap")
"""Types of mutable memory on which arrays can be built."""
FRAME, VIEW = "frame", "view"
"""Stand for arrays saved inside a frame, or as a view of shared memory. Other arrays are represented by their id."""


class Memory:
    """Which arrays use the same memory, in all parts of one save. Objects are identified by their id."""

    def __init__(self) -> None:
        self.shared: set[int] = set()
        """Roots whose arrays are saved as views."""
        self.frames: dict[int, object] = {}
        """Arrays inside frames, kept alive. A frame never shows changes of another, so they share nothing."""
        self.holders: set[int] = set()
        """Objects that are not arrays and own the memory of arrays, which keep them alive."""
        self.hidden: dict[int, int] = {}
        """Roots that overlap others in a way numpy does not show, each with the first root of its group."""
        self._ranges: dict[int, tuple[int, int]] = {}
        self._views: dict[int, dict[int, object]] = {}
        """For each root: the arrays that can be views of it."""

    def add(self, root: Any, value: Any, told: dict[int, set[int | str]]) -> None:
        """Record in `told` whose memory the array uses, and as what it is saved."""
        thing: int | str = FRAME if id(value) in self.frames else id(value)
        if thing is not FRAME and _is_plain(root) and _can_view(value):
            self._views.setdefault(id(root), {})[id(value)] = value
            thing = VIEW
        told.setdefault(id(root), set()).add(thing)
        if root.size:
            steps = [(size - 1) * stride for size, stride in zip(root.shape, root.strides, strict=True)]
            low = _address(root) + sum(step for step in steps if step < 0)
            high = _address(root) + sum(step for step in steps if step > 0) + root.itemsize
            self._ranges[id(root)] = (low, high)
        holder = root.base.obj if type(root.base) is memoryview else root.base
        if name_of(kind_of(holder)) in HOLDERS:
            self.holders.add(id(holder))
            told.setdefault(id(holder), set()).add(id(root))

    def share(self) -> None:
        """Have arrays with common memory saved as views from now on."""
        self.shared.update(root for root, arrays in self._views.items() if len(arrays) > 1)
        first, end = 0, -1
        for key, (start, stop) in sorted(self._ranges.items(), key=lambda item: item[1]):
            if start < end:
                self.hidden[key] = self.hidden[first] = first
            else:
                first = key
            end = max(end, stop)


def root_of(value: Any) -> Any:
    """Return the array whose memory this one uses."""
    array = sys.modules["numpy"].ndarray
    while True:
        base = value.base
        if name_of(kind_of(base)) == "DummyArray":  # made by `as_strided`
            base = base.base
        elif type(base) is memoryview:
            base = base.obj
        if not isinstance(base, array):
            return value
        value = base


def _is_plain(root: Any) -> bool:
    return type(root) is sys.modules["numpy"].ndarray and root.flags.forc and not root.dtype.hasobject


def _can_view(value: object) -> bool:
    numpy = sys.modules["numpy"]
    return type(value) in (numpy.ndarray, numpy.recarray, numpy.matrix)


def array(pickler: Pickler, value: Any) -> object:
    numpy = sys.modules["numpy"]
    root = root_of(value)
    if id(value) not in pickler.graph.memory.frames:
        pickler.seen[id(value)] = value
    if isinstance(root, numpy.memmap):
        return _file_array(value, root)
    memory = pickler.graph.memory
    memory.add(root, value, pickler.found.memory)
    if root is not value and value.size and _can_view(value) and _is_plain(root):
        is_wider = value.nbytes > root.nbytes  # it repeats the same memory
        if is_wider or (id(root) in memory.shared and id(value) not in memory.frames):
            return _view(value, root)
    if not value.flags.writeable and not value.flags.forc:
        return constructors.read_only_array, (value.copy(),)
    return NotImplemented


def dtype(pickler: Pickler, value: Any) -> object:
    """Leave it to pickle, but ignore the shared dict of field names, which users do not share on purpose."""
    if value.fields is not None:
        pickler.graph.ignored.update(map(id, get_referents(value.fields)))
    return NotImplemented


def _view(value: Any, root: Any) -> object:
    offset = _address(value) - _address(root)
    layout = (offset, value.shape, value.strides, value.dtype, value.flags.writeable, kind_of(value))
    return constructors.array_view, (root, layout)


def _address(value: Any) -> int:
    return value.__array_interface__["data"][0]


def _file_array(value: Any, root: Any) -> object:
    numpy = sys.modules["numpy"]
    if value is not root:
        if type(value) in (numpy.ndarray, numpy.memmap):
            return _view(value, root)
        raise Unsaved("a part of an array that lives in a file")
    if root.mode == "c" or root.filename is None:
        raise Unsaved("an array over a file whose changes are kept from it")
    root.flush()
    mode = "r" if root.mode == "r" else "r+"
    order = "C" if root.flags.c_contiguous else "F"
    path: str = os.path.abspath(str(root.filename))
    return constructors.file_array, (path, mode, (root.dtype, root.shape, root.offset, order))


def pandas_value(pickler: Pickler, value: Any) -> object:
    """Leave it to pickle, but give each frame its own arrays.

    Frames that use the same memory know of each other and copy before they write; restored frames would not.
    """
    memory, found = pickler.graph.memory, pickler.found
    if id(value) in memory.frames:
        return NotImplemented
    memory.frames.update(_inside(value))
    if hasattr(value, "_mgr"):
        pickler.graph.ignored.add(id(kind_of(value)._metadata))  # noqa: SLF001 - pandas has no other way
        mine = {key for block in value._mgr.blocks for key in _inside([block.values])}  # noqa: SLF001 - pandas has no other way
        if not found.framed.isdisjoint(mine):
            copy = value.copy(deep=True)
            object.__setattr__(copy, "_attrs", value.attrs)
            memory.frames.update(_inside(copy))
            pickler.seen[id(copy)] = copy
            pickler.seen[id(value)] = value
            return copy.__reduce_ex__(5)
        found.framed.update(mine)
    if pickler.graph.how(kind_of(value)).has_identity:
        pickler.seen[id(value)] = value
    return NotImplemented


def _inside(value: object) -> dict[int, object]:
    """Return the arrays, of pandas and of numpy, in which a pandas value keeps its data."""
    arrays: dict[int, object] = {}
    ahead: list[Any] = [value]
    known: set[int] = set()
    while ahead:
        for one in get_referents(ahead.pop()):
            kind = kind_of(one)
            if id(one) in known:
                continue
            known.add(id(one))
            is_pandas = str(module_of(kind)).partition(".")[0] == "pandas"
            if kind is sys.modules["numpy"].ndarray or (is_pandas and hasattr(one, "_from_sequence")):
                arrays[id(one)] = one
            if is_pandas or kind in (dict, list, tuple):
                ahead.append(one)
    return arrays


def arrow_value(_: Pickler, value: Any) -> object:
    """Copy a value that is part of a larger one, because pickle would save all of the larger one with it."""
    if value.get_total_buffer_size() <= 2 * value.nbytes + SPARE_BYTES:
        return NotImplemented
    arrow = sys.modules["pyarrow"]
    if isinstance(value, arrow.Table):
        kind, table = "table", value
    elif isinstance(value, arrow.RecordBatch):
        kind, table = "batch", arrow.Table.from_batches([value])
    else:
        kind = "chunks" if isinstance(value, arrow.ChunkedArray) else "array"
        table = arrow.table({"": value})
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return constructors.arrow_part, (PickleBuffer(sink.getvalue()), kind)
