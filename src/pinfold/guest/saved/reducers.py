"""Reducers for values that pickle alone cannot save, or saves wrongly: code, classes, references, views.

A reducer returns what `__reduce__` would, or NotImplemented to leave the value to pickle.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from gc import get_referents
from importlib.util import MAGIC_NUMBER
from marshal import dumps
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import constructors
from .introspection import SESSION, Unsaved, dict_of, import_name, is_named, kind_of, module_of, name_of

if TYPE_CHECKING:
    from .pickler import Pickler

    Reducer = Callable[[Pickler, Any], Any]

MARSHAL = 2 if sys.version_info < (3, 14) else 5
"""The last format without back references, with which the bytes depend on the reference counts of constants."""
_STATE = "__defaults__ __kwdefaults__ __annotations__ __doc__ __module__ __qualname__ __type_params__ __dict__"
FUNCTION_STATE = tuple(_STATE.split())
CLASS_START = ("__module__", "__qualname__", "__slots__", "__orig_bases__", "__classcell__")
"""Attributes given when a class is made; all others are set afterwards, so that a class can hold itself."""
NOT_CLASS_STATE = ("__dict__", "__weakref__", "_abc_impl", "__classdictcell__", "__annotate_func__", "__slotnames__")
HEAP_TYPE = 1 << 9
"""The type flag of classes that were made at run time."""
COMPILED = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
BEHAVIOUR = (types.FunctionType, staticmethod, classmethod, property)


class ClassMethods(NamedTuple):
    """The methods of a class, which are restored before its other attributes are read."""

    kind: type
    attributes: dict[str, Any]


class ModuleGlobals(NamedTuple):
    """The globals of a module that a new process can import too."""

    module: str


def has_name(value: object) -> bool:
    """Return True if a new process finds the value under its `__module__` and `__qualname__`."""
    return is_named(value, getattr(value, "__module__", None), getattr(value, "__qualname__", None))


# Code


def code(_: Pickler, value: types.CodeType) -> object:
    return constructors.make_code, (MAGIC_NUMBER, dumps(value, MARSHAL))


def cell(_: Pickler, value: types.CellType) -> object:
    try:
        content = value.cell_contents
    except ValueError:  # the cell is empty
        return types.CellType, ()
    return types.CellType, (), (content,), None, None, constructors.fill_cell


def function(pickler: Pickler, value: types.FunctionType) -> object:
    if has_name(value):
        return NotImplemented
    state = {name: held for name in FUNCTION_STATE if (held := getattr(value, name, None))}
    args = (value.__code__, _globals_of(pickler, value), value.__name__, None, value.__closure__)
    return types.FunctionType, args, state, None, None, constructors.fill_function


def _globals_of(pickler: Pickler, value: types.FunctionType) -> object:
    names = value.__globals__
    if names is pickler.graph.namespace:
        return names
    module = sys.modules.get(names.get("__name__", ""))
    name = import_name(module)
    if name is not None and vars(module) is names:
        return ModuleGlobals(name)
    if "__spec__" in names and "__loader__" in names:
        raise Unsaved("a function of a module that cannot be imported again")
    return names


def names(_: Pickler, value: ModuleGlobals) -> object:
    return constructors.attribute, (value.module, "__dict__")


def method(_: Pickler, value: types.MethodType) -> object:
    return types.MethodType, (value.__func__, value.__self__)


def wrapped_method(_: Pickler, value: staticmethod[..., Any] | classmethod[Any, ..., Any]) -> object:
    return type(value), (value.__func__,)


def property_(_: Pickler, value: property) -> object:
    return property, (value.fget, value.fset, value.fdel, value.__doc__)


def cached_property(_: Pickler, value: Any) -> object:
    return constructors.make_cached_property, (value.func, value.attrname, value.__doc__)


def cached_function(_: Pickler, value: Any) -> object:
    if has_name(value):
        return NotImplemented
    options = value.cache_parameters()
    attributes: dict[str, Any] = dict(value.__dict__)
    return constructors.make_cached, (attributes.pop("__wrapped__"), options["maxsize"], options["typed"], attributes)


def descriptor(_: Pickler, value: Any) -> object:
    if getattr(value.__objclass__, value.__name__, None) is not value:
        raise Unsaved("an internal attribute of a class")
    return getattr, (value.__objclass__, value.__name__)


def new_type(_: Pickler, value: Any) -> object:
    if has_name(value):
        return NotImplemented
    return constructors.make_new_type, (value.__name__, value.__supertype__, value.__module__)


def type_variable(_: Pickler, value: Any) -> object:
    if is_named(value, value.__module__, value.__name__):
        return NotImplemented
    kind = name_of(kind_of(value))
    options = {"covariant": value.__covariant__, "contravariant": value.__contravariant__}
    if getattr(value, "__infer_variance__", False):
        options = {"infer_variance": True}
    if value.__bound__ is not None:
        options["bound"] = value.__bound__
    constraints = getattr(value, "__constraints__", ())
    return constructors.make_type_variable, (kind, value.__name__, constraints, options, value.__module__)


def type_alias(_: Pickler, value: Any) -> object:
    if is_named(value, value.__module__, value.__name__):
        return NotImplemented
    return constructors.make_type_alias, (value.__name__, value.__value__, value.__type_params__)


# Classes


def class_(_: Pickler, value: type) -> object:
    if value in _UNNAMED or is_named(value, module_of(value), value.__qualname__):
        return NotImplemented
    if not value.__flags__ & HEAP_TYPE:
        return _built_in(value)
    enum = sys.modules.get("enum")
    if enum is not None and issubclass(value, enum.Enum):
        return _enum(value)
    own = dict(dict_of(value))
    start = {name: own.pop(name) for name in CLASS_START if name in own}
    methods, attributes = _parts(value, own)
    args = (_meta(value), name_of(value), value.__bases__, start)
    state = (ClassMethods(value, methods), attributes, _virtual_subclasses(value))
    return constructors.make_class, args, state, None, None, constructors.finish_class


_UNNAMED = (type(None), type(Ellipsis), type(NotImplemented))
"""Types without an importable name, which pickle handles by itself."""


def _meta(kind: type) -> type | None:
    """Return the metaclass; None if it is that of the first base, as that metaclass need not have a name."""
    return None if type(kind) is type(kind.__bases__[0]) else type(kind)


def _built_in(kind: type) -> object:
    """Find a built-in type by a name other than its own, such as `types.MappingProxyType`."""
    for module_name in ("types", "typing", "collections.abc"):
        for name, held in vars(sys.modules.get(module_name, types)).items():
            if held is kind:
                return constructors.attribute, (module_name, name)
    raise Unsaved(f"the built-in type {name_of(kind)} has no name to find it by")


def _parts(kind: type, own: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    methods: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, held in own.items():
        if name in NOT_CLASS_STATE:
            continue
        if type(held) in (types.MemberDescriptorType, types.GetSetDescriptorType) and held.__objclass__ is kind:
            continue  # made by Python for the slots of the class
        if type(held) in COMPILED and held.__objclass__ is kind:
            raise Unsaved(f"the class {name_of(kind)} is not written in Python, and has no name to find it by")
        if name_of(kind_of(held)) == "CField" and module_of(kind_of(held)) == "_ctypes":
            continue  # made by ctypes for its `_fields_`
        (methods if isinstance(held, BEHAVIOUR) else attributes)[name] = held
    return methods, attributes


def _virtual_subclasses(kind: type) -> list[type] | None:
    """Return the classes registered with an abstract class; None for a class that is not abstract."""
    abc = sys.modules.get("_abc")
    if abc is None or "_abc_impl" not in dict_of(kind):
        return None
    found: list[Any] = [reference() for reference in abc._get_dump(kind)[0]]  # noqa: SLF001 - there is no other way
    return sorted((one for one in found if one is not None), key=name_of)


def _enum(kind: Any) -> object:
    meta = kind_of(kind)
    own = dict(dict_of(kind))
    members = {name: member.value for name, member in kind.__members__.items()}
    held = {
        name: {key: own for key, own in member.__dict__.items() if not _is_generated(key)}
        for name, member in kind.__members__.items()
        if name == member.name
    }
    methods, attributes = _parts(kind, {key: own[key] for key in own if key not in members})
    attributes = {key: attributes[key] for key in attributes if not _is_generated(key)}
    start = {name: own[name] for name in ("__module__", "__qualname__") if name in own}
    methods.pop("__new__", None)  # the `__new__` that enum sets only looks members up
    args = (meta, name_of(kind), kind.__bases__, start, members)
    state = (ClassMethods(kind, methods), attributes, {name: more for name, more in held.items() if more})
    return constructors.make_enum, args, state, None, None, constructors.finish_enum


def _is_generated(name: str) -> bool:
    """Return True if `enum` makes the attribute for every class or member."""
    if name.startswith("__"):
        return name in ("__objclass__", "__new__", "__reduce_ex__", "__members__")
    return name.startswith("_") and name.endswith("_")


def class_methods(_: Pickler, value: ClassMethods) -> object:
    return constructors.fill_class, (value.kind, value.attributes)


# Instances of the session's classes


def plain_of(kind: type) -> type | None:
    """Return the built-in base class, if only classes of the session are between it and `kind`."""
    for base in type.mro(kind)[1:]:
        if base in PLAIN:
            return base
        if module_of(base) != SESSION:
            return None
    return None


def instance(value: object, plain: type | None, attributes: dict[str, Any] | None) -> Any:
    """As pickle does it, but without the class's `__new__`, or with the same dict object for the attributes."""
    make, args, *rest = value.__reduce_ex__(5)
    state, items, pairs = (*rest, None, None, None)[:3]
    if plain is not None:
        make, args = constructors.make_value, (plain, kind_of(value), PLAIN[plain](value))
    if attributes is None:
        return make, args, state, items, pairs
    slots = cast("tuple[Any, Any]", state)[1] if type(state) is tuple else None
    return make, args, (attributes, slots), items, pairs, constructors.fill_instance


PLAIN: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    complex: complex.__pos__,
    float: float.__pos__,
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType, reportUnknownArgumentType]
    int: int.__pos__,
    str: str.__str__,
    tuple: lambda value: tuple.__getitem__(value, slice(None)),  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
}
"""How to get the plain value from an instance of a subclass, even if the subclass overrides its methods."""


# Modules


def module(_: Pickler, value: types.ModuleType) -> object:
    name = "__main__" if value is sys.modules.get("__main__") else import_name(value)
    if name is not None:
        return constructors.module, (name,)
    state = {name: held for name, held in vars(value).items() if name != "__builtins__"}
    return types.ModuleType, (value.__name__, value.__doc__), state, None, None, constructors.fill_module


# References, views and other values whose content pickle does not see


def reference(pickler: Pickler, value: Any) -> object:
    target: object = value()
    if target is None:
        return constructors.dead_reference, ()
    pickler.found.may_differ = True  # the target survives only if something else holds it
    return kind_of(value), (target, value.__callback__)


def weak_set(pickler: Pickler, value: Any) -> object:
    pickler.found.may_differ = True
    return kind_of(value), (list(value),)


def weak_mapping(pickler: Pickler, value: Any) -> object:
    pickler.found.may_differ = True
    return kind_of(value), (), None, None, iter(list(value.items()))


def memory_view(_: Pickler, value: memoryview) -> object:
    holder: Any = value.obj
    whole = memoryview(holder)
    if not value.contiguous or value.nbytes != whole.nbytes:
        if not whole.readonly:
            raise Unsaved("a view of a part of memory that can change")
        return constructors.make_view, (value.tobytes(), value.format, value.shape, True)
    return constructors.make_view, (holder, value.format, value.shape, value.readonly)


def mapping_proxy(_: Pickler, value: types.MappingProxyType[Any, Any]) -> object:
    return types.MappingProxyType, (get_referents(value)[0],)


def names_view(_: Pickler, value: object) -> object:
    """Reduce `keys()`, `values()` or `items()` of a dict."""
    return getattr(get_referents(value)[0], name_of(kind_of(value)).rpartition("_")[2]), ()


def match(_: Pickler, value: Any) -> object:
    for way in ("match", "fullmatch", "search"):
        found = getattr(value.re, way)(value.string, value.pos, value.endpos)
        if found is not None and found.regs == value.regs:
            return getattr(value.re, way), (value.string, value.pos, value.endpos)
    raise Unsaved("a match that cannot be repeated")


def collection(pickler: Pickler, value: object) -> object:
    """Reduce a subclass of a collection without its `__init__`, which pickle would call with the wrong arguments."""
    pickler.seen[id(value)] = value
    kind = kind_of(value)
    base: Any = next(one for one in type.mro(kind) if one in COLLECTIONS)
    above = type.mro(kind)[: type.mro(kind).index(base)]
    if not above or any(way in dict_of(one) for one in above for way in ("__reduce__", "__reduce_ex__")):
        return NotImplemented
    args, items, pairs = COLLECTIONS[base](value)
    return constructors.make_collection, (base, kind, args), value.__getstate__(), items, pairs


_ordered: Any = OrderedDict
_deque: Any = deque
_set: Any = set
COLLECTIONS: dict[type, Callable[[Any], tuple[tuple[Any, ...], Any, Any]]] = {
    OrderedDict: lambda value: ((), None, iter(_ordered.items(value))),
    defaultdict: lambda value: ((value.default_factory,), None, iter(dict[Any, Any].items(value))),
    deque: lambda value: (((), value.maxlen), _deque.__iter__(value), None),
    set: lambda value: ((list(_set.__iter__(value)),), None, None),
}
"""How each type is made: arguments, items, pairs. Reads the real content, even if a subclass overrides its methods."""


def exception(pickler: Pickler, value: BaseException) -> object:
    pickler.seen[id(value)] = value
    if value.__traceback__ is not None:
        pickler.found.notes.append("without its traceback")
    kind = type(value)
    mine = [base for base in kind.__mro__ if module_of(base) != "builtins"]
    if any("__reduce__" in dict_of(base) or "__reduce_ex__" in dict_of(base) for base in mine):
        return NotImplemented
    state = (value.__dict__ or None, value.__cause__, value.__context__, value.__suppress_context__)
    built_in = next(base for base in kind.__mro__ if module_of(base) == "builtins")
    if built_in.__basicsize__ == BaseException.__basicsize__:
        return constructors.make_exception, (kind, value.args), state, None, None, constructors.fill_exception
    make, args, *_ = value.__reduce__()  # it holds more than its arguments, and its own `__reduce__` covers that
    return make, args, state, None, None, constructors.fill_exception


def logger(pickler: Pickler, value: Any) -> object:
    if value.handlers or value.filters:
        pickler.found.notes.append("without its handlers and filters")
    return NotImplemented


def structure(_: Pickler, value: Any) -> object:
    return kind_of(value), (value.format,)
