"""One value in a few words, for a traceback. Runs no code of the program's own: no `__repr__`, no properties."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from .inventory import columns_of, is_library_type, shape_of

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

TEXT_CHARS = 40
VALUE_CHARS = 120
NESTED_CHARS = 400
DEEP = 6
KEYS = 8
COLUMNS = 10
BITS = 128
NO_DATA = (ModuleType, FunctionType, BuiltinFunctionType, MethodType)

_name_of = type.__dict__["__name__"].__get__


def is_data(value: object) -> bool:
    """Not code: naming a function on the failing line tells nobody anything."""
    kind = type(value)
    return kind not in NO_DATA and not issubclass(kind, type)


def describe_value(value: object) -> str:
    kind = type(value)
    return _describe(value, kind)[: NESTED_CHARS if kind in (dict, list) else VALUE_CHARS]


def _describe(value: Any, kind: type) -> str:
    name = _name_of(kind)
    if value is None:
        return "None"
    if kind is int:
        bits = int.bit_length(value)
        return f"int of {bits} bits" if bits > BITS else f"int {value}"
    if kind in (bool, float, complex):
        return f"{name} {value}"
    if kind in (str, bytes):
        return _describe_text(value, name)
    if kind is dict:
        return f"dict of {len(value)} {_describe_nested(value, DEEP)}" if value else "dict of 0"
    if kind is list and value and type(value[0]) in (dict, list):
        return f"list of {len(value)} x {_describe_nested(value[0], DEEP)}"
    if kind in (list, tuple, set, frozenset, bytearray, range):
        return f"{name} of {len(value)}"
    return name + _describe_array(value, kind)


def _describe_nested(given: object, deep: int) -> str:
    """How a dict or list is made: what code that walks through it must know."""
    kind = type(given)
    value: Any = given
    if kind is dict and deep:
        # A dict that another thread changes meanwhile is described by what there was.
        pairs = [(key, value[key]) for key in list(value)[: KEYS + 1] if type(key) in (str, int) and key in value]
        parts = [f"{_describe_key(key)}: {_describe_nested(one, deep - 1)}" for key, one in pairs[:KEYS]]
        return "{" + ", ".join(parts) + (", ...}" if len(value) > KEYS else "}")
    if kind is list and deep:
        return f"[{len(value)} x {_describe_nested(value[0], deep - 1)}]" if value else "[]"
    return _name_of(kind)


def _describe_key(key: Any) -> str:
    return repr(key[:TEXT_CHARS] if type(key) is str else key)


def _describe_text(value: str | bytes, name: str) -> str:
    if len(value) <= TEXT_CHARS:
        return f"{name} {value!r}"
    return f"{name} of {len(value)}: {value[:TEXT_CHARS]!r}..."


def _describe_array(value: object, kind: type) -> str:
    shape = shape_of(value)
    if shape is None:
        return ""
    columns = columns_of(value, COLUMNS + 1)
    if columns:
        shown = [repr(column[:TEXT_CHARS]) for column in columns[:COLUMNS]]
        return f" {shape} columns {', '.join(shown)}{', ...' if len(columns) > COLUMNS else ''}"
    return f" {shape}{_describe_dtype(value, kind)}"


def _describe_dtype(value: object, kind: type) -> str:
    if _name_of(kind) == "DataFrame":
        return ""
    try:
        dtype: object = getattr(value, "dtype", None)
        return f" {dtype}" if is_library_type(type(dtype)) else ""
    except Exception:
        return ""
