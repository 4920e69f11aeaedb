"""What a type says of itself, asked of `type`: a metaclass of the program's cannot get between."""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

kind_of: Callable[[object], type[Any]] = type
"""Its type, without what a type checker thinks of that."""
name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
module_of: Callable[[type], Any] = type.__dict__["__module__"].__get__
dict_of: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
SESSION = "__main__"
"""The module of the session's own classes and functions."""


def paths_of(kind: type) -> list[str]:
    """The full names of a class and its bases, nearest first."""
    return [f"{module_of(base)}.{name_of(base)}" for base in type.mro(kind)]


def of_session(kind: type) -> list[type]:
    """Those of its bases, and itself, that the session defined."""
    return [base for base in type.mro(kind) if module_of(base) == SESSION]
