"""Makes everything a zygote has loaded immortal, where its Python can (3.12, 3.13): then no session counts references to it.

A count is a write, and a write to a page that is shared copies it. See docs/design/0009.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from types import CoroutineType, FrameType, GeneratorType

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

MARK = 0xFFFFFFFF
"""The count that is never changed, as `None` has it."""
VERSIONS = ((3, 12), (3, 13))
RUNNING = (FrameType, GeneratorType, CoroutineType)
"""Have owners that end them."""


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
        new = [one for one in gc.get_referents(*new) if not (id(one) in known or known.add(id(one)))]
    count = ctypes.c_uint64.from_address
    for address in found:
        count(address).value = MARK
    gc.freeze()
