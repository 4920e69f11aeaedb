"""Checks values against a JSON schema that a server wrote, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, cast

from pinfold.events import Json
from pinfold.text import closest, join_names
from pinfold.tools.arguments import JSON_TYPES, REQUIRED, Argument, short
from pinfold.tools.stubs.schema_types import as_list, as_object

WORK_S = 0.5
_FAULTS = 5
_WORDS = 300
_DEEP = 64
_UNCHECKED = frozenset({"pattern", "patternProperties", "unevaluatedProperties", "uniqueItems", "format"})
"""Keywords that can take exponential or quadratic time; they are left to the server's own checks."""


class Shape:
    """A compiled schema. An invalid schema accepts everything: the server checks values itself."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._schema = schema
        self._deadline = 0.0
        self.required: Sequence[Json] = as_list(schema.get("required"))

    def faults(self, value: Json) -> tuple[str, ...]:
        """Return faults of the value, one line each; none if it fits or cannot be checked."""
        if self._validator is None:
            return ()
        from referencing.exceptions import Unresolvable

        self._deadline = time.monotonic() + WORK_S
        try:
            found = [_describe_fault(error) for error in islice(self._validator.iter_errors(value), _FAULTS + 1)]
        except (TimeoutError, RecursionError, Unresolvable, TypeError, ValueError, LookupError, AttributeError):
            return ()
        return *found[:_FAULTS], *(["and more"] if len(found) > _FAULTS else [])

    @cached_property
    def _validator(self) -> Any:
        """The compiled validator; None if the schema is invalid."""
        from jsonschema import SchemaError, validators
        from referencing import Registry

        try:
            kind: Any = cast("Any", validators).validator_for(self._schema)
            schema = _without_dialects(self._schema, _DEEP)
            kind.check_schema(schema)
        except (SchemaError, RecursionError, TypeError, ValueError, LookupError, AttributeError):
            return None
        known: Mapping[str, Any] = kind.VALIDATORS
        checks = {keyword: self._limit_time(keyword, check) for keyword, check in known.items()}
        # An empty registry: references outside the schema fail, and nothing is fetched.
        return cast("Any", validators).extend(kind, checks)(schema, registry=cast("Any", Registry)())

    def _limit_time(self, keyword: str, check: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any]]:
        def check_in_time(validator: Any, said: Json, value: Json, schema: Mapping[str, Json]) -> Iterator[Any]:
            if time.monotonic() > self._deadline:
                raise TimeoutError
            unknown = keyword == "additionalProperties" and "patternProperties" in schema
            if keyword not in _UNCHECKED and not unknown:
                yield from check(validator, said, value, schema) or ()

        return check_in_time


def arguments_of(schema: Mapping[str, Json]) -> tuple[Argument, ...]:
    """Return the arguments of a call, as far as the schema describes them."""
    required = as_list(schema.get("required"))
    found: list[Argument] = []
    for name, said in as_object(schema.get("properties")).items():
        table = as_object(said)
        kind, text = table.get("type"), table.get("description")
        hint = JSON_TYPES.get(kind, Any) if isinstance(kind, str) else Any
        default = REQUIRED if name in required else table.get("default")
        description = text if isinstance(text, str) else ""
        found.append(Argument(name=name, hint=hint, default=default, description=description))
    return tuple(found)


def _without_dialects(schema: Json, depth: int) -> Json:
    """Drop `$schema`: a part that names another dialect would be checked without our time limit."""
    if depth == 0:
        raise ValueError("too deep")
    match schema:
        case dict():
            return {
                key: _without_dialects(value, depth - 1)
                for key, value in cast("dict[str, Json]", schema).items()
                if key != "$schema" or not isinstance(value, str)
            }
        case list():
            return [_without_dialects(value, depth - 1) for value in cast("list[Json]", schema)]
        case _:
            return schema


def _describe_fault(error: Any) -> str:
    path = ".".join(map(str, error.absolute_path))
    where = f"{path!r}" if path else "it"
    value, said = error.instance, error.validator_value
    match error.validator:
        case "required":
            name = str(error.message).removesuffix(" is a required property").strip("'")
            return f"{'.'.join(filter(None, (path, name)))!r} is missing"
        case "additionalProperties" if said is False:
            known = list(error.schema.get("properties", {}))
            unknown = [name for name in value if name not in known]
            near = closest(str(unknown[0]), known) if unknown else ""
            more = f"; did you mean {near!r}?" if near else f"; there is {join_names(known, 12)}" if known else ""
            return f"unknown {join_names([repr(name) for name in unknown], 5)}{f' in {path!r}' if path else ''}{more}"
        case "type":
            kinds = said if isinstance(said, str) else " or ".join(map(str, said))
            return f"{where} should be {kinds}, not {short(value)}"
        case "enum":
            return f"{where} should be one of {join_names([short(one) for one in said], 12)}, not {short(value)}"
        case "anyOf" | "oneOf":
            return f"{where} fits none of its allowed forms: {short(value)}"
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum" | "const":
            return f"{where} should be {_BOUNDS[error.validator]} {short(said)}, not {short(value)}"
        case _:
            return f"{where}: {' '.join(str(error.message).split())[:_WORDS]}"


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "const": "exactly",
}
