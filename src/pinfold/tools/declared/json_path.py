"""Picks a part out of JSON: `data.items.0.name`, and `*` for each of a list."""

from __future__ import annotations

from typing import Any, cast

from pinfold.events import Json


def select(value: Json, path: str) -> Json:
    """Raises LookupError with the first step that leads nowhere."""
    return _select_steps(value, [step for step in path.replace("[", ".").replace("]", "").split(".") if step], "")


def _select_steps(value: Json, steps: list[str], so_far: str) -> Json:
    if not steps:
        return value
    step, *rest = steps
    here = f"{so_far}.{step}".lstrip(".")
    if step == "*" and isinstance(value, list):
        return [_select_steps(item, rest, here) for item in cast("list[Json]", value)]
    if isinstance(value, dict) and step in value:
        return _select_steps(cast("dict[str, Json]", value)[step], rest, here)
    if isinstance(value, list) and step.lstrip("-").isdecimal():
        items = cast("list[Any]", value)
        if -len(items) <= int(step) < len(items):
            return _select_steps(items[int(step)], rest, here)
    raise LookupError(repr(here))
