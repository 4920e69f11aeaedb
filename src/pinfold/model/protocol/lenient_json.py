"""Parses JSON as models write it: strictly first, then with repair of their usual mistakes.

It repairs single and curly quotes, raw line ends and unescaped quotes in strings, triple quotes, trailing commas,
unquoted keys, Python's True, False and None, and closing brackets missing at the very end. Ambiguous input is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pinfold.events import Json, is_deeper, strict_decoder
from pinfold.model.protocol.known_tools import QUOTES, Effort

DEEPEST = 64
_MOST_PARTS = 100_000
_LONGEST_MENDED = 400_000
_LONGEST_NUMBER = 300
_LONGEST = 2_000_000

_SPACE = re.compile(r"[ \t\r\n\f\v\u00a0]*+")
_NAME = re.compile(r"[A-Za-z_]\w{0,63}+")
_NUMBER = re.compile(r"[-+]?+(?:\d[\d_]*+(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?+\d++)?+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_WORDS: dict[str, Json] = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
}  # fmt: skip
_CLOSING = {
    '"': '"',
    "'": "'",
    "\u201c": '\u201d\u201c"',
    "\u201d": '\u201d"',
    "\u2018": "\u2019\u2018'",
    "\u2019": "\u2019'",
}
"""The characters that may close each opening quote."""
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_UP_TO = {quotes: re.compile(rf"[^{quotes}\\]*+(?:\\.[^{quotes}\\]*+)*+", re.DOTALL) for quotes in _CLOSING.values()}
_KEY_FOLLOWS = re.compile(rf"[ \t\r\n]*+(?:\}}|[{QUOTES}]?+[\w.$-]{{1,64}}+[{QUOTES}]?+[ \t\r\n]*+:)")
_REST = re.compile(r"[ \t\r]*+(?:\Z|\n|[\]}),;{\[<`|])")
_REST_OF_BLOCK = re.compile(r"[\s\]};,]*+(?:\Z|[{\[<])")

_DECODER = strict_decoder(raw_line_ends=True)
Place: TypeAlias = Literal["block", "prose"]
"""Where the value occurs: in a block that ends with it, or in text that continues after it."""


@dataclass(frozen=True, slots=True)
class Value:
    value: Json
    end: int
    mended: bool = False
    """True if it was not valid JSON and had to be repaired."""


class Unreadable(ValueError):
    """The message says what is wrong, and near which text."""

    def __init__(self, why: str = "", *, cut: bool = False) -> None:
        super().__init__(why)
        self.cut = cut
        """True if the text ends before the value does."""


def value_at(text: str, start: int, stop: int, *, place: Place, effort: Effort, mend_to: int | None = None) -> Value:
    """Parse the object or list that begins at `start`. Raises Unreadable.

    Invalid JSON is repaired only up to `mend_to`, where a block seems to end.
    """
    strict = _strictly(text, start, stop, effort)
    if isinstance(strict, Value):
        return strict
    if mend_to is not None:
        stop = min(stop, mend_to)
    if place == "prose":
        blank = text.find("\n\n", start, min(stop, start + _LONGEST_MENDED))
        stop = stop if blank < 0 else blank
    if not effort.json(min(stop - start, _LONGEST_MENDED) // 4) or stop - start > _LONGEST_MENDED:
        raise Unreadable(strict)
    try:
        value, end = _Mender(text[start:stop], place, effort).read()
    except Unreadable as error:
        raise Unreadable(str(error) or strict, cut=error.cut) from None
    return Value(value, start + end, mended=True)


def _strictly(text: str, start: int, stop: int, effort: Effort) -> Value | str:
    """Return the value, or the reason why it is not strict JSON."""
    piece = text[start : min(stop, start + _LONGEST)]
    if not effort.json(len(piece) // 32):
        raise Unreadable("the reply is too long")
    if len(piece) > _MOST_PARTS and piece.count("[") + piece.count("{") > _MOST_PARTS:
        raise Unreadable(f"it has more than {_MOST_PARTS:,} parts")
    try:
        value, length = _DECODER.raw_decode(piece)
    except json.JSONDecodeError as error:
        effort.json(error.pos)
        near = piece[error.pos : error.pos + 20].split("\n", maxsplit=1)[0]
        what = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
        return f"it is not valid JSON, {what} at {f'`{near}`' if near else 'its end'}"
    except ValueError as error:
        return f"it is not valid JSON: {error}"
    except RecursionError:
        effort.json(len(piece))
        raise Unreadable(f"it is nested deeper than {DEEPEST}") from None
    effort.json(length)
    if piece.count("[", 0, length) + piece.count("{", 0, length) > DEEPEST and is_deeper(value, DEEPEST):
        raise Unreadable(f"it is nested deeper than {DEEPEST}")
    return Value(value, start + length)


class _Mender:
    """Rewrites one value as strict JSON, token by token and without backtracking, in linear time.

    Raises Unreadable, with a message only if it is better than that of the strict parser.
    """

    def __init__(self, text: str, place: Place, effort: Effort) -> None:
        self._text, self._place, self._effort = text, place, effort
        self._at = 0
        self._tokens: list[str] = []
        self._open: list[str] = []
        """The closing brackets still missing, the outermost first."""

    def read(self) -> tuple[Json, int]:
        cut = False
        while self._open or not self._tokens:
            if not self._effort.step():
                raise Unreadable
            self._at = self._after_space(self._at)
            if self._at < len(self._text):
                self._tokens += self._token(self._text[self._at])
            elif self._place == "block":
                cut = True
                self._close(len(self._open))  # the closing brackets at the very end are missing
            else:
                raise Unreadable(cut=True)
        rest = self._text[self._at :]
        # An unescaped quote ended a string too early: its remainder was left over.
        if self._place == "prose" and rest.count("}") > rest.count("{"):
            raise Unreadable("it has quotes inside a string; escape them with a backslash")
        try:
            return json.loads(" ".join(self._tokens)), self._at
        except ValueError:
            raise Unreadable(cut=cut) from None

    def _token(self, char: str) -> list[str]:
        if char in _CLOSING:
            return [json.dumps(self._string(char))]
        if char in "{[":
            self._open.append("}" if char == "{" else "]")
            if len(self._open) > DEEPEST:
                raise Unreadable(f"it is nested deeper than {DEEPEST}")
        elif char == self._open[-1]:
            self._at += 1
            self._close(1)
            return []
        elif char not in ",:":
            return [self._word()]
        self._at += 1
        return [char]

    def _close(self, count: int) -> None:
        if self._tokens[-1] == "," and self._tokens[-2] not in ("{", "["):
            self._tokens.pop()
        for _ in range(count):
            self._tokens.append(self._open.pop())

    def _word(self) -> str:
        word = _NUMBER.match(self._text, self._at) or _NAME.match(self._text, self._at)
        if word is None:
            raise Unreadable
        self._at = word.end()
        if word.re is _NAME:
            if self._role != "key" and word.group() not in _WORDS:
                raise Unreadable
            return json.dumps(word.group() if self._role == "key" else _WORDS[word.group()])
        digits = word.group().replace("_", "")
        if len(digits) > _LONGEST_NUMBER:
            raise Unreadable("it has a number that is too long")
        try:
            return json.dumps(int(digits) if digits.lstrip("+-").isdecimal() else float(digits), allow_nan=False)
        except ValueError as error:
            raise Unreadable(f"it has a bad number: {error}") from None

    @property
    def _role(self) -> Literal["key", "field", "item"]:
        if self._open[-1] == "]":
            return "item"
        return "key" if self._tokens[-1] in ("{", ",") else "field"

    def _string(self, opening: str) -> str:
        triple = opening * 3
        if self._text.startswith(triple, self._at) and (end := self._text.find(triple, self._at + 3)) >= 0:
            found, self._at = self._text[self._at + 3 : end], end + 3
            return found
        start = at = self._at + 1
        while self._effort.step():
            up_to = _UP_TO[_CLOSING[opening]].match(self._text, at)
            at = up_to.end() if up_to else len(self._text)
            if at >= len(self._text):
                raise Unreadable(cut=True)
            # The pattern stops at a backslash only if it is the very last character.
            if self._text[at] != "\\" and self._ends(at + 1):
                self._at = at + 1
                return _ESCAPE.sub(_character, self._text[start:at])
            at += 1
        raise Unreadable

    def _ends(self, at: int) -> bool:
        """True if the quote before `at` ends its string: what follows must be valid JSON syntax."""
        at = self._after_space(at)
        here = self._text[at : at + 1]
        role = self._role
        if role == "key":
            return here == ":"
        if here == ",":
            return role == "item" or _KEY_FOLLOWS.match(self._text, at + 1) is not None
        still_open, behind = len(self._open), at
        while still_open and here == self._open[still_open - 1]:
            still_open -= 1
            behind = at + 1
            at = self._after_space(behind)
            here = self._text[at : at + 1]
        if not here:
            return True
        if still_open:
            return still_open < len(self._open) and here == ","
        rest = _REST if self._place == "prose" else _REST_OF_BLOCK
        return rest.match(self._text, behind) is not None

    def _after_space(self, at: int) -> int:
        space = _SPACE.match(self._text, at)
        return space.end() if space else at


def _character(escape: re.Match[str]) -> str:
    if code := escape[1] or escape[2]:
        return chr(int(code, 16))
    # An escape unknown to JSON most often belongs to code in the string: keep it.
    return _UNESCAPED.get(escape[3], escape[0])
