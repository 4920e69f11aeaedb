"""Where a statement's pieces begin and end, checked a second time against the databases' own rules.

The parser and the databases do not agree on all writings: one sees a comment where the other sees a call. A statement in
which they could differ is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pinfold.tools.sql.sources import Kind

DIALECTS: dict[Kind, str] = {"postgresql": "postgres", "sqlite": "sqlite", "duckdb": "duckdb"}
LONGEST = 100_000
"""Characters of a statement."""
GAP = r"(?:[ \t\n]|--[^\n]*(?:\n|\Z)|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/)*"
"""What may stand between pieces: blanks, and comments that do not nest."""
_GAP = re.compile(GAP)
_WORD = re.compile(r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*")
_NUMBER = re.compile(r"[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9]+)?|0[xX][0-9a-fA-F]+")
_PLAIN = r"'(?:[^']|'')*'"
_STRINGS: dict[str, re.Pattern[str]] = {
    "STRING": re.compile(_PLAIN),
    "NATIONAL_STRING": re.compile(f"[nN]{_PLAIN}"),
    "BIT_STRING": re.compile(f"[bB]{_PLAIN}"),
    "HEX_STRING": re.compile(r"[xX]'[0-9a-fA-F]*'|0[xX][0-9a-fA-F]+"),
    "BYTE_STRING": re.compile(r"[eE]'(?:[^'\\]|''|\\[^\n])*'"),
}
_QUOTED = {
    "postgresql": re.compile(r'"(?:[^"]|"")+"'),
    "duckdb": re.compile(r'"(?:[^"]|"")+"'),
    "sqlite": re.compile(r'"(?:[^"]|"")+"|`(?:[^`]|``)+`|\[[^\]]+\]'),
}
_SIGNS = re.compile(r"[^\w\s'\"`]{1,3}")


class Refused(Exception):
    """A statement that is not run; the words say why and what to write instead."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A word, a name in quotes, a text, a number or a sign."""

    kind: str
    """As the parser names it."""
    text: str
    """Without its quotes."""
    start: int
    end: int

    @property
    def is_word(self) -> bool:
        return self.kind not in _STRINGS and bool(_WORD.fullmatch(self.text))

    @property
    def lower(self) -> str:
        return self.text.lower()


def clean(sql: str) -> str:
    """As it is run. Raises Refused."""
    text = sql.replace("\r\n", "\n").strip()
    while text.endswith(";"):
        text = text[:-1].rstrip()
    if not text:
        raise Refused("there is no statement; write one, such as SELECT 1")
    if len(text) > LONGEST:
        raise Refused(f"the statement is longer than {LONGEST:,} characters; give long lists as params")
    if odd := re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", text):
        raise Refused(f"the statement has the control character {odd[0]!r}; take it out, or write it as chr(n)")
    return text


def pieces_of(text: str, kind: Kind) -> tuple[Piece, ...]:
    """Raises Refused where it could be read in two ways."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import SqlglotError

    try:
        tokens: list[Any] = list(Dialect.get_or_raise(DIALECTS[kind]).tokenize(text))
    except (SqlglotError, RecursionError) as error:
        raise Refused("a text, a name or a comment of the statement does not end; close its quotes") from error
    pieces = [Piece(token.token_type.name, token.text, token.start, token.end + 1) for token in tokens]
    at = 0
    before: Piece | None = None
    for piece in pieces:
        gap, raw = text[at : piece.start], text[piece.start : piece.end]
        if not _GAP.fullmatch(gap):
            raise Refused(_unclear(gap, "nested or unusual comments and blanks are not understood; leave them out"))
        if not _is_plain(raw, piece, kind):
            raise Refused(_unclear(raw, "write it as a plain text, name or number"))
        if before is not None and not gap and _run_together(before, piece, text):
            raise Refused(_unclear(text[before.start : piece.end], "put a blank between, or write it plainly"))
        at, before = piece.end, piece
    if not _GAP.fullmatch(text[at:]):
        raise Refused(_unclear(text[at:], "leave it out"))
    return tuple(pieces)


def _is_plain(raw: str, piece: Piece, kind: Kind) -> bool:
    if piece.kind in _STRINGS:
        return bool(_STRINGS[piece.kind].fullmatch(raw)) and (kind != "sqlite" or raw[0] in "'xX0")
    match piece.kind:
        case "HEREDOC_STRING":
            tag = re.match(r"\$[A-Za-z_]*\$", raw)
            return kind != "sqlite" and tag is not None and raw.find(tag[0], tag.end()) == len(raw) - tag.end()
        case "IDENTIFIER":
            return bool(_QUOTED[kind].fullmatch(raw))
        case "NUMBER":
            return bool(_NUMBER.fullmatch(raw))
        case "BLOCK_START" | "BLOCK_END" | "RAW_STRING" | "UNICODE_STRING":
            return False
        case _:
            words = raw.split()
            return all(_WORD.fullmatch(word) for word in words) or bool(_SIGNS.fullmatch(raw))


def _run_together(before: Piece, piece: Piece, text: str) -> bool:
    """Two pieces without a blank between that some database reads as one."""
    last, first = text[before.end - 1], text[piece.start]
    if before.kind in ("STRING", "IDENTIFIER") or piece.kind in ("IDENTIFIER", "STRING"):
        # A letter before a quote may be a prefix nobody here knows of; `u&` is one.
        return last.isalnum() or last in "_$&" or (before.kind != "STRING" and first.isalnum())
    is_wordy = last.isalnum() or last in "_$" or ord(last) > 127
    return is_wordy and (first.isalnum() or first in "_$" or ord(first) > 127) and before.kind != "PARAMETER"


def _unclear(piece: str, instead: str) -> str:
    shown = piece.strip()
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return f"{shown!r} can be read in more than one way; {instead}"
