"""Whether a value that was read back is what was saved. Looks at types, plain values and who shares what.

A library's own objects are taken at their type: what they keep inside is theirs to know.
"""

from __future__ import annotations

from _weakref import ReferenceType
from collections import OrderedDict
from types import CodeType, FunctionType

from .pickling import ATOMS, has_own_ways

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

PAIRS = 100_000
"""Compared of one variable; a larger one is sampled by its beginning."""

_name_of = type.__dict__["__name__"].__get__
_module_of = type.__dict__["__module__"].__get__
_dict_of = type.__dict__["__dict__"].__get__


class Comparison:
    """Of one part: `difference` is why it must not be called restored, `notes` what the user should know."""

    def __init__(self) -> None:
        self.difference: str | None = None
        self.notes: list[str] = []
        self._ahead: list[tuple[Any, Any]] = []
        self._twins: dict[int, object] = {}
        self._keep: list[object] = []

    def compare(self, saved: object, read: object) -> str | None:
        self._ahead = [(saved, read)]
        for _ in range(PAIRS):
            if not self._ahead:
                break
            self.difference = self._pair(*self._ahead.pop())
            if self.difference is not None:
                break
        return self.difference

    def _pair(self, saved: Any, read: Any) -> str | None:
        if saved is read:
            return None
        kind = type(saved)
        if not _same_type(kind, type(read)):
            return f"it would come back as {_article(type(read))}, not {_article(kind)}"
        if kind in ATOMS:
            return None if _same_atom(saved, read) else "it would come back with another value"
        if id(saved) in self._twins:
            if self._twins[id(saved)] is read or kind in (tuple, frozenset, CodeType):
                return None
            return f"{_article(kind)} it holds twice would come back as two"
        self._twins[id(saved)] = read
        self._keep.append(saved)
        return self._inside(kind, saved, read)

    def _inside(self, kind: type, saved: Any, read: Any) -> str | None:
        if issubclass(kind, ReferenceType):
            is_gone = read() is None and saved() is not None
            return "what it refers to is not kept by any saved variable" if is_gone else None
        if kind is FunctionType:
            if saved.__code__ != read.__code__:
                return "its code would come back different"
            self._push((saved.__defaults__, read.__defaults__), (saved.__kwdefaults__, read.__kwdefaults__))
            return None
        if issubclass(kind, (list, tuple, dict, set, frozenset)):
            return self._container(kind, saved, read)
        if _module_of(kind) == "__main__" and not issubclass(kind, type):
            return self._instance(kind, saved, read)
        return None

    def _container(self, kind: type, saved: Any, read: Any) -> str | None:
        base: Any = next(one for one in (list, tuple, dict, set, frozenset) if issubclass(kind, one))
        if has_own_ways(kind):
            return None
        if base.__len__(saved) != base.__len__(read):
            return f"it would come back with {base.__len__(read)} items, not {base.__len__(saved)}"
        if base is dict:
            items = OrderedDict.items if issubclass(kind, OrderedDict) else dict.items  # it has an order of its own
            self._push(*zip(items(saved), items(read), strict=True))
        elif base in (list, tuple):
            self._push(*zip(base.__iter__(saved), base.__iter__(read), strict=True))
        return self._instance(kind, saved, read) if _module_of(kind) == "__main__" else None

    def _instance(self, kind: type, saved: Any, read: Any) -> str | None:
        """Of a class of the session's own. One that says itself what to save is believed, and what is not there is said."""
        before, after = _attributes(saved), _attributes(read)
        pairs = [(name, before[name], after[name]) for name in before if name in after]
        if not has_own_ways(kind):
            self._push(*(pair[1:] for pair in pairs))
            missing = [name for name in before if name not in after]
            return f"it would come back without {', '.join(missing[:5])}" if missing else None
        if "__eq__" in _dict_of(kind) and _is_unequal(saved, read):
            return "what would come back is not equal to it"
        left_out = [name for name in before if name not in after]
        other = [name for name, old, new in pairs if type(old) in ATOMS and not _same_atom(old, new)]
        if left_out:
            self.notes.append(f"without {', '.join(left_out[:5])}, which {_name_of(kind)} leaves out")
        if other:
            self.notes.append(f"with {', '.join(other[:5])} as {_name_of(kind)} sets it anew")
        return None

    def _push(self, *pairs: tuple[object, object]) -> None:
        self._ahead.extend(pairs[:PAIRS])


def _same_type(saved: type, read: type) -> bool:
    """A class that was read back as well is another object, with the same name."""
    if saved is read:
        return True
    return (_module_of(saved), _name_of(saved)) == (_module_of(read), _name_of(read)) and "__main__" in (
        _module_of(saved),
        _module_of(type(saved)),
    )


def _is_unequal(saved: Any, read: Any) -> bool:
    """In the eyes of its own class, if that can see."""
    try:
        return bool(saved == saved) and not saved == read  # noqa: PLR0124, SIM201 - what it says of itself first
    except Exception:
        return False


def _same_atom(saved: Any, read: Any) -> bool:
    return type(saved) is type(read) and (saved == read or saved != saved)  # noqa: PLR0124 - not a number is not itself


def _attributes(value: object) -> dict[str, object]:
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        found = None
    attributes: dict[str, object] = dict(found) if type(found) is dict else {}  # pyright: ignore[reportUnknownArgumentType]
    for base in type.mro(type(value)):
        slots = _dict_of(base).get("__slots__", ())
        for name in (slots,) if type(slots) is str else slots:
            try:
                attributes[name] = object.__getattribute__(value, name)
            except (AttributeError, TypeError):
                continue
    return attributes


def _article(kind: type) -> str:
    name = _name_of(kind)
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
