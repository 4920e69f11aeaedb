"""JSON as models write it: read strictly, then repaired by `json-repair` where that can mean one thing only.

A repaired value counts only if its strings and, within prose, its brackets were closed. Work is bounded by `Effort`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Literal, NoReturn, SupportsIndex, TypeAlias, cast

from json_repair.json_parser import JSONParser
from json_repair.utils.constants import STRING_DELIMITERS, JSONReturnType
from json_repair.utils.json_context import ContextValues

from pinfold.events import Json
from pinfold.model.protocol.known_tools import Effort

DEEPEST = 64
_MOST_PARTS = 100_000
_LONGEST_MENDED = 400_000
_LONGEST_TOKEN = 16
_WINDOWS = (4_096, 65_536, 2_000_000)

_TRIPLE_QUOTED = re.compile(r"(\"\"\"|''')(.*?)\1", re.DOTALL)
_ENDS_A_VALUE = tuple("\"'”’{[}],")  # noqa: RUF001

Place: TypeAlias = Literal["block", "prose"]
"""What surrounds the value: a block that it fills up to the end, or text that goes on behind it."""


@dataclass(frozen=True, slots=True)
class Value:
    value: Json
    end: int
    mended: bool = False
    """It was not JSON as it stood."""


class Unreadable(ValueError):
    """Says what is wrong, and near what."""

    def __init__(self, why: str, *, cut: bool = False) -> None:
        super().__init__(why)
        self.cut = cut
        """The text ends before the value does."""


def value_at(text: str, start: int, stop: int, *, place: Place, effort: Effort, mend_to: int | None = None) -> Value:
    """The object or list that begins at `start`. Raises Unreadable.

    What is not JSON as it stands is mended only up to `mend_to`, where a block seems to end.
    """
    strict = _strictly(text, start, stop, effort)
    if isinstance(strict, Value):
        return strict
    if mend_to is not None:
        stop = min(stop, mend_to)
    if place == "prose":
        stop = _end_of_paragraph(text, start, stop)
    if not effort.json(min(stop - start, _LONGEST_MENDED) // 4) or stop - start > _LONGEST_MENDED:
        raise Unreadable(strict)
    piece = text[start:stop]
    try:
        value, end = _repair(piece, place, effort, strict)
    except Unreadable:
        straight = _TRIPLE_QUOTED.sub(lambda match: json.dumps(match[2]), piece)
        if straight == piece:
            raise
        value, end = _repair(straight, place, effort, strict)
        end += len(piece) - len(straight)
    return Value(value, start + end, mended=True)


class _OutOfSteps(Exception):
    pass


class _Metered(str):
    """A text that counts how often it is looked at: repairing some texts takes time that grows with their square."""

    effort: Effort

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if not self.effort.repair_step():
            raise _OutOfSteps
        return super().__getitem__(key)


class _Parser(JSONParser):
    """Refuses values without quotes: a variable, or a text that could end anywhere."""

    def parse_string(self) -> JSONReturnType:
        is_bare = self.get_char_at() not in STRING_DELIMITERS and self.context.current != ContextValues.OBJECT_KEY
        value = super().parse_string()
        if is_bare and isinstance(value, str):
            raise ValueError(value)
        return value


def _repair(piece: str, place: Place, effort: Effort, strict: str) -> tuple[Json, int]:
    """The value at the start of `piece`, and where it ends. Raises Unreadable with the words `strict`, or better ones."""
    metered = _Metered(piece)
    metered.effort = effort
    parser = _Parser(metered, None, logging=False, strict=True)
    try:
        # Encoding joins halves of one character, each escaped on its own, and refuses numbers that are out of range.
        value = json.loads(json.dumps(parser.parse_json(), allow_nan=False))
    except (ValueError, _OutOfSteps, RecursionError):
        raise Unreadable(strict, cut=parser.index >= len(piece)) from None
    if not _is_shallow(value):
        raise Unreadable(f"it is nested deeper than {DEEPEST}")
    if parser.index > len(piece) and (place == "prose" or not piece.rstrip().endswith(_ENDS_A_VALUE)):
        raise Unreadable(strict, cut=True)
    rest = piece[parser.index :]
    # A string that was ended too early leaves its own end behind.
    if place == "prose" and rest.count("}") > rest.count("{"):
        raise Unreadable("it has quotes inside a string; escape them with a backslash")
    return value, min(parser.index, len(piece))


def _strictly(text: str, start: int, stop: int, effort: Effort) -> Value | str:
    """The value if it is JSON, else why it is not. Most are short: a long text is looked at only if need be."""
    for window in _WINDOWS:
        piece = text[start : min(stop, start + window)]
        if not effort.json(len(piece) // 8):
            raise Unreadable("the reply is too long")
        if window == _WINDOWS[-1] and piece.count("[") + piece.count("{") > _MOST_PARTS:
            raise Unreadable(f"it has more than {_MOST_PARTS:,} parts")
        try:
            value, length = _STRICT.raw_decode(piece)
        except json.JSONDecodeError as error:
            effort.json(error.pos)
            # Short of its end, and not for want of one, it is as broken in a larger piece.
            if start + len(piece) == stop or (
                error.pos < len(piece) - _LONGEST_TOKEN and not error.msg.startswith("Unterminated")
            ):
                return _in_words(error, piece)
        except ValueError as error:
            raise Unreadable(f"it is not valid JSON: {error}") from None
        except RecursionError:
            effort.json(len(piece))
            raise Unreadable(f"it is nested deeper than {DEEPEST}") from None
        else:
            effort.json(length)
            if piece.count("[", 0, length) + piece.count("{", 0, length) > DEEPEST and not _is_shallow(value):
                raise Unreadable(f"it is nested deeper than {DEEPEST}")
            return Value(value, start + length)
    raise Unreadable(f"it is not valid JSON, or longer than {_WINDOWS[-1]:,} characters")


def _in_words(error: json.JSONDecodeError, piece: str) -> str:
    near = piece[error.pos : error.pos + 20].split("\n", maxsplit=1)[0]
    what = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
    return f"it is not valid JSON, {what} at {f'`{near}`' if near else 'its end'}"


def _end_of_paragraph(text: str, start: int, stop: int) -> int:
    blank = text.find("\n\n", start, min(stop, start + _LONGEST_MENDED))
    return stop if blank < 0 else blank


def _is_shallow(value: Json) -> bool:
    level: list[Json] = [value]
    for _ in range(DEEPEST):
        below: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(cast("dict[str, Json]", item).values())
            elif isinstance(item, list):
                below.extend(cast("list[Json]", item))
        level = below
        if not level:
            return True
    return False


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is out of range")
    return number


_STRICT = json.JSONDecoder(strict=False, parse_constant=_refuse, parse_float=_finite)
"""Strict but for raw line ends in strings, which can mean one thing only."""
