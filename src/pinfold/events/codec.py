"""Converts events, deltas and commands to JSON text and back. The text is always ASCII.

Lone surrogates, NUL and big integers survive the round trip. Values that JSON cannot represent (NaN,
infinity, Python objects) raise NotPlain before anything is written.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, cast, get_args

import msgspec
import msgspec.structs

from pinfold.events.commands import Command
from pinfold.events.errors import PinfoldError
from pinfold.events.event_types import Delta, Event, Unknown
from pinfold.events.messages import Json, SessionId

T = TypeVar("T")
Upcast: TypeAlias = Callable[[dict[str, Json]], dict[str, Json]]
UPCASTERS: Mapping[str, Upcast] = {}
"""For each old kind: a function that converts its body to a current one, including `kind`."""

_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Event) if kind is not Unknown}
_DELTAS = frozenset(kind.__name__ for kind in get_args(Delta))
_describing = threading.Lock()
"""msgspec 0.22 caches its description of a type before the description is complete; a second thread that uses the type
at that moment crashes the interpreter. Under this lock, one thread describes each type before its first use."""
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class NotPlain(PinfoldError, ValueError):
    """A value that JSON cannot represent; says which and why."""


class BadEvent(PinfoldError, ValueError):
    """Text that is not an event, delta or command; says where it goes wrong."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its place in a session's log."""

    seq: int
    session: SessionId
    at: str
    event: Event


def encode(value: Event | Delta | Command) -> str:
    """Return the JSON text; its `kind` field names the type. Raises NotPlain."""
    if isinstance(value, Unknown):
        return plain_json({"kind": value.kind, **value.body})
    config = getattr(value, "__struct_config__", None)
    if config is None or config.tag_field != "kind":
        raise NotPlain(f"a {type(value).__name__} is not an event, a delta or a command")
    return plain_json(value)


def plain_json(value: Json) -> str:
    """Return plain data and msgspec structs as JSON text. Raises NotPlain."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPlain(f"this cannot be written as JSON: {error}") from error


def parse_json(text: str | bytes) -> Json:
    """Parse strict JSON: NaN, infinity and nesting too deep to handle raise BadEvent."""
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        return _strict.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"not JSON: {error}") from error


def map_leaves(value: Json, change: Callable[[Json], Json]) -> Json:
    """Return a copy of plain data with `change` applied to every key, and every value that is no list or object."""
    match value:
        case Mapping():
            inside = cast("Mapping[str, Json]", value)
            return {change(name): map_leaves(item, change) for name, item in inside.items()}
        case list() | tuple():
            return [map_leaves(item, change) for item in cast("list[Json]", value)]
        case _:
            return change(value)


def is_deeper(value: Json, depth: int) -> bool:
    """True if lists and objects are nested more than `depth` levels deep."""
    level: list[Json] = [value]
    for _ in range(depth + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return cast("dict[str, Json]", value).values()
    return cast("list[Json]", value) if isinstance(value, list) else ()


def decode(kind: str, body: str, upcasters: Mapping[str, Upcast] = UPCASTERS) -> Event:
    """Decode `body`, the JSON object of an event of this `kind`. An unknown kind becomes an `Unknown` event."""
    if kind in _KINDS and kind not in upcasters:
        # The fast path. It refuses lone surrogates; what it refuses is parsed again below.
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            return cast(Event, decoder_of(_KINDS[kind]).decode(body))
    return decode_object(parse_json(body), upcasters)


def decode_object(value: Json, upcasters: Mapping[str, Upcast] = UPCASTERS) -> Event:
    """Decode an event from a parsed JSON object."""
    body = _object(value)
    if upcast := upcasters.get(body["kind"]):
        body = upcast(body)
    kind: str = body["kind"]
    if kind not in _KINDS:
        return Unknown(kind=kind, body={key: item for key, item in body.items() if key != "kind"})
    return cast(Event, _convert(body, _KINDS[kind]))


def decode_command(value: Json) -> Command:
    return cast(Command, _convert(_object(value), Command))


def entry_line(entry: Entry) -> str:
    """Return a line of `--json` output or a JSONL export: the envelope and the event's fields in one flat object."""
    return line_of(entry.seq, entry.session, entry.at, encode(entry.event))


def line_of(seq: int, session: SessionId, at: str, body: str) -> str:
    """Like `entry_line`, for a body that is already JSON text; keeps unknown fields."""
    envelope = plain_json({"seq": seq, "session": session, "at": at})
    return f"{envelope[:-1]},{body[1:]}"


def decode_line(line: str | bytes) -> Entry | Delta:
    """Decode a line that `entry_line` wrote, or a delta that `encode` wrote."""
    fields = _object(parse_json(line))
    if fields["kind"] in _DELTAS:
        return cast(Delta, _convert(fields, Delta))
    envelope: _Envelope = _convert({key: fields.pop(key, None) for key in _Envelope.__struct_fields__}, _Envelope)
    return Entry(seq=envelope.seq, session=envelope.session, at=envelope.at, event=decode_object(fields))


def decode_json(data: str | bytes, kind: type[T]) -> T:
    """Like `msgspec.json.decode`, but thread-safe. Raises msgspec.MsgspecError, UnicodeError."""
    return decoder_of(kind).decode(data)


def convert(
    value: object, kind: type[T], *, strict: bool = True, dec_hook: Callable[[type, Any], Any] | None = None
) -> T:
    """Like `msgspec.convert`, but thread-safe. Raises msgspec.MsgspecError."""
    decoder_of(kind)
    return msgspec.convert(value, kind, strict=strict, dec_hook=dec_hook)  # noqa: TID251 - the one place


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    known = _decoders.get(kind)
    if known is None:
        with _describing:
            known = _decoders[kind] = msgspec.json.Decoder(kind)
    return known


class _Envelope(msgspec.Struct, frozen=True):
    seq: int
    session: SessionId
    at: str


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict) or not isinstance(cast(dict[str, Json], value).get("kind"), str):
        raise BadEvent("not an object with a `kind`")
    return dict(cast(dict[str, Json], value))


def _convert(value: dict[str, Json], to: Any) -> Any:
    try:
        return convert(value, to)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEvent(f"{value.get('kind', 'envelope')}: {error}") from error


def _fields(value: object) -> dict[str, Json]:
    if not isinstance(value, msgspec.Struct):
        raise TypeError(f"{type(value).__name__} is not plain data")
    config = value.__struct_config__
    tag: dict[str, Json] = {config.tag_field: config.tag} if config.tag_field else {}
    fields = msgspec.structs.asdict(value)
    if value.__struct_encode_fields__ != value.__struct_fields__:
        fields = dict(zip(value.__struct_encode_fields__, fields.values(), strict=True))
    return tag | fields


# msgspec's own encoder would turn NaN into null, bytes into base64 and sets into lists.
_encoder = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_fields)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is out of range")
    return number


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def strict_decoder(*, raw_line_ends: bool = False) -> json.JSONDecoder:
    """Return a decoder that refuses NaN and infinity; `raw_line_ends` accepts unescaped line breaks in strings."""
    return json.JSONDecoder(strict=not raw_line_ends, parse_constant=_refuse_constant, parse_float=_finite)


_strict = strict_decoder()
