"""How values are taken apart that pickle alone gets wrong, or not at all: code, classes, references, views.

A reducer returns what `__reduce__` would, or NotImplemented for "as pickle does it".
"""

from __future__ import annotations

import gc
import sys
import types
from _weakref import ReferenceType
from importlib import import_module
from importlib.util import MAGIC_NUMBER
from marshal import dumps
from types import (
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

from . import rebuilding as again

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .pickling import Pickler

    Reducer = Callable[[Pickler, Any], Any]

MARSHAL = 2 if sys.version_info < (3, 14) else 5
"""The last format without back references, whose bytes depend on how often a constant happens to be used."""
FUNCTION_STATE = (
    "__defaults__",
    "__kwdefaults__",
    "__annotations__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__type_params__",
    "__dict__",
)
CLASS_START = ("__module__", "__qualname__", "__slots__", "__orig_bases__", "__classcell__")
"""Given when a class is made; everything else is set afterwards, so that a class can hold itself."""
NOT_CLASS_STATE = ("__dict__", "__weakref__", "_abc_impl", "__classdictcell__", "__annotate_func__")
HEAP_TYPE = 1 << 9
"""Of a class that was made while Python ran."""
BEHAVIOUR = (FunctionType, staticmethod, classmethod, property)

_dict_of = type.__dict__["__dict__"].__get__
_name_of = type.__dict__["__name__"].__get__
_module_of = type.__dict__["__module__"].__get__


class Unsaved(Exception):
    """This cannot be saved; the text says why, to the user."""


class Filling:
    """The methods of a class, put in place before anything else of it is read."""

    __slots__ = ("attributes", "kind")

    def __init__(self, kind: type, attributes: dict[str, Any]) -> None:
        self.kind = kind
        self.attributes = attributes


class Names:
    """The globals of a module that a new process has too."""

    __slots__ = ("module",)

    def __init__(self, module: str) -> None:
        self.module = module


def import_name(module: object) -> str | None:
    """The name under which a new process gets this module too."""
    if type(module) is not ModuleType and not issubclass(type(module), ModuleType):
        return None
    own = vars(module)
    for name in (getattr(own.get("__spec__"), "name", None), own.get("__name__")):
        if type(name) is str and sys.modules.get(name) is module and own.get("__spec__") is not None:
            return name
    return None


def is_named(value: Any, module_name: object, path: object) -> bool:
    """Whether a new process finds this very thing under its name."""
    if type(module_name) is not str or type(path) is not str or module_name == "__main__":
        return False
    try:
        found: object = sys.modules.get(module_name) or import_module(module_name)
        if import_name(found) is None:
            return False
        for name in path.split("."):
            found = getattr(found, name)
    except Exception:  # no such module, or no such name in it
        return False
    return found is value


# Code


def code(_: Pickler, value: CodeType) -> object:
    return again.make_code, (MAGIC_NUMBER, dumps(value, MARSHAL))


def cell(_: Pickler, value: CellType) -> object:
    try:
        content = value.cell_contents
    except ValueError:  # nothing in it yet
        return again.make_cell, ()
    return again.make_cell, (), (content,), None, None, again.fill_cell


def function(pickler: Pickler, value: FunctionType) -> object:
    if is_named(value, value.__module__, value.__qualname__):
        return NotImplemented
    state: dict[str, Any] = {}
    for name in FUNCTION_STATE:
        held = getattr(value, name, None)
        if held:
            state[name] = held
    args = (value.__code__, _globals_of(pickler, value), value.__name__, value.__closure__)
    return again.make_function, args, state, None, None, again.fill_function


def _globals_of(pickler: Pickler, value: FunctionType) -> object:
    names = value.__globals__
    if names is pickler.graph.namespace:
        return names
    module = sys.modules.get(names.get("__name__", ""))
    name = import_name(module)
    if name is not None and vars(module) is names:
        return Names(name)
    if "__spec__" in names and "__loader__" in names:
        raise Unsaved("a function of a module that cannot be imported again")
    return names


def names(_: Pickler, value: Names) -> object:
    return again.names_of, (value.module,)


def method(_: Pickler, value: MethodType) -> object:
    return again.make_method, (value.__func__, value.__self__)


def wrapped(_: Pickler, value: Any) -> object:
    """`staticmethod`, `classmethod`."""
    return type(value), (value.__func__,)


def property_(_: Pickler, value: property) -> object:
    return property, (value.fget, value.fset, value.fdel, value.__doc__)


def cached_property(_: Pickler, value: Any) -> object:
    return again.make_cached_property, (value.func, value.attrname, value.__doc__)


def cached(_: Pickler, value: Any) -> object:
    if is_named(value, getattr(value, "__module__", None), getattr(value, "__qualname__", None)):
        return NotImplemented
    options = value.cache_parameters()
    attributes = dict(vars(value))
    return again.make_cached, (attributes.pop("__wrapped__"), options["maxsize"], options["typed"], attributes)


def descriptor(_: Pickler, value: Any) -> object:
    return getattr, (value.__objclass__, value.__name__)


def new_type(_: Pickler, value: Any) -> object:
    if is_named(value, value.__module__, value.__qualname__):
        return NotImplemented
    return again.make_new_type, (value.__name__, value.__supertype__, value.__module__)


def type_variable(_: Pickler, value: Any) -> object:
    if is_named(value, value.__module__, value.__name__):
        return NotImplemented
    kind = _name_of(type(value))
    options = {"covariant": value.__covariant__, "contravariant": value.__contravariant__}
    if getattr(value, "__infer_variance__", False):
        options = {"infer_variance": True}
    if value.__bound__ is not None:
        options["bound"] = value.__bound__
    constraints = getattr(value, "__constraints__", ())
    return again.make_type_variable, (kind, value.__name__, constraints, options, value.__module__)


# Classes


def class_(_: Pickler, value: type) -> object:
    if value in _UNNAMED or is_named(value, _module_of(value), value.__qualname__):
        return NotImplemented
    if not value.__flags__ & HEAP_TYPE:
        return _built_in(value)
    if _is_enum(value):
        return _enum(value)
    own = dict(_dict_of(value))
    start = {name: own.pop(name) for name in CLASS_START if name in own}
    methods, attributes = _parts(value, own)
    args = (type(value), _name_of(value), value.__bases__, start)
    state = (Filling(value, methods), attributes, _registered(value))
    return again.make_class, args, state, None, None, again.finish_class


_UNNAMED = (type(None), type(Ellipsis), type(NotImplemented))
"""Pickle has its own ways to these."""


def _built_in(kind: type) -> object:
    """Of Python's own, under another name than its own: `types.MappingProxyType`."""
    for module_name in ("types", "typing", "collections.abc"):
        for name, held in vars(sys.modules.get(module_name, types)).items():
            if held is kind:
                return again.attribute, (module_name, name)
    raise Unsaved(f"the built-in type {_name_of(kind)} has no name to find it by")


def _parts(kind: type, own: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    methods: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, held in own.items():
        if name in NOT_CLASS_STATE:
            continue
        if type(held) in (MemberDescriptorType, GetSetDescriptorType) and held.__objclass__ is kind:
            continue  # made with the class, for its slots
        if _name_of(type(held)) == "CField" and _module_of(type(held)) == "_ctypes":
            continue  # made for its `_fields_`
        (methods if isinstance(held, BEHAVIOUR) else attributes)[name] = held
    return methods, attributes


def _registered(kind: type) -> list[type] | None:
    """Classes an abstract one was told to take for its own; None for a class that is not abstract."""
    abc = sys.modules.get("_abc")
    if abc is None or "_abc_impl" not in _dict_of(kind):
        return None
    found: list[Any] = [reference() for reference in abc._get_dump(kind)[0]]  # noqa: SLF001 - there is no other way
    return sorted((one for one in found if one is not None), key=_name_of)


def _is_enum(kind: type) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(kind, enum.Enum)


def _enum(kind: Any) -> object:
    own = dict(_dict_of(kind))
    members = {name: member.value for name, member in kind.__members__.items()}
    held = {name: vars(member) for name, member in kind.__members__.items() if name == member.name}
    held = {name: {key: of[key] for key in of if not _is_made(key)} for name, of in held.items()}
    methods, attributes = _parts(kind, {key: own[key] for key in own if key not in members})
    attributes = {key: attributes[key] for key in attributes if not _is_made(key)}
    start = {name: own[name] for name in ("__module__", "__qualname__") if name in own}
    methods.pop("__new__", None)  # the one it keeps only finds members
    args = (type(kind), _name_of(kind), kind.__bases__, start, members)
    state = (Filling(kind, methods), attributes, {name: own for name, own in held.items() if own})
    return again.make_enum, args, state, None, None, again.finish_enum


def _is_made(name: str) -> bool:
    """Whether `enum` makes the attribute for every class or member."""
    if name.startswith("__"):
        return name in ("__objclass__", "__new__", "__reduce_ex__", "__members__")
    return name.startswith("_") and name.endswith("_")


def filling(_: Pickler, value: Filling) -> object:
    return again.fill_class, (value.kind, value.attributes)


# Modules


def module(_: Pickler, value: ModuleType) -> object:
    name = "__main__" if value is sys.modules.get("__main__") else import_name(value)
    if name is not None:
        return again.module, (name,)
    state = {name: held for name, held in vars(value).items() if name != "__builtins__"}
    return again.make_module, (value.__name__, value.__doc__), state, None, None, again.fill_module


# References and views


def reference(pickler: Pickler, value: Any) -> object:
    target: object = value()
    if target is None:
        return again.dead_reference, ()
    pickler.weak.append(target)
    kind = type(value)
    return again.make_reference, (target, value.__callback__, None if kind is ReferenceType else kind)


def weak_set(_: Pickler, value: Any) -> object:
    return type(value), (list(value),)


def weak_mapping(pickler: Pickler, value: Any) -> object:
    items: list[tuple[Any, Any]] = list(value.items())
    pickler.weak.extend(key if _name_of(type(value)) == "WeakKeyDictionary" else held for key, held in items)
    return type(value), (), None, None, iter(items)


def memory_view(_: Pickler, value: memoryview) -> object:
    holder: Any = value.obj
    whole = memoryview(holder)
    if not value.contiguous or value.nbytes != whole.nbytes:
        if not whole.readonly:
            raise Unsaved("a view of a part of memory that can change")
        return again.make_view, (value.tobytes(), value.format, value.shape, True)
    return again.make_view, (holder, value.format, value.shape, value.readonly)


def mapping_proxy(_: Pickler, value: MappingProxyType[Any, Any]) -> object:
    return MappingProxyType, (gc.get_referents(value)[0],)


def names_view(_: Pickler, value: Any) -> object:
    """`keys()`, `values()`, `items()` of a dict."""
    return again.names_view, (_name_of(type(value)).rpartition("_")[2], gc.get_referents(value)[0])


def match(_: Pickler, value: Any) -> object:
    for way in ("match", "fullmatch", "search"):
        found = getattr(value.re, way)(value.string, value.pos, value.endpos)
        if found is not None and found.regs == value.regs:
            return again.match_again, (value.re, way, value.string, value.pos, value.endpos)
    raise Unsaved("a match that cannot be found again")


def exception(pickler: Pickler, value: BaseException) -> object:
    if value.__traceback__ is not None:
        pickler.notes.append("without its traceback")
    kind = type(value)
    mine = [base for base in kind.__mro__ if _module_of(base) != "builtins"]
    if any("__reduce__" in _dict_of(base) or "__reduce_ex__" in _dict_of(base) for base in mine):
        return NotImplemented
    state = (value.__dict__ or None, value.__cause__, value.__context__, value.__suppress_context__)
    built_in = next(base for base in kind.__mro__ if _module_of(base) == "builtins")
    if built_in.__basicsize__ == BaseException.__basicsize__:
        return again.make_exception, (kind, value.args), state, None, None, again.fill_exception
    make, args, *_ = value.__reduce__()  # it holds more than its arguments, and knows how
    return make, args, state, None, None, again.fill_exception


def logger(pickler: Pickler, value: Any) -> object:
    if value.handlers or value.filters:
        pickler.notes.append("without its handlers and filters")
    return NotImplemented


def structure(_: Pickler, value: Any) -> object:
    return type(value), (value.format,)
