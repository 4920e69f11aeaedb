"""Lazy loading of the names of a package."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from sys import modules


def lazy_names(module: str) -> Callable[[str], object]:
    """Return a `__getattr__` for a package that lists its names in its `if TYPE_CHECKING:` block."""
    homes: dict[str, str] = {}

    def get(name: str) -> object:
        if not homes:
            source = Path(modules[module].__file__ or "").read_text(encoding="utf-8")
            block = re.findall(r"^    from (\S+) import (\([^)]*\)|.*)$", source, re.MULTILINE)
            homes.update({one: home for home, names in block for one in re.findall(r"\w+", names)})
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get
