"""One value in a few words, for a traceback. Runs no code of the program's own: no `__repr__`, no properties."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from .inventory import columns_of, is_librarys, shape_of

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

TEXT_CHARS = 40
VALUE_CHARS = 120
COLUMNS = 10
BITS = 128
NO_DATA = (ModuleType, FunctionType, BuiltinFunctionType, MethodType)

_name_of = type.__dict__["__name__"].__get__


def is_data(value: object) -> bool:
    """Not code: naming a function on the failing line tells nobody anything."""
    kind = type(value)
    return kind not in NO_DATA and not issubclass(kind, type)


def described(value: object) -> str:
    return _described(value, type(value))[:VALUE_CHARS]


def _described(value: Any, kind: type) -> str:
    name = _name_of(kind)
    if value is None:
        return "None"
    if kind is int:
        bits = int.bit_length(value)
        return f"int of {bits} bits" if bits > BITS else f"int {value}"
    if kind in (bool, float, complex):
        return f"{name} {value}"
    if kind in (str, bytes):
        return _quoted(value, name)
    if kind is dict:
        keys = [key for key, _ in zip(value, range(6), strict=False) if type(key) is str]
        named = ": " + ", ".join(repr(key[:TEXT_CHARS]) for key in keys) if keys else ""
        return f"dict of {len(value)}{named}"
    if kind in (list, tuple, set, frozenset, bytearray, range):
        return f"{name} of {len(value)}"
    return name + _array(value, kind)


def _quoted(value: str | bytes, name: str) -> str:
    if len(value) <= TEXT_CHARS:
        return f"{name} {value!r}"
    return f"{name} of {len(value)}: {value[:TEXT_CHARS]!r}..."


def _array(value: object, kind: type) -> str:
    shape = shape_of(value)
    if shape is None:
        return ""
    columns = columns_of(value, COLUMNS + 1)
    if columns:
        shown = [column[:TEXT_CHARS] for column in columns[:COLUMNS]]
        return f" {shape} columns {', '.join(shown)}{', ...' if len(columns) > COLUMNS else ''}"
    return f" {shape}{_dtype(value, kind)}"


def _dtype(value: object, kind: type) -> str:
    if _name_of(kind) == "DataFrame":
        return ""
    try:
        dtype: object = getattr(value, "dtype", None)
        return f" {dtype}" if is_librarys(type(dtype)) else ""
    except Exception:
        return ""
