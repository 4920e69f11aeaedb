"""How values are taken apart that stand for others, or say less than they know: references, views, exceptions."""

from __future__ import annotations

from _weakref import ReferenceType
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from gc import get_referents
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from . import constructors
from .introspection import dict_of, kind_of, module_of, name_of
from .reasons import Unsaved

if TYPE_CHECKING:
    from .pickler import Pickler


def reference(pickler: Pickler, value: Any) -> object:
    target: object = value()
    if target is None:
        return constructors.dead_reference, ()
    pickler.found.may_differ = True  # whether something else keeps it
    kind = kind_of(value)
    return constructors.make_reference, (target, value.__callback__, None if kind is ReferenceType else kind)


def weak_set(pickler: Pickler, value: Any) -> object:
    pickler.found.may_differ = True
    kind = kind_of(value)
    return kind, (list(value),)


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


def mapping_proxy(_: Pickler, value: MappingProxyType[Any, Any]) -> object:
    return MappingProxyType, (get_referents(value)[0],)


def names_view(_: Pickler, value: Any) -> object:
    """`keys()`, `values()`, `items()` of a dict."""
    return constructors.names_view, (name_of(kind_of(value)).rpartition("_")[2], get_referents(value)[0])


def match(_: Pickler, value: Any) -> object:
    for way in ("match", "fullmatch", "search"):
        found = getattr(value.re, way)(value.string, value.pos, value.endpos)
        if found is not None and found.regs == value.regs:
            return constructors.match_again, (value.re, way, value.string, value.pos, value.endpos)
    raise Unsaved("a match that cannot be found again")


def collection(pickler: Pickler, value: Any) -> object:
    """Of a subclass, without its `__init__`: pickle would call it with arguments that are not its own."""
    pickler.seen[id(value)] = value
    kind = kind_of(value)
    base: Any = next(one for one in type.mro(kind) if one in COLLECTIONS)
    above = type.mro(kind)[: type.mro(kind).index(base)]
    if not above or any(way in dict_of(one) for one in above for way in ("__reduce__", "__reduce_ex__")):
        return NotImplemented
    args, items, pairs = COLLECTIONS[base](value)
    return constructors.make_collection, (base, kind, args), value.__getstate__(), items, pairs


def _pairs(value: Any) -> Any:
    return iter((OrderedDict if isinstance(value, OrderedDict) else dict).items(value))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType, reportUnknownVariableType]


COLLECTIONS: dict[type, Callable[[Any], tuple[tuple[Any, ...], Any, Any]]] = {
    OrderedDict: lambda value: ((), None, _pairs(value)),
    defaultdict: lambda value: ((value.default_factory,), None, _pairs(value)),
    deque: lambda value: (((), value.maxlen), _items(deque, value), None),
    set: lambda value: ((list(_items(set, value)),), None, None),
}
"""How each of them is made: arguments, items, pairs; whatever a subclass says it holds."""


def _items(base: Any, value: Any) -> Any:
    return base.__iter__(value)


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
    make, args, *_ = value.__reduce__()  # it holds more than its arguments, and knows how
    return make, args, state, None, None, constructors.fill_exception


def logger(pickler: Pickler, value: Any) -> object:
    if value.handlers or value.filters:
        pickler.found.notes.append("without its handlers and filters")
    return NotImplemented


def structure(_: Pickler, value: Any) -> object:
    kind = kind_of(value)
    return kind, (value.format,)
