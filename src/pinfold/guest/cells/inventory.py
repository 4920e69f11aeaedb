"""Describes variables and values in a few words without running the program's code: no `__repr__`, no properties."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

MOST = 5_000
"""The most variables listed; a session with more has made them in a loop."""
NAME_CHARS = 200
BLOCKS = 1_000
"""The most blocks of a frame that are added up; a frame with more gets no size."""
SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range)
SHAPED_BY = {"cupy", "jax", "jaxlib", "numpy", "pandas", "polars", "pyarrow", "scipy", "tensorflow", "torch", "xarray"}
TEXT_CHARS = 40
VALUE_CHARS = 120
NESTED_CHARS = 400
DEEP = 6
KEYS = 8
COLUMNS = 10
BITS = 128
PLAIN = frozenset(map(id, (*SIZED, int, float, complex, bool, type(None))))
"""Types by id: comparing the types could run the program's code, in a metaclass."""
NO_DATA = (ModuleType, FunctionType, BuiltinFunctionType, MethodType)

Shape = tuple[int, ...]

# Descriptors of `type` itself: a metaclass of the program's cannot override them.
name_of = type.__dict__["__name__"].__get__
module_of = type.__dict__["__module__"].__get__


def inventory(
    namespace: dict[str, object], cell_of: Callable[[str], int | None] = lambda _name: None
) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name, value in namespace.copy().items():
        if type(name) is str and not name.startswith("_"):
            shape, size = measure_value(value)
            row = {"name": name[:NAME_CHARS], "type": name_of(type(value))[:NAME_CHARS], "shape": shape}
            found.append({**row, "size": size, "cell": cell_of(name)})
            if len(found) == MOST:
                break
    return found


def measure_value(value: object) -> tuple[str | None, int | None]:
    """Return shape and size in bytes, each None where only the program's own code could tell."""
    kind = type(value)
    if id(kind) in PLAIN and value is not None:
        return str(len(value)) if kind in SIZED else None, sys.getsizeof(value)  # pyright: ignore[reportArgumentType]
    shape = shape_of(value)
    text = None if shape is None else " x ".join(map(str, shape)) or "scalar"
    return text, _bytes_of(value)


def shape_of(value: object) -> Shape | None:
    """Return the shape of a library's own array or table; None for anything else."""
    kind = type(value)
    if not is_library_type(kind):
        return None
    try:
        if is_pandas(kind):
            return _pandas_shape(value)
        shape: Any = getattr(value, "shape", None)
    except Exception:
        return None
    # A tuple or a library's subclass of it (torch.Size): copied, so that only plain tuples are walked.
    sides = tuple(shape) if issubclass(type(shape), tuple) else (None,)
    whole = tuple(side for side in sides if type(side) is int)
    return whole if len(whole) == len(sides) else None


def is_library_type(kind: type) -> bool:
    """Return whether a type is really a library's own, not a class of the program's that claims to be."""
    module_name = module_of(kind)
    if type(module_name) is not str or module_name.partition(".")[0] not in SHAPED_BY:
        return False
    # A library may set `__module__` to a shorter, public name than that of the module which defines the type.
    module = sys.modules.get(module_name)
    return type(module) is ModuleType and vars(module).get(name_of(kind)) is kind


def columns_of(value: object, most: int) -> list[str] | None:
    """Return the first column names of a pandas or polars frame; None for anything else, or if a name is not text."""
    if name_of(type(value)) != "DataFrame" or not is_library_type(type(value)):
        return None
    try:
        columns: Any = axes_of(value)[0] if is_pandas(type(value)) else getattr(value, "columns", ())
        names: list[Any] = list(columns[:most])
    except Exception:
        return None
    return names if all(type(name) is str for name in names) else None


def _bytes_of(value: object) -> int | None:
    kind = type(value)
    if not is_library_type(kind):
        return None
    try:
        if is_pandas(kind) and name_of(kind) in ("DataFrame", "Series"):
            return _blocks_bytes(value)
        if is_pandas(kind) and not has_library_labels(value):
            return None
        own: Any = value
        size: object = own.estimated_size() if hasattr(own, "estimated_size") else own.nbytes
    except Exception:
        return None
    return int(str(size)) if type(size) is int or is_library_type(type(size)) else None


def is_pandas(kind: type) -> bool:
    return module_of(kind).partition(".")[0] == "pandas"


def _pandas_shape(value: object) -> Shape | None:
    if name_of(type(value)) in ("DataFrame", "Series"):
        axes = axes_of(value)
        return tuple(len(axis) for axis in reversed(axes)) if all(map(has_library_labels, axes)) else None
    return (len(value),) if has_library_labels(value) else None  # pyright: ignore[reportArgumentType]


def axes_of(value: object) -> list[Any]:
    return object.__getattribute__(value, "_mgr").axes


def has_library_labels(index: object) -> bool:
    """Return whether an index keeps its labels in a library's array, not in one that the program made."""
    kind = type(index)
    if not is_library_type(kind):
        return False
    if name_of(kind) in ("RangeIndex", "MultiIndex"):
        return True
    labels: object = object.__getattribute__(index, "_data")
    return is_library_type(type(labels))


def _blocks_bytes(value: object) -> int | None:
    blocks = object.__getattribute__(value, "_mgr").blocks
    arrays: list[Any] = [block.values for block in blocks[:BLOCKS]]
    if len(blocks) > BLOCKS or not all(is_library_type(type(one)) for one in list[object](arrays)):
        return None
    return sum(int(array.nbytes) for array in arrays)


def is_data(value: object) -> bool:
    """Return whether a value is data: a function or class on the failing line is not worth describing."""
    kind = type(value)
    return kind not in NO_DATA and not issubclass(kind, type)


def describe_value(value: object) -> str:
    kind = type(value)
    return _describe(value, kind)[: NESTED_CHARS if kind is dict or kind is list else VALUE_CHARS]


def _describe(value: Any, kind: type) -> str:
    name = name_of(kind)
    if id(kind) not in PLAIN:
        return name + _describe_array(value, kind)
    if value is None:
        return "None"
    if kind is int:
        bits = int.bit_length(value)
        return f"int of {bits} bits" if bits > BITS else f"int {value}"
    if kind in (bool, float, complex):
        return f"{name} {value}"
    if kind in (str, bytes):
        more = f"of {len(value)}: {value[:TEXT_CHARS]!r}..."
        return f"{name} {value!r}" if len(value) <= TEXT_CHARS else f"{name} {more}"
    if kind is dict:
        return f"dict of {len(value)} {_describe_nested(value, DEEP)}" if value else "dict of 0"
    if kind is list and value and (type(value[0]) is dict or type(value[0]) is list):
        return f"list of {len(value)} x {_describe_nested(value[0], DEEP)}"
    return f"{name} of {len(value)}"


def _describe_nested(given: object, deep: int) -> str:
    """Describe the structure of a dict or list, for code that walks through it."""
    kind = type(given)
    value: Any = given
    if kind is dict and deep:
        # Another thread may change the dict meanwhile.
        pairs = [
            (key, value[key])
            for key in list(value)[: KEYS + 1]
            if (type(key) is str or type(key) is int) and key in value
        ]
        named = [(key[:TEXT_CHARS] if type(key) is str else key, one) for key, one in pairs[:KEYS]]
        parts = [f"{key!r}: {_describe_nested(one, deep - 1)}" for key, one in named]
        return "{" + ", ".join(parts) + (", ...}" if len(value) > KEYS else "}")
    if kind is list and deep:
        return f"[{len(value)} x {_describe_nested(value[0], deep - 1)}]" if value else "[]"
    return name_of(kind)


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
    if name_of(kind) == "DataFrame":
        return ""
    try:
        dtype: object = getattr(value, "dtype", None)
        return f" {dtype}" if is_library_type(type(dtype)) else ""
    except Exception:
        return ""
