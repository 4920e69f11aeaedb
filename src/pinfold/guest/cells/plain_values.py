"""Turns any value into a JSON number, boolean, text or null, without running the program's code.

Uses only modules that are already loaded: importing another one could find a file of the program's by that name.
"""

from __future__ import annotations

import sys
from itertools import islice
from types import ModuleType

from .inventory import describe_value, is_library_type, module_of, name_of

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

    Plain = bool | int | float | str | None

CELL_CHARS = 500
SAFE_INT = 1 << 53
"""Ints from here on are written as text: JavaScript would round them."""
LONG_INT = 10_000
"""An int of this many bits is described, not written in digits."""
NESTED = 50
"""The most items written of a list in a table cell."""
DEEP = 3
STANDARD = {
    "datetime": ("date", "datetime", "time", "timedelta"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "uuid": ("UUID",),
    "pathlib": ("PosixPath",),
    "pathlib._local": ("PosixPath",),
}
"""Types of the standard library that are written by their own `str` or `isoformat`."""
ZONES = {"datetime": ("timezone",), "zoneinfo": ("ZoneInfo",), "pytz": ("UTC",), "dateutil.tz.tz": ("tzutc",)}
LIBRARY_TEXT = ("Timestamp", "Timedelta", "Period", "Interval")
NONE, STR, FLOAT, INT, BOOL = (id(kind) for kind in (type(None), str, float, int, bool))
"""Types are compared by id: a metaclass of the program's may define `__eq__` or `__hash__`."""
AS_IS = frozenset((NONE, STR, INT, BOOL))


def simplify(given: object) -> Plain:
    """Return None for a missing value, numbers and text as they are, dates as ISO text, anything else as `describe`."""
    kind = type(given)
    value: Any = given
    if kind is int:
        return value if int.bit_length(value) < LONG_INT else describe_value(value)
    if id(kind) in AS_IS:
        return value
    if kind is float:
        return value if value == value else None  # noqa: PLR0124 - not a number
    if is_library_type(kind):
        return _simplify_library(value, kind)
    if _is_one_of(kind, STANDARD):
        return _write_standard(value, kind)
    return describe(value)


def _simplify_library(value: Any, kind: type) -> Plain:
    name, library = name_of(kind), module_of(kind).partition(".")[0]
    if name in ("NaTType", "NAType"):
        return None
    if library == "pandas" and name in LIBRARY_TEXT:
        if name == "Timestamp":
            return _write_standard(value, kind)
        return str(value)
    numpy: Any = sys.modules.get("numpy")
    if library != "numpy" or not issubclass(kind, numpy.generic) or name in ("void", "object_"):
        return describe_value(value)
    if name in ("datetime64", "timedelta64"):
        return None if numpy.isnat(value) else str(value)
    return simplify(value.item())


def _write_standard(value: Any, kind: type) -> str:
    if name_of(kind) not in ("date", "datetime", "time", "Timestamp"):
        return str(value)
    zone: object = None if name_of(kind) == "date" else value.tzinfo
    if zone is None or _is_one_of(type(zone), ZONES):
        return value.isoformat()
    return describe_value(value)  # a time zone of the program's own would run its code


def _is_one_of(kind: type, names: dict[str, tuple[str, ...]]) -> bool:
    """Return whether a type is really one of these, not a class of the program's that claims to be."""
    where, name = module_of(kind), name_of(kind)
    if type(where) is not str or name not in names.get(where, ()):
        return False
    module = sys.modules.get(where)
    return type(module) is ModuleType and vars(module).get(name) is kind


def key_of(given: object) -> Plain:
    """Return a sort key: as `simplify`, but a number for numeric types that are shown as text."""
    kind = type(given)
    value: Any = given
    if id(kind) not in AS_IS and kind is not float and _is_one_of(kind, STANDARD):
        if name_of(kind) in ("Decimal", "Fraction"):
            return simplify(float(value))
        if name_of(kind) == "timedelta":
            return value.total_seconds()
    return simplify(value)


def plain(value: object, chars: int = CELL_CHARS) -> Plain:
    """Return a value as JSON can hold it, in at most `chars` characters."""
    simple = simplify(value)
    if type(simple) is float and simple in (float("inf"), -float("inf")):
        return str(simple)
    if type(simple) is int and not -SAFE_INT < simple < SAFE_INT:
        simple = str(simple)
    if type(simple) is not str:
        return simple
    text = simple if len(simple) <= chars else simple[: chars - 1] + "…"
    return text.encode("utf-8", "replace").decode()


def describe(given: object, deep: int = DEEP) -> str:
    """Write a container with its items as Python does; values of the program's own classes by their type."""
    kind = type(given)
    value: Any = given
    if kind is str or kind is bytes or kind is bytearray:
        return repr(value[:CELL_CHARS])
    if kind is complex or kind is range:
        return repr(value)
    if not deep or not (kind is list or kind is tuple or kind is set or kind is frozenset or kind is dict):
        return str(simplify(value)) if id(kind) in AS_IS or kind is float else describe_value(value)
    if kind is dict:
        parts = [f"{describe(key, deep - 1)}: {describe(one, deep - 1)}" for key, one in islice(value.items(), NESTED)]
    else:
        parts = [describe(one, deep - 1) for one in islice(value, NESTED)]
    parts += ["..."] if len(value) > NESTED else []
    inside = ", ".join(parts)
    if kind is list:
        return f"[{inside}]"
    if kind is tuple:
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return f"{{{inside}}}" if value or kind is dict else "set()"
