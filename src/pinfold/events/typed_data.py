"""Plain data and JSON to our own types, from any thread.

msgspec 0.22 keeps its description of a type before it is complete: a second thread that uses the type at that moment crashes
the interpreter. So every type is described once, by one thread, before it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_describing = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode_json(data: str | bytes, kind: type[T]) -> T:
    """As `msgspec.json.decode`. Raises msgspec.MsgspecError, UnicodeError."""
    return decoder_of(kind).decode(data)


def convert(
    value: object, kind: type[T], *, strict: bool = True, dec_hook: Callable[[type, Any], Any] | None = None
) -> T:
    """As `msgspec.convert`. Raises msgspec.MsgspecError."""
    decoder_of(kind)
    return msgspec.convert(value, kind, strict=strict, dec_hook=dec_hook)  # noqa: TID251 - the one place


def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    known = _decoders.get(kind)
    if known is None:
        with _describing:
            known = _decoders[kind] = msgspec.json.Decoder(kind)
    return known
