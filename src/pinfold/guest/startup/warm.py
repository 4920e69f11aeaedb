"""What a zygote does before it forks, so that sessions share the memory of it: imports, and one small cell's worth of use.

Does what it can with the packages that are there, and leaves one thread and no file behind.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress
from types import CoroutineType, FrameType, GeneratorType, ModuleType
from typing import Any

from ..cells import displays, import_hooks, mime_bundle
from ..saved import deserialization, saver

PACKAGES = ("numpy", "pandas", "IPython")
"""Imported for everybody; what most cells never touch is left to those that do."""
ALSO = ("numpy.random", "asyncio", "subprocess", "json", "difflib", "inspect", "IPython.core.completer")
"""`numpy.random` is seeded by each session while its root is being built: too late to be imported."""

_ = deserialization, saver
"""Only to be there before any code of a program's is."""

QUIET = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Read while the libraries load: none of them may start a thread before the fork."""

MARK = 0xFFFFFFFF
"""The count that is never changed, as `None` has it."""
VERSIONS = ((3, 12), (3, 13))
RUNNING = (FrameType, GeneratorType, CoroutineType)
"""Have owners that end them."""


def warm() -> list[str]:
    """Returns the packages that are there."""
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update(QUIET)
    try:
        import_hooks.install_hooks()
        found = [name for name in PACKAGES if _try_import(name)]
        for name in ALSO:
            _try_import(name)
        if "IPython" in found:
            with suppress(Exception):
                _use_ipython()
        if "pandas" in found:
            with suppress(Exception):
                _use_pandas()
        return found
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _try_import(name: str) -> bool:
    try:
        __import__(name)
    except Exception:  # missing, or broken: then the cell that wants it is told
        return False
    return True


def _use_pandas() -> None:
    pandas = sys.modules["pandas"]
    frame = pandas.DataFrame({"key": ["a", "b", "a"], "value": [1.0, 2.0, 3.0], "count": [1, 2, 3]})
    for table in (frame, frame.groupby("key").agg({"value": "mean", "count": "sum"}), frame.describe()):
        mime_bundle.rich_forms(table)
        repr(table)
    repr(frame.groupby("key")["value"].mean().sort_values())
    repr(frame[frame["value"] > 1].merge(frame, on="key"))


def _use_ipython() -> None:
    from ..cells import ipython

    main = ModuleType("__main__")
    keep = sys.modules["__main__"]
    try:
        shell = ipython.make_shell(main, main.__dict__)
        shell.input_transformer_manager.transform_cell("%time x = 1\n!true\n")
    finally:
        sys.modules["__main__"] = keep
    displays.patch_ipython()


def can_immortalise() -> bool:
    """Only where what we know of the layout of objects holds."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in VERSIONS
        and getattr(sys, "_is_gil_enabled", lambda: True)()
        and ctypes.c_uint64.from_address(id(None)).value == MARK
    )


def immortalise() -> None:
    """Make everything loaded so far immortal, and freeze it: then no session counts references to it.

    A count is a write, and a write to a shared page copies it (docs/design/0009): it saves a third of a session's memory.
    """
    if not can_immortalise():
        return
    gc.unfreeze()  # or it would not be listed
    new: list[Any] = gc.get_objects()
    known = set(map(id, new))
    known |= {id(known), id(new)}
    found: list[int] = []
    while new:
        found += [id(one) for one in new if type(one) not in RUNNING]
        new = [one for one in gc.get_referents(*new) if not (id(one) in known or known.add(id(one)))]
    count = ctypes.c_uint64.from_address
    for address in found:
        count(address).value = MARK
    gc.freeze()
