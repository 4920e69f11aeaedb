"""Adapts libraries to the session as they are imported. Imports none of them.

For pandas it counts what the program discards: values that `errors="coerce"` makes NaN, rows that `dropna` drops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType

from . import displays, mime_bundle

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

COERCING = ("to_numeric", "to_datetime", "to_timedelta")

_lost: dict[str, list[int]] = {}
_ours: list[object] = []


def take_loss_counts() -> list[tuple[str, int, int]]:
    """Return (function, lost, total) for each function that lost values or rows since the last call."""
    taken = [(what, lost, of) for what, (lost, of) in _lost.items()]
    _lost.clear()
    return taken


def _patch_pandas(pandas: ModuleType) -> None:
    for name in COERCING:
        _wrap(pandas, name, lambda function: _count_coerced(function, pandas.isna))
    for kind in (pandas.DataFrame, pandas.Series):
        _wrap(kind, "dropna", _count_dropped)


def _wrap(place: object, name: str, wrapped: Callable[[Any], Any]) -> None:
    from functools import wraps

    function = getattr(place, name)
    if not any(function is one for one in _ours):
        made = wraps(function)(wrapped(function))
        _ours.append(made)
        setattr(place, name, made)


def _count_coerced(function: Callable[..., Any], isna: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        if "coerce" in (options.get("errors"), *args[1:2]):
            with suppress(Exception):  # a single value, or a type of the program's own: not counted
                given = args[0] if args else options["arg"]
                after = int(isna(result).sum())
                if after:
                    _add(function.__name__, after - int(isna(given).sum()), len(given))
        return result

    return call


def _count_dropped(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        # pandas also calls it internally: only calls from a cell count.
        caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if not caller.f_code.co_filename.startswith("<cell "):
            return function(self, *args, **options)
        before = len(self)
        result = function(self, *args, **options)
        _add("dropna", before - len(self if result is None else result), before)
        return result

    return call


def _add(what: str, lost: int, of: int) -> None:
    if lost > 0:
        counted = _lost.setdefault(what, [0, 0])
        counted[0] += lost
        counted[1] += of


def _patch_pyplot(pyplot: ModuleType) -> None:

    def show(*_arguments: object, **_options: object) -> None:
        """Show all open figures."""
        mime_bundle.show_figures(displays.display)

    vars(pyplot)["show"] = show


def _patch_plotly(renderers: ModuleType) -> None:

    def show(figure: object, *_arguments: object, **_options: object) -> None:
        """Show the figure."""
        displays.display(figure)

    vars(renderers)["show"] = show


WATCHED: dict[str, Callable[[ModuleType], None]] = {
    "matplotlib.pyplot": _patch_pyplot,
    "pandas": _patch_pandas,
    "plotly.io._renderers": _patch_plotly,
    "IPython.core.display_functions": displays.patch_ipython,
}


class ImportHook:
    """Finds nothing itself; adds a step to the loading of the few modules in `WATCHED`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        adopt = WATCHED.get(name)
        if adopt is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                _add_step(spec, adopt)
                return spec
        return None


def _add_step(spec: ModuleSpec, adopt: Callable[[ModuleType], None]) -> None:
    loader = spec.loader
    if loader is None:
        return
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        adopt(module)

    loader.exec_module = exec_module


def install_hooks() -> None:
    """Install the hook, and adapt the modules that are already imported. Idempotent."""
    if not any(type(finder) is ImportHook for finder in sys.meta_path):
        sys.meta_path.insert(0, ImportHook())
    for name, adopt in WATCHED.items():
        if name in sys.modules:
            adopt(sys.modules[name])
