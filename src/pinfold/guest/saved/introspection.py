"""What types and modules say of themselves, and what a new process finds under its name.

Types are asked by way of `type`: a metaclass of the program's cannot get between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
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
    if type(module_name) is not str or type(path) is not str or module_name == SESSION:
        return False
    try:
        found: object = sys.modules.get(module_name)
        if found is None and module_name.partition(".")[0] in sys.modules:
            found = import_module(module_name)  # a package may name a part of it that is not loaded
        if import_name(found) is None:
            return False
        for name in path.split("."):
            found = getattr(found, name)
    except Exception:  # no such module, or no such name in it
        return False
    return found is value


def full_name(value: Any) -> str | None:
    """`module:name` of a library's class or function, under which a new process finds it."""
    if not callable(value):
        return None
    if module_of(kind_of(value)) == SESSION:  # an object of the session's, or a class of a kind of its own
        return None
    module_name, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module_name}:{path}" if is_named(value, module_name, path) else None


def find_in_modules(wanted: Mapping[int, str], but: dict[str, object]) -> dict[str, str]:
    """Of these objects, by number, the names of those that a module keeps too, with the module's name."""
    found: dict[str, str] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name in ("builtins", "sys") or type(module) is not ModuleType or vars(module) is but:
            continue
        for key in wanted.keys() & set(map(id, vars(module).values())):
            found.setdefault(wanted[key], module_name)
    return found


def find_in_library(kind: type) -> dict[int, tuple[str, str]]:
    """Values of a class that its own module keeps under a name: `dataclasses.MISSING` is one wherever it is.

    Only those that are not changed: of the standard library's, and of others those that hold nothing.
    """
    module_name = module_of(kind)
    module = sys.modules.get(module_name) if type(module_name) is str else None
    if module is None or module_name == SESSION or import_name(module) is None:
        return {}
    is_standard = module_name.partition(".")[0] in sys.stdlib_module_names
    return {
        id(held): (module_name, name)
        for name, held in vars(module).items()
        if type(held) is kind and (is_standard or is_empty(held))
    }


def is_empty(value: object) -> bool:
    """Whether it can hold nothing: all it is good for is being itself."""
    kind = type(value)
    return kind.__itemsize__ == 0 and kind.__basicsize__ <= 32 and not getattr(value, "__dict__", None)


def inner_modules(name: str) -> list[str]:
    """`import xml.dom` binds `xml` only; a new process must import the rest of it as well."""
    loaded = [one for one in list(sys.modules) if type(one) is str and one.startswith(f"{name}.")]
    return sorted(one for one in loaded if "._" not in one and import_name(sys.modules.get(one)) == one)
