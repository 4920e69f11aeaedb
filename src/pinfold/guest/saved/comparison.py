"""Checks whether a value that was read back equals what was saved: types, plain values, and shared references.

Of a library's objects only the type is compared, not what they hold.
"""

from __future__ import annotations

from _weakref import ReferenceType
from collections import OrderedDict
from contextlib import suppress
from types import CellType, CodeType, FunctionType
from typing import Any, cast

from .introspection import SESSION, dict_of, kind_of, module_of, name_of
from .pickler import ATOMS, has_own_ways
from .reducers import PLAIN

PAIRS = 100_000
"""Most pairs of values to compare for one variable; of a larger one only the beginning is compared."""

ITEMS: tuple[tuple[Any, str], ...] = (
    (OrderedDict, "items"),  # before its base class, because it has its own order
    (dict, "items"),
    (list, "__iter__"),
    (tuple, "__iter__"),
    (set, ""),
    (frozenset, ""),
)
"""Types to compare item by item, reading the real content even if a subclass overrides its methods."""
NOT_KEPT = "no saved variable holds what it refers to"
OTHER_VALUE = "it would come back with another value"


class Comparison:
    """Compares one variable. `notes`: what the user should know about it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._ahead: list[tuple[Any, Any]] = []
        self._twins: dict[int, object] = {}
        self._keep: list[object] = []

    def compare(self, saved: object, read: object) -> str | None:
        """Return why the value would not be restored correctly, or None."""
        self._ahead = [(saved, read)]
        for _ in range(PAIRS):
            if not self._ahead:
                break
            difference = self._pair(*self._ahead.pop())
            if difference is not None:
                return difference
        return None

    def _pair(self, saved: object, read: object) -> str | None:
        if saved is read:
            return None
        kind, other = kind_of(saved), kind_of(read)
        if not _same_type(kind, other):
            return f"it would come back as {_article(other)}, not {_article(kind)}"
        if kind in ATOMS:
            return None if _same_atom(saved, read) else OTHER_VALUE
        if id(saved) in self._twins:
            if self._twins[id(saved)] is read or kind in (tuple, frozenset, CodeType):
                return None
            return f"{_article(kind)} it holds twice would come back as two"
        self._twins[id(saved)] = read
        self._keep.append(saved)
        return self._inside(kind, saved, read)

    def _inside(self, kind: Any, saved: Any, read: Any) -> str | None:
        if issubclass(kind, ReferenceType):
            is_gone = read() is None and saved() is not None
            return NOT_KEPT if is_gone else None
        if kind is FunctionType:
            if saved.__code__ != read.__code__:
                return "its code would come back different"
            self._push((saved.__defaults__, read.__defaults__), (saved.__kwdefaults__, read.__kwdefaults__))
            self._push(*zip(map(_content, saved.__closure__ or ()), map(_content, read.__closure__ or ()), strict=True))
            return None
        if module_of(kind) in ("weakref", "_weakrefset") and len(saved) != len(read):
            return NOT_KEPT
        if issubclass(kind, tuple(base for base, _ in ITEMS)):
            return self._container(kind, saved, read)
        if module_of(kind) != SESSION or issubclass(kind, type):
            return None
        for base in (int, float, complex, str, bytes):
            if issubclass(kind, base) and not _same_atom(PLAIN[base](saved), PLAIN[base](read)):
                return OTHER_VALUE
        return self._instance(kind, saved, read)

    def _container(self, kind: type, saved: object, read: object) -> str | None:
        if has_own_ways(kind):
            return None
        base, items = next((base, items) for base, items in ITEMS if issubclass(kind, base))
        if base.__len__(saved) != base.__len__(read):
            return f"it would come back with {base.__len__(read)} items, not {base.__len__(saved)}"
        if items:
            of: Any = getattr(base, items)
            self._push(*zip(of(saved), of(read), strict=True))
        return self._instance(kind, saved, read) if module_of(kind) == SESSION else None

    def _instance(self, kind: Any, saved: Any, read: Any) -> str | None:
        """Compare instances of a session's class. If it defines its own pickling, most differences become notes."""
        before, after = _attributes(saved), _attributes(read)
        pairs = [(name, before[name], after[name]) for name in before if name in after]
        left_out = [name for name in before if name not in after]
        if not has_own_ways(kind):
            self._push(*(pair[1:] for pair in pairs))
            return f"it would come back without {', '.join(left_out[:5])}" if left_out else None
        if "__eq__" in dict_of(kind) and _is_unequal(saved, read):
            return "what would come back is not equal to it"
        other = [name for name, old, new in pairs if type(old) in ATOMS and not _same_atom(old, new)]
        if left_out:
            self.notes.append(f"without {', '.join(left_out[:5])}, which {name_of(kind)} leaves out")
        if other:
            self.notes.append(f"with {', '.join(other[:5])} as {name_of(kind)} sets it anew")
        return None

    def _push(self, *pairs: tuple[object, object]) -> None:
        self._ahead.extend(pairs[:PAIRS])


def _same_type(saved: type, read: type) -> bool:
    """Return True if the types match. A session's class that was read back too is another object with the same name."""
    if saved is read:
        return True
    is_sessions = SESSION in (module_of(saved), module_of(type(saved)))
    return is_sessions and (module_of(saved), name_of(saved)) == (module_of(read), name_of(read))


def _content(cell: CellType) -> object:
    with suppress(ValueError):  # the cell is empty
        return cell.cell_contents
    return None


def _is_unequal(saved: object, read: object) -> bool:
    """Return True if the class's own `__eq__` says that the values differ, unless it fails or is not reflexive."""
    try:
        return bool(saved == saved) and not saved == read  # noqa: PLR0124, SIM201 - what it says of itself first
    except Exception:
        return False


def _same_atom(saved: object, read: object) -> bool:
    return type(saved) is type(read) and (saved == read or saved != saved)  # noqa: PLR0124 - not a number is not itself


def _attributes(value: object) -> dict[str, object]:
    found: object = None
    with suppress(AttributeError):
        found = object.__getattribute__(value, "__dict__")
    attributes = dict(cast("dict[str, object]", found)) if type(found) is dict else {}
    for base in type.mro(type(value)):
        slots = dict_of(base).get("__slots__", ())
        for name in (slots,) if type(slots) is str else slots:
            with suppress(AttributeError, TypeError):
                attributes[name] = object.__getattribute__(value, name)
    return attributes


def _article(kind: type) -> str:
    name = name_of(kind)
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
