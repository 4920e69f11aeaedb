"""A server's form as questions for a person, one for each field, and their words as values. Asks nobody itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pinfold.events import Json
from pinfold.text import cap_text

MOST_FIELDS = 16
_WORDS = 500
_YES = ("yes", "y", "true")


class InvalidAnswer(Exception):
    """What was expected instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    question: str
    kind: str
    options: Mapping[str, Json]
    """What a person chooses from, and what that stands for."""
    is_required: bool

    def value(self, words: str) -> Json:
        """Raises NotThat."""
        said = words.strip()
        if self.kind == "array":
            return [self._one(part.strip()) for part in said.split(",") if part.strip()]
        return self._one(said)

    def _one(self, said: str) -> Json:
        if self.options:
            found = [value for shown, value in self.options.items() if said in (shown, str(value))]
            if not found:
                raise InvalidAnswer(f"choose one of {', '.join(self.options)}")
            return found[0]
        match self.kind:
            case "integer" | "number":
                return _number(said, whole=self.kind == "integer")
            case _:
                return said


def fields_of(schema: Mapping[str, Json]) -> tuple[Field, ...] | None:
    """None for a form that nobody can be asked to fill in."""
    given: Json = schema.get("properties", {})
    if not isinstance(given, Mapping):
        return None
    properties = cast("Mapping[str, Json]", given)
    if len(properties) > MOST_FIELDS:
        return None
    required = schema.get("required")
    needed = cast("list[Json]", required) if isinstance(required, list) else []
    found: list[Field] = []
    for name, content in properties.items():
        if not isinstance(content, Mapping):
            return None
        about = cast("Mapping[str, Json]", content)
        found.append(
            Field(
                name=name,
                question=_question(name, about),
                kind=str(about.get("type", "string")),
                options=_options(about),
                is_required=name in needed,
            )
        )
    return tuple(found)


def _question(name: str, about: Mapping[str, Json]) -> str:
    words = [str(about[key]) for key in ("title", "description") if about.get(key)]
    if "default" in about:
        words.append(f"(else {about['default']!r})")
    return cap_text(": ".join([name, *words]), _WORDS)


def _options(about: Mapping[str, Json]) -> dict[str, Json]:
    if about.get("type") == "boolean":
        return {"yes": True, "no": False}
    inside: Any = about.get("items") if about.get("type") == "array" else about
    if not isinstance(inside, Mapping):
        return {}
    table = cast("Mapping[str, Json]", inside)
    for key in ("oneOf", "anyOf"):
        titled = table.get(key)
        if isinstance(titled, list):
            choices = [
                cast("Mapping[str, Json]", one)
                for one in cast("list[Any]", titled)
                if isinstance(one, Mapping) and "const" in one
            ]
            return {str(one.get("title", one["const"])): one["const"] for one in choices}
    values = table.get("enum")
    if not isinstance(values, list):
        return {}
    listed, names = cast("list[Json]", values), table.get("enumNames")
    shown: Sequence[Json] = cast("list[Json]", names) if isinstance(names, list) else listed
    return {str(name): value for name, value in zip(shown, listed, strict=False)}


def _number(said: str, *, whole: bool) -> int | float:
    try:
        number = int(said) if whole else float(said)
    except ValueError:
        raise InvalidAnswer("a whole number is wanted" if whole else "a number is wanted") from None
    if not math.isfinite(number):
        raise InvalidAnswer("a number is wanted")
    return number


def is_yes(words: str) -> bool:
    return words.strip().lower() in _YES
