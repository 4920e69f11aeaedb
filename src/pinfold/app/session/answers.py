"""Answers in the form the caller asked for: JSON that is valid against a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

from pinfold.app.errors import ConfigError
from pinfold.app.paths import read_limited
from pinfold.events import Json
from pinfold.text import cap_text

LARGEST = 256 << 10
"""Largest schema, in bytes: the model is shown all of it."""
_FAULTS = 5
_FAULT = 300
_TOLD = """\
Your final answer must be JSON and nothing else, valid against this JSON Schema:
{}
Code that knows the result ends with `answer(json.dumps(result))`.
"""


class AnswerForm:
    """The form that a final answer must have. `check_schema` has accepted `schema`."""

    def __init__(self, schema: Json) -> None:
        self._schema = schema

    def describe_schema(self) -> str:
        """Return the instruction for the model."""
        return _TOLD.format(json.dumps(self._schema, ensure_ascii=False))

    def fault(self, text: str) -> str:
        """What is wrong with an answer, for the model; empty if it is valid."""
        from pinfold.text.answer_forms import json_in, parse_json

        try:
            value = parse_json(json_in(text))
        except ValueError as error:
            return f"The answer must be JSON alone, and this is not: {error}"
        from referencing.exceptions import Unresolvable

        try:
            errors: list[Any] = list(islice(_validator_of(self._schema).iter_errors(value), _FAULTS + 1))
        except (Unresolvable, RecursionError) as error:
            return f"The schema cannot be applied: {error}"
        if not errors:
            return ""
        lines = [cap_text(f"{error.json_path}: {error.message}", _FAULT) for error in errors[:_FAULTS]]
        more = "; and more" if len(errors) > _FAULTS else ""
        return f"The answer is not valid against the schema: {'; '.join(lines)}{more}"

    def finish_answer(self, text: str) -> str:
        """Return the JSON of a valid answer, as the model wrote it."""
        from pinfold.text.answer_forms import json_in

        return json_in(text)

    def find_printed(self, output: str) -> str | None:
        """Return the answer that code printed. The schema must require keys; without them any object would fit."""
        from pinfold.text.answer_forms import last_object

        schema = cast("dict[str, Json]", self._schema)
        text = last_object(output) if schema.get("required") else None
        return text if text is not None and not self.fault(text) else None


def read_schema(path: Path) -> Json:
    """Read a schema. Raises ConfigError if it cannot be read or is not a JSON Schema."""
    from pinfold.text.answer_forms import parse_json

    data = read_limited(path, LARGEST, f"is too large for a schema: the limit is {LARGEST >> 10} kB")
    try:
        schema = parse_json(data.decode("utf-8"))
    except ValueError as error:
        raise ConfigError(f"the schema {path} is not JSON: {error}") from error
    return check_schema(schema, str(path))


def check_schema(schema: Json, name: str) -> Json:
    """Return the schema if it is valid. Raises ConfigError."""
    if not isinstance(schema, dict):
        raise ConfigError(f'the schema {name} must be an object, such as {{"type": "object"}}')
    from jsonschema import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        validator = _validator_of(schema)
        validator.check_schema(schema, format_checker=validator.FORMAT_CHECKER)
        # With an `$id`, only validation shows how references resolve, so they are not checked here.
        for reference in () if "$id" in json.dumps(schema) else _references(schema):
            validator._resolver.lookup(reference)  # noqa: SLF001 - there is no public way to ask before
    except SchemaError as error:
        raise ConfigError(
            cap_text(f"{name} is not a JSON Schema: {error.json_path}: {error.message}", _FAULT)
        ) from error
    except Unresolvable as error:
        raise ConfigError(
            f"the schema {name} refers to {error.ref!r}, which is not in it; nothing is fetched: put it under $defs"
        ) from error
    except RecursionError as error:
        raise ConfigError(f"the schema {name} is nested too deeply") from error
    return cast("Json", schema)


def _validator_of(schema: Json) -> Any:
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    kind: Any = cast("Any", validators).validator_for(schema, default=Draft202012Validator)
    # An empty registry: a schema may refer only to parts of itself, and nothing is fetched.
    return kind(schema, registry=cast("Any", Registry)())


def _references(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        items = cast("dict[str, Json]", schema)
        if isinstance(reference := items.get("$ref"), str):
            yield reference
        for item in items.values():
            yield from _references(item)
    elif isinstance(schema, list):
        for item in cast("list[Json]", schema):
            yield from _references(item)
