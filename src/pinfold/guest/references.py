"""How values are taken apart that stand for others, or say less than they know: references, views, exceptions."""

from __future__ import annotations

import gc
from _weakref import ReferenceType
from types import MappingProxyType

from . import rebuilding as again
from .kinds import dict_of, kind_of, module_of, name_of
from .reasons import Unsaved

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

    from .pickling import Pickler


def reference(pickler: Pickler, value: Any) -> object:
    target: object = value()
    if target is None:
        return again.dead_reference, ()
    pickler.found.may_differ = True  # whether anybody else keeps it
    kind = kind_of(value)
    return again.make_reference, (target, value.__callback__, None if kind is ReferenceType else kind)


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
        return again.make_view, (value.tobytes(), value.format, value.shape, True)
    return again.make_view, (holder, value.format, value.shape, value.readonly)


def mapping_proxy(_: Pickler, value: MappingProxyType[Any, Any]) -> object:
    return MappingProxyType, (gc.get_referents(value)[0],)


def names_view(_: Pickler, value: Any) -> object:
    """`keys()`, `values()`, `items()` of a dict."""
    return again.names_view, (name_of(kind_of(value)).rpartition("_")[2], gc.get_referents(value)[0])


def match(_: Pickler, value: Any) -> object:
    for way in ("match", "fullmatch", "search"):
        found = getattr(value.re, way)(value.string, value.pos, value.endpos)
        if found is not None and found.regs == value.regs:
            return again.match_again, (value.re, way, value.string, value.pos, value.endpos)
    raise Unsaved("a match that cannot be found again")


def exception(pickler: Pickler, value: BaseException) -> object:
    if value.__traceback__ is not None:
        pickler.found.notes.append("without its traceback")
    kind = type(value)
    mine = [base for base in kind.__mro__ if module_of(base) != "builtins"]
    if any("__reduce__" in dict_of(base) or "__reduce_ex__" in dict_of(base) for base in mine):
        return NotImplemented
    state = (value.__dict__ or None, value.__cause__, value.__context__, value.__suppress_context__)
    built_in = next(base for base in kind.__mro__ if module_of(base) == "builtins")
    if built_in.__basicsize__ == BaseException.__basicsize__:
        return again.make_exception, (kind, value.args), state, None, None, again.fill_exception
    make, args, *_ = value.__reduce__()  # it holds more than its arguments, and knows how
    return make, args, state, None, None, again.fill_exception


def logger(pickler: Pickler, value: Any) -> object:
    if value.handlers or value.filters:
        pickler.found.notes.append("without its handlers and filters")
    return NotImplemented


def structure(_: Pickler, value: Any) -> object:
    kind = kind_of(value)
    return kind, (value.format,)
