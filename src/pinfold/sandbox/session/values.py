"""Answers to calls as bytes: JSON, with what JSON has no form for beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pinfold.events import Arrow, Json
from pinfold.sandbox.contract import Answer
from pinfold.sandbox.session.channel import ANSWER_BYTES, BESIDE_BYTES


@dataclass(frozen=True, slots=True)
class EncodedAnswer:
    header: Mapping[str, Json]
    parts: tuple[bytes, ...]


def encode_answer(answer: Answer) -> EncodedAnswer:
    """What does not fit is a failure."""
    if answer.status != "ok":
        return _failure(str(answer.value), refused=answer.status == "refused")
    beside: list[tuple[list[str | int], bytes]] = []
    value = _without_bytes(answer.value, [], beside)
    body = json.dumps(value).encode()
    if len(body) > ANSWER_BYTES:
        return _failure(f"its result has {len(body):,} bytes; a cell can be given {ANSWER_BYTES:,}")
    if not beside:
        return EncodedAnswer({"ok": True}, (body,))
    parts = tuple(data for _, data in beside)
    if (size := sum(map(len, parts))) > BESIDE_BYTES:
        return _failure(f"its result has {size:,} bytes; a cell can be given {BESIDE_BYTES:,}")
    told = [(path, "arrow" if isinstance(data, Arrow) else "bytes", len(data)) for path, data in beside]
    return EncodedAnswer({"ok": True, "json": len(body), "beside": told}, (body, *parts))


def _failure(reason: str, *, refused: bool = False) -> EncodedAnswer:
    return EncodedAnswer({"ok": False}, (json.dumps({"refused": refused, "reason": reason}).encode(),))


def _without_bytes(value: Json, path: list[str | int], beside: list[tuple[list[str | int], bytes]]) -> Json:
    match value:
        case bytes():
            beside.append((path, value))
            return None
        case dict():
            inside = cast("dict[str, Json]", value)
            return {key: _without_bytes(item, [*path, key], beside) for key, item in inside.items()}
        case list() | tuple():
            items = cast("list[Json]", value)
            return [_without_bytes(item, [*path, place], beside) for place, item in enumerate(items)]
        case _:
            return value
