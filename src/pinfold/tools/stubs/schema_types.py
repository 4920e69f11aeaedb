"""Converts a JSON schema to Python types. Never fails: a schema that is not understood, or too large, becomes Any.

Depth and number of schemas read are bounded, so that neither a huge nor a recursive schema costs much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import cast
from urllib.parse import unquote

from pinfold.events import Json
from pinfold.tools.stubs.shapes import (
    ANY,
    MEMBERS,
    NONE,
    TABLE,
    WRITTEN,
    Choice,
    DictOf,
    Field,
    ListOf,
    Plain,
    Record,
    Scalar,
    TupleOf,
    Type,
    add_number,
    camel,
    either,
    unique,
)

DEPTH = 10
SCHEMAS = 300
"""Maximum number read for the arguments, or for the result, of one tool."""
RECORDS = 40
FIELDS = 50
KEY_CHARS = 100
"""Maximum length of a key, also of its repr."""
ITEMS = 16
"""Maximum length of a tuple."""
VALUES = 40
VALUE_CHARS = 80
ALL_VALUES_CHARS = 800
ARROW = "application/vnd.apache.arrow.stream"
_INTEGERS = 1 << 63
_SCALARS: Mapping[str, Type] = {
    "integer": Plain("int"),
    "number": Plain("float"),
    "boolean": Plain("bool"),
    "null": NONE,
}
_VALUE_TYPES: Mapping[type, Type] = {
    type(None): NONE,
    bool: Plain("bool"),
    int: Plain("int"),
    float: Plain("float"),
    str: Plain("str"),
    list: ListOf(ANY),
    dict: DictOf(ANY),
}
_SAYS_TYPE = {"type", "properties", "items", "prefixItems", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"}
_KEYWORDS = (
    *("type", "enum", "const", "anyOf", "oneOf", "nullable", "properties", "required", "additionalProperties"),
    *("patternProperties", "items", "prefixItems", "maxItems", "additionalItems"),
    *("format", "contentEncoding", "contentMediaType"),
)
"""The keywords copied when schemas are merged; a schema may have a million others."""
MERGED = 200
"""Maximum number of properties of a merged object."""


class Reader:
    """Reads one root schema, in which `$ref` is resolved."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._left = SCHEMAS
        self._known: dict[str, Type] = {}
        self._open: set[str] = set()
        self.records: dict[str, tuple[Field, ...]] = {}

    @property
    def looked_at(self) -> int:
        return SCHEMAS - self._left

    def put_together(self, schema: Json) -> Mapping[str, Json]:
        """Merge alternatives into one object with the keys of all; a key is required only if each requires it."""
        whole = self._merge_schemas(schema)
        members = as_list(whole.get("anyOf") or whole.get("oneOf"))
        if not members:
            return whole
        parts = [self._merge_schemas(member) for member in members[:MEMBERS]]
        own: dict[str, Json] = whole.get("properties", {})
        others: dict[str, list[Json]] = {}
        for part in parts:
            for key, inner in part.get("properties", {}).items():
                others.setdefault(key, []).append(inner)
        joined = {key: inner[0] if len(inner) == 1 else {"anyOf": inner} for key, inner in others.items()}
        shared = [name for name in names_required(parts[0]) if all(name in names_required(one) for one in parts)]
        return {
            "type": "object",
            **whole,
            "properties": {**joined, **own},
            "required": [*names_required(whole), *shared],
        }

    def read(self, schema: Json, name: str, depth: int = 0, ref: str = "") -> Type:
        """Convert a schema. `name` is for a record made of it; `ref` is the `$ref` that led here, if any."""
        self._left -= 1
        if self._left < 0 or depth > DEPTH or not isinstance(schema, Mapping):
            return ANY
        schema = cast("Mapping[str, Json]", schema)
        found = self._own(schema, name, depth, ref)
        return either((found, NONE)) if schema.get("nullable") is True else found

    def _own(self, schema: Mapping[str, Json], name: str, depth: int, ref: str) -> Type:
        if isinstance(pointer := schema.get("$ref"), str):
            return self.read_reference(pointer, name, depth + 1)
        if "const" in schema:
            return _choice([schema["const"]])
        if values := as_list(schema.get("enum")):
            self._left -= min(len(values), VALUES) // 4
            return _choice(values)
        if parts := as_list(schema.get("allOf")):
            if len(parts) == 1 and not (_SAYS_TYPE - {"allOf"}) & schema.keys():
                return self.read(parts[0], name, depth + 1, ref)
            return self.read(self._merge_schemas(schema), name, depth + 1, ref)
        if members := self._members(schema, name, depth):
            return either(members)
        match schema.get("type"):
            case str(kind):
                return self._read_kind(kind, schema, name, depth, ref)
            case [*kinds]:
                named = [kind for kind in as_list(kinds)[:8] if isinstance(kind, str)]
                return either(self._read_kind(kind, schema, name, depth, ref) for kind in named)
            case _:
                return self._read_kind(_implied_kind(schema), schema, name, depth, ref)

    def _members(self, schema: Mapping[str, Json], name: str, depth: int) -> list[Type]:
        """Return the types of a union; none if its members only refine the `type` given next to them."""
        members = as_list(schema.get("anyOf") or schema.get("oneOf"))
        own = _keywords(schema, without=("anyOf", "oneOf", "nullable"))
        is_object = bool(as_object(own.get("properties")))
        found: list[Type] = []
        for member in members[:VALUES]:
            if "type" in own and not _SAYS_TYPE & as_object(member).keys():
                return []
            whole = self._merge_schemas({**own, "allOf": [member]}) if is_object else member
            found.append(self.read(whole, name, depth + 1))
        return [] if "type" in own and ANY in found else found

    def _read_kind(self, kind: str, schema: Mapping[str, Json], name: str, depth: int, ref: str) -> Type:
        if schema.get("contentMediaType") == ARROW:
            return TABLE
        match kind:
            case "string":
                is_binary = schema.get("format") in ("binary", "byte") or (schema.get("contentEncoding") == "base64")
                return Plain("bytes") if is_binary else Plain("str")
            case "array":
                return self._array(schema, name, depth)
            case "object":
                return self._object(schema, name, depth, ref)
            case _:
                return _SCALARS.get(kind, ANY)

    def _array(self, schema: Mapping[str, Json], name: str, depth: int) -> Type:
        items, first = schema.get("items"), as_list(schema.get("prefixItems"))
        if isinstance(items, list):  # the form of tuples up to draft 2019-09
            items, first = schema.get("additionalItems"), as_list(items)
        if not first:
            return ListOf(self.read(items, name, depth + 1))
        is_closed = items is False or schema.get("maxItems") == len(first)
        parts = [self.read(part, name, depth + 1) for part in first[:ITEMS]]
        if is_closed and len(first) <= ITEMS:
            return TupleOf(tuple(parts))
        return ListOf(either((*parts, ANY if items is None else self.read(items, name, depth + 1))))

    def _object(self, schema: Mapping[str, Json], name: str, depth: int, ref: str) -> Type:
        properties = as_object(schema.get("properties"))
        if not properties:
            patterns = list(as_object(schema.get("patternProperties")).values())
            others = patterns[0] if len(patterns) == 1 else schema.get("additionalProperties")
            return DictOf(self.read(others, name, depth + 1))
        is_sound = len(properties) <= FIELDS and all(map(is_key, properties))
        if not is_sound or len(self.records) >= RECORDS:
            return DictOf(ANY)
        (plain,) = unique([name], taken=WRITTEN, prefix="Type").values()
        own = add_number(plain, self.records)
        # Register the record before reading its fields: they may refer back to it.
        self.records[own] = ()
        if ref:
            self._known[ref] = Record(own)
        required = names_required(schema)
        self.records[own] = tuple(
            Field(key, self.read(inner, camel(own, key), depth + 1), key in required)
            for key, inner in properties.items()
        )
        return Record(own)

    def read_reference(self, pointer: str, name: str, depth: int = 0) -> Type:
        if pointer in self._known:
            return self._known[pointer]
        target = self._at(pointer)
        if pointer in self._open or target is None:
            return ANY
        self._open.add(pointer)
        steps = _steps(pointer)
        # Only the last word of a pointer such as `#/$defs/Name` is a good name.
        found = self.read(target, camel(steps[-1]) if len(steps) == 2 else name, depth, pointer)
        self._open.discard(pointer)
        return self._known.setdefault(pointer, found)

    def _at(self, pointer: str) -> Json:
        """Return the target of a pointer in the root schema, or None. Other documents are not fetched."""
        if not pointer.startswith("#") or len(pointer) > 1000:
            return None
        at: Json = self._root
        for key in _steps(pointer):
            if isinstance(at, Mapping):
                at = cast("Mapping[str, Json]", at).get(key)
            elif isinstance(at, list) and key.isascii() and key.isdigit() and len(key) < 6:
                at = next(iter(cast("list[Json]", at)[int(key) : int(key) + 1]), None)
            else:
                return None
        return at

    def _merge_schemas(self, schema: Json) -> dict[str, Json]:
        """Merge a schema with its `allOf` and `$ref`: properties are combined; of other keywords the first wins."""
        merged: dict[str, Json] = {}
        for part in self._parts(schema, DEPTH):
            for key, value in part.items():
                match key:
                    case "properties":
                        first = islice(as_object(value).items(), MERGED)
                        merged[key] = {**merged.get(key, {}), **dict(first)}
                    case "required":
                        merged[key] = [*merged.get(key, []), *as_list(value)[:MERGED]]
                    case _:
                        merged.setdefault(key, value)
        return merged

    def _parts(self, schema: Json, depth: int) -> Iterator[Mapping[str, Json]]:
        self._left -= 1
        schema = as_object(schema)
        if depth < 0 or self._left < 0 or not schema:
            return
        if isinstance(pointer := schema.get("$ref"), str):
            yield from self._parts(self._at(pointer), depth - 1)
        yield _keywords(schema)
        for part in as_list(schema.get("allOf"))[:VALUES]:
            yield from self._parts(part, depth - 1)


def _steps(pointer: str) -> list[str]:
    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in pointer.removeprefix("#").split("/")[1:]]


def as_object(value: Json) -> Mapping[str, Json]:
    """Return `value` if it is an object, else an empty one."""
    return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def names_required(schema: Mapping[str, Json]) -> Mapping[str, None]:
    given = as_list(schema.get("required"))[: 10 * MERGED]
    return dict.fromkeys(name for name in given if isinstance(name, str))


def _keywords(schema: Mapping[str, Json], without: Collection[str] = ()) -> dict[str, Json]:
    return {key: schema[key] for key in _KEYWORDS if key in schema and key not in without}


def _implied_kind(schema: Mapping[str, Json]) -> str:
    if isinstance(schema.get("properties"), Mapping) or isinstance(schema.get("additionalProperties"), Mapping):
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else ""


def is_key(key: object) -> bool:
    return isinstance(key, str) and len(key) <= KEY_CHARS and len(repr(key)) <= KEY_CHARS


def _choice(values: list[Json]) -> Type:
    """Return a Literal of the values if Python can express it, else the union of their types."""
    named: list[Scalar] = [value for value in values[:VALUES] if _is_named(value)]
    chars = sum(len(repr(value)) for value in named)
    is_whole = len(values) <= VALUES and chars <= ALL_VALUES_CHARS
    return either(
        Choice((value,)) if is_whole and _is_named(value) else _VALUE_TYPES.get(type(cast("object", value)), ANY)
        for value in islice(values, 10 * VALUES)
    )


def _is_named(value: Json) -> bool:
    if isinstance(value, str):
        return len(value) <= VALUE_CHARS
    return isinstance(value, bool) or (isinstance(value, int) and -_INTEGERS <= value < _INTEGERS)
