"""What the tools of the bench say of their results: read off real ones, as `tests/app/bench` holds."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, cast

from pinfold.events import Json

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


@cache
def results() -> dict[str, Json]:
    """Schemas by the name of the tool."""
    return json.loads((files("pinfold.app.bench.servers") / "results.json").read_text(encoding="utf-8"))


def schema_like(value: Json) -> Json:
    match value:
        case dict():
            fields = cast("dict[str, Any]", value)
            properties = {str(key): schema_like(one) for key, one in fields.items()}
            return {"type": "object", "properties": properties, "required": [*properties]}
        case list():
            return {"type": "array", "items": schema_like(value[0])} if value else {"type": "array"}
        case _:
            return {"type": _TYPES[type(value)]}
