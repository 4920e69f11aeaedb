"""Makes everything a zygote has loaded immortal, where its Python can (3.12, 3.13): then no session counts references to it.

A count is a write, and a write to a page that is shared copies it. See docs/design/0009.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import CodeType, CoroutineType, FrameType, GeneratorType

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

MARK = 0xFFFFFFFF
"""The count that is never changed, as `None` has it."""
VERSIONS = ((3, 12), (3, 13))
RUNNING = (FrameType, GeneratorType, CoroutineType)
"""Have owners that end them."""
HEAP_TYPE = 1 << 9
"""The flag of a type that was made at run time; of others the collector knows nothing."""

# As types have them, whatever their own metaclass says.
_flags, _attributes, _mro, _bases = (
    type.__dict__[name].__get__ for name in ("__flags__", "__dict__", "__mro__", "__bases__")
)


def is_possible() -> bool:
    """Only where what we know of the layout of objects holds."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in VERSIONS
        and getattr(sys, "_is_gil_enabled", lambda: True)()
        and ctypes.c_uint64.from_address(id(None)).value == MARK
    )


def immortalise() -> None:
    """Everything there is now, frozen or not; it is frozen afterwards."""
    if not is_possible():
        return
    gc.unfreeze()  # or it would not be listed
    new: list[Any] = gc.get_objects()
    known = set(map(id, new))
    known |= {id(known), id(new)}
    found: list[int] = []
    while new:
        found += [id(one) for one in new if type(one) not in RUNNING]
        named = [part for one in new for part in _unlisted(one)]
        new = [
            one for one in (*gc.get_referents(*new), *named) if not (id(one) in known or known.add(id(one)))
        ]
    count = ctypes.c_uint64.from_address
    for address in found:
        count(address).value = MARK
    gc.freeze()


def _unlisted(one: Any) -> tuple[Any, ...]:
    """What it refers to without telling the collector."""
    if type(one) is CodeType:
        return (one.co_consts, one.co_names, one.co_name, one.co_qualname, one.co_filename, one.co_linetable)
    if isinstance(one, type) and not _flags(one) & HEAP_TYPE:
        return (*gc.get_referents(_attributes(one)), _mro(one), _bases(one))
    return ()
