"""Counts what pandas drops on request: values that `errors="coerce"` makes NaN, rows that `dropna` leaves out.

Never imports pandas. Its functions do what they did; what they return is only looked at.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

COERCING = ("to_numeric", "to_datetime", "to_timedelta")

_lost: dict[str, list[int]] = {}
_ours: list[object] = []


def take_counts() -> list[tuple[str, int, int]]:
    """By what, how many, of how many: since the last time."""
    if not _lost:
        return []
    taken = [(what, lost, of) for what, (lost, of) in _lost.items()]
    _lost.clear()
    return taken


def patch_pandas(pandas: ModuleType) -> None:
    for name in COERCING:
        _wrap(pandas, name, lambda function: _count_coerced(function, pandas.isna))
    for kind in (pandas.DataFrame, pandas.Series):
        _wrap(kind, "dropna", _count_dropped)


def _wrap(place: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
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
            try:
                given = args[0] if args else options["arg"]
                after = int(isna(result).sum())
                if after:
                    _add(function.__name__, after - int(isna(given).sum()), len(given))
            except Exception:  # noqa: S110 - one value, or something of the program's own: it is not counted
                pass
        return result

    return call


def _count_dropped(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        # pandas calls it for purposes of its own as well.
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
