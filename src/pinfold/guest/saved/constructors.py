"""The functions that saved streams call, by name, to make the saved values again.

Their names and arguments are part of the stored format: functions may be added, but none changed.
"""

from __future__ import annotations

import sys
from _weakref import ref
from importlib import import_module
from importlib.util import MAGIC_NUMBER
from marshal import loads
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from .introspection import SESSION, dict_of

_set_type_attribute = type.__setattr__


# Code


def make_code(magic: bytes, marshalled: bytes) -> CodeType:
    if magic != MAGIC_NUMBER:  # code compiled by another version could crash this one
        raise ValueError("it holds code that another version of Python compiled")
    return loads(marshalled)  # noqa: S302 - the bytes are the session's own


def fill_cell(cell: CellType, state: tuple[object]) -> None:
    cell.cell_contents = state[0]


def fill_function(function: FunctionType, state: dict[str, object]) -> None:
    for name, value in state.items():
        setattr(function, name, value)


def make_cached(function: Any, maxsize: int | None, typed: bool, attributes: dict[str, Any]) -> object:
    """Make an `lru_cache` function with an empty cache."""
    from functools import lru_cache

    cached = lru_cache(maxsize=maxsize, typed=typed)(function)
    vars(cached).update(attributes)
    return cached


def make_cached_property(function: Any, name: str | None, doc: str | None) -> object:
    from functools import cached_property

    made = cached_property(function)
    made.attrname, made.__doc__ = name, doc
    return made


def make_new_type(name: str, supertype: object, module: str) -> object:
    made = import_module("typing").NewType(name, supertype)
    made.__module__ = module
    return made


def make_type_variable(
    kind: str, name: str, constraints: tuple[object, ...], options: dict[str, Any], module: str
) -> object:
    made = getattr(import_module("typing"), kind)(name, *constraints, **options)
    made.__module__ = module
    return made


def make_type_alias(name: str, value: object, parameters: tuple[object, ...]) -> object:
    make: Any = import_module("typing").TypeAliasType
    return make(name, value, type_params=parameters)


# Classes


def make_class(meta: Any, name: str, bases: tuple[type, ...], start: dict[str, Any]) -> type:
    """Make a class without its attributes. Does not call the program's hooks, which ran when it was first made."""
    meta = type(bases[0]) if meta is None else meta
    hushed: list[tuple[type, object]] = []
    for base in {kind: None for one in bases for kind in one.__mro__}:
        own = dict_of(base)
        if own.get("__module__") == SESSION and "__init_subclass__" in own:
            hushed.append((base, own["__init_subclass__"]))
            type.__delattr__(base, "__init_subclass__")
    try:
        return meta(name, bases, start) if _is_compiled(meta) else type.__new__(meta, name, bases, start)
    finally:
        for base, hook in hushed:
            _set_type_attribute(base, "__init_subclass__", hook)


def _is_compiled(meta: type) -> bool:
    """Return True if a compiled metaclass adds to its classes, as that of `ctypes.Structure` does."""
    above = [kind for kind in meta.__mro__ if kind not in (type, object)]
    hooks = [dict_of(kind).get(name) for kind in above for name in ("__new__", "__init__")]
    return any(hook is not None and type(hook) not in (FunctionType, staticmethod) for hook in hooks)


def fill_class(kind: type, attributes: dict[str, object]) -> type:
    for name, value in attributes.items():
        _set_attribute(kind, name, value)
    return kind


def finish_class(kind: type, state: tuple[object, dict[str, Any], list[type] | None]) -> None:
    """Set the attributes. The methods, `state[0]`, are already set, because reading the attributes may need them."""
    _, attributes, registered = state
    fill_class(kind, attributes)
    if registered is not None:
        abc: Any = import_module("_abc")
        abc._abc_init(kind)  # noqa: SLF001 - as `abc` itself does
        for subclass in registered:
            abc._abc_register(kind, subclass)  # noqa: SLF001


def _set_attribute(kind: type, name: str, value: object) -> None:
    try:
        _set_type_attribute(kind, name, value)
    except TypeError as error:
        if "can't apply this" not in str(error):
            raise
        setattr(kind, name, value)


def make_enum(meta: Any, name: str, bases: tuple[type, ...], start: dict[str, Any], members: dict[str, Any]) -> type:
    names: Any = meta.__prepare__(name, bases)
    for key, value in (*start.items(), *members.items()):
        names[key] = value
    return meta.__new__(meta, name, bases, names)


def finish_enum(kind: Any, state: tuple[object, dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    """Set the attributes of the enum and of its members."""
    _, attributes, held = state
    fill_class(kind, attributes)
    for name, own in held.items():
        kind.__members__[name].__dict__.update(own)


def make_value(plain: Any, kind: type, value: object) -> object:
    """Make an instance of a built-in type's subclass without its `__new__`, whose arguments were not kept."""
    return plain.__new__(kind, value)


def fill_instance(made: object, state: tuple[dict[str, object], dict[str, object] | None]) -> None:
    """Set the attributes by using this same dict object, which others may reference too."""
    object.__setattr__(made, "__dict__", state[0])
    for name, value in (state[1] or {}).items():
        object.__setattr__(made, name, value)


# Modules and objects found by name


def module(name: str) -> ModuleType:
    return sys.modules[name] if name == SESSION else import_module(name)


def find_import(path: str) -> object:
    """Import what is at `module:name`."""
    module_name, _, names = path.partition(":")
    found: object = module(module_name)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def fill_module(made: ModuleType, state: dict[str, object]) -> None:
    vars(made).update(state)


def attribute(module_name: str, name: str) -> object:
    """Return an object that each process has its own of, in a module."""
    return getattr(import_module(module_name), name)


# Values whose identity or content pickle does not keep


def dead_reference() -> object:
    class Gone: ...

    return ref(Gone())


def make_collection(base: Any, kind: type, args: tuple[object, ...]) -> object:
    made = base.__new__(kind)
    base.__init__(made, *args)
    return made


def make_exception(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """Make an exception without its `__init__`, whose arguments were not kept."""
    made = kind.__new__(kind, *args)
    made.args = args
    return made


def fill_exception(made: BaseException, state: tuple[dict[str, Any] | None, Any, Any, bool]) -> None:
    attributes, made.__cause__, made.__context__, suppress = state
    made.__suppress_context__ = suppress  # setting the cause has changed it
    for name, value in (attributes or {}).items():
        setattr(made, name, value)


def make_view(holder: Any, format_: str, shape: tuple[int, ...], read_only: bool) -> memoryview:
    view: Any = memoryview(holder)
    if view.format != format_ or view.shape != shape:
        view = view.cast("B").cast(format_, shape) if format_ != "B" or len(shape) > 1 else view.cast("B")
    return view.toreadonly() if read_only and not view.readonly else view


# Arrays


def array_view(root: Any, layout: tuple[int, tuple[int, ...], tuple[int, ...], Any, bool, type]) -> object:
    """Make an array that uses part of another array's memory."""
    ndarray: Any = import_module("numpy").ndarray
    offset, shape, strides, dtype, writable, kind = layout
    memory = root if root.flags.c_contiguous else root.T
    if type(root) is ndarray:
        view = ndarray(shape, dtype, memory, offset, strides)
        view = view if kind is ndarray else view.view(kind)
    else:
        view = ndarray.__new__(kind, shape, dtype, memory, offset, strides)
        view.__dict__.update(root.__dict__)  # a memmap: its views have its attributes too
    if view.flags.writeable and not writable:
        view.flags.writeable = False
    return view


def read_only_array(array: Any) -> object:
    array.flags.writeable = False
    return array


def file_array(path: str, mode: str, layout: tuple[Any, tuple[int, ...], int, str]) -> object:
    dtype, shape, offset, order = layout
    memmap: Any = import_module("numpy").memmap
    return memmap(path, dtype=dtype, mode=mode, offset=offset, shape=shape, order=order)


def arrow_part(data: object, kind: str) -> object:
    """Return the table, or the batch or column that was wrapped in a table."""
    table: Any = import_module("pyarrow.ipc").open_stream(data).read_all()
    if kind == "table":
        return table
    if kind == "batch":
        return table.combine_chunks().to_batches()[0]
    column = table.column(0)
    return column if kind == "chunks" else column.combine_chunks()
