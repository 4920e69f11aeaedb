"""Whether a call's arguments fit, and the words for a model whose do not. Repairs nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pinfold.events import Json
from pinfold.text import cap_text
from pinfold.tools.arguments import Argument
from pinfold.tools.errors import ToolFailed

if TYPE_CHECKING:
    import pydantic
    from pydantic_core import ErrorDetails

_FAULTS = 5
"""Told of one call; more does not help."""
_GIVEN = 60


def check_arguments(
    tool: str, model: type[pydantic.BaseModel], arguments: Sequence[Argument], args: Json
) -> dict[str, Any]:
    """Arguments fit for the function, or ToolFailed saying exactly what to fix."""
    import pydantic

    if not isinstance(args, Mapping):
        raise ToolFailed(f"wrong arguments for {tool}: they must be an object, not {_short(args)}; {_takes(arguments)}")
    try:
        given = model.model_validate(args)
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False)
        words = [_fault(fault, arguments) for fault in faults[:_FAULTS]]
        if len(faults) > _FAULTS:
            words.append(f"and {len(faults) - _FAULTS} more")
        if any(len(fault["loc"]) == 1 and fault["type"] in ("missing", "extra_forbidden") for fault in faults):
            words.append(_takes(arguments))
        raise ToolFailed(f"wrong arguments for {tool}: {'; '.join(words)}") from error
    return {field.alias or name: getattr(given, name) for name, field in type(given).model_fields.items()}


def _fault(fault: ErrorDetails, arguments: Sequence[Argument]) -> str:
    from difflib import get_close_matches

    where = ".".join(map(str, fault["loc"]))
    known = [argument.name for argument in arguments] if len(fault["loc"]) == 1 else []
    match fault["type"]:
        case "missing":
            told = next((a.description for a in arguments if known and a.name == where), "")
            return f"{where!r} is missing" + (f" ({cap_text(told, 200)})" if told else "")
        case "extra_forbidden" | "unexpected_keyword_argument":
            near = get_close_matches(where, known, n=1)
            return f"unknown argument {where!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        case _:
            said = fault["msg"].removeprefix("Input ").removeprefix("Value error, ")
            return f"{where!r} {said}, not {_short(fault['input'])}"


def _takes(arguments: Sequence[Argument]) -> str:
    if not arguments:
        return "it takes none"
    parts = [
        argument.name if argument.is_required or argument.default is None else f"{argument.name}={argument.default!r}"
        for argument in arguments
    ]
    needed = [argument.name for argument in arguments if argument.is_required]
    more = "" if len(needed) == len(arguments) else f", of which {' and '.join(needed) or 'none'} must be given"
    return f"it takes {', '.join(parts)}{more}"


def _short(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _GIVEN else f"{text[: _GIVEN - 3]}..."
