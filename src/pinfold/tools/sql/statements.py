"""Decides from a statement's text alone whether it only reads. The database also enforces that.

The parser and the databases do not agree on all syntax: one may see a comment where the other sees a call. A statement
on which they could differ is refused.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from pinfold.tools.sql.sources import Kind

DIALECTS: dict[Kind, str] = {"postgresql": "postgres", "sqlite": "sqlite", "duckdb": "duckdb"}
LONGEST = 100_000
"""Maximum characters of a statement."""
GAP = r"(?:[ \t\n]|--[^\n]*(?:\n|\Z)|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/)*"
"""Allowed between pieces: blanks, and comments that do not nest."""
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
    """A statement that is not run; the message says why and what to write instead."""


class DatabaseFault(Exception):
    """An error from the database or its driver; shown to the statement's author."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A token: a word, a quoted name, a string, a number or an operator."""

    kind: str
    """The parser's name for it."""
    text: str
    """The text without quotes."""
    start: int
    end: int

    @property
    def is_word(self) -> bool:
        return self.kind not in _STRINGS and bool(_WORD.fullmatch(self.text))

    @property
    def lower(self) -> str:
        return self.text.lower()


def clean(sql: str) -> str:
    """Return the statement as it will be run. Raises Refused."""
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
    """Split a statement into tokens. Raises Refused if it could be read in two ways."""
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
            return all(_WORD.fullmatch(word) for word in raw.split()) or bool(_SIGNS.fullmatch(raw))


def _run_together(before: Piece, piece: Piece, text: str) -> bool:
    """True if some database could read two adjacent pieces as one."""
    last, first = text[before.end - 1], text[piece.start]
    if before.kind in ("STRING", "IDENTIFIER") or piece.kind in ("IDENTIFIER", "STRING"):
        # A letter before a quote may be a prefix unknown to the parser, such as `u&`.
        return last.isalnum() or last in "_$&" or (before.kind != "STRING" and first.isalnum())
    is_wordy = last.isalnum() or last in "_$" or ord(last) > 127
    return is_wordy and (first.isalnum() or first in "_$" or ord(first) > 127) and before.kind != "PARAMETER"


def _unclear(piece: str, instead: str) -> str:
    shown = piece.strip()
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    return f"{shown!r} can be read in more than one way; {instead}"


# Functions and settings, grouped by what they could do.
_LISTS: dict[str, dict[str, str]] = tomllib.loads((files("pinfold.tools.sql") / "known.toml").read_text("utf-8"))


def _names(kind: Kind, key: str) -> frozenset[str]:
    return frozenset(_LISTS[kind].get(key, "").split())


HARMLESS = _names("postgresql", "harmless")
SQLITE_REFUSED = _names("sqlite", "refused")
SQLITE_PRAGMAS = _names("sqlite", "pragmas")
SQLITE_PRAGMAS_OF = _names("sqlite", "pragmas_of")
DUCKDB_PRAGMAS = _names("duckdb", "pragmas")


def is_refused(kind: Kind, name: str) -> bool:
    """True if a call is refused, whatever the server says about the function."""
    return (
        name in _names(kind, "refused")
        or name.startswith(tuple(_names(kind, "refused_families")))
        or name.endswith(tuple(_names(kind, "refused_endings")))
    )


Form: TypeAlias = Literal["rows", "told"]
"""The result of a statement: rows of a query, or a description of the database or a plan."""
_TELLING: dict[Kind, tuple[str, ...]] = {
    "postgresql": ("show", "explain"),
    "sqlite": ("pragma", "explain"),
    "duckdb": ("show", "explain", "describe", "desc", "summarize", "pragma"),
}
_QUERIES = ("select", "with", "values", "table", "(")
_DUCKDB_QUERIES = ("from", "pivot", "unpivot")
_FIRST = re.compile(rf"{GAP}([A-Za-z]+|\()")
_PLAN_WORDS: dict[Kind, tuple[str, ...]] = {
    "postgresql": ("analyze", "verbose"),
    "sqlite": ("query", "plan"),
    "duckdb": ("analyze",),
}
_FILES = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson", ".db", ".duckdb", ".xlsx", ".gz", ".zst", ".txt")
_ONLY = "write one SELECT, WITH, VALUES, EXPLAIN or"
_ALSO: dict[Kind, str] = {"postgresql": "SHOW", "sqlite": "PRAGMA table_info(...)", "duckdb": "DESCRIBE"}
_CHANGING = (
    "Alter", "Analyze", "Attach", "Cache", "Command", "Comment", "Commit", "Copy", "Create", "Delete", "Detach", "Drop",
    "Execute", "Export", "Grant", "Insert", "Install", "Into", "Kill", "LoadData", "Lock", "Merge", "MultitableInserts",
    "Pragma", "Refresh", "Revoke", "Rollback", "Set", "Transaction", "TruncateTable", "Uncache", "Update", "Use",
)  # fmt: skip
"""Syntax nodes that never occur in a read-only statement."""
_WORDS_FOR = {
    "Into": "SELECT INTO makes a table",
    "Lock": "FOR UPDATE and FOR SHARE lock rows",
    "Command": "a part of it is not understood",
}


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    form: Form
    called: frozenset[str]
    """Names before a parenthesis: every called function, and some words that are not functions."""


def read_statement(sql: str, kind: Kind) -> Statement:
    """Parse a statement. Raises Refused unless it is a single one that only reads."""
    text = clean(sql)
    begins = _FIRST.match(text)
    first = begins[1].lower() if begins else ""
    told = first in _TELLING[kind]
    if not told and first not in (*_QUERIES, *(_DUCKDB_QUERIES if kind == "duckdb" else ())):
        what = first.upper() if first else "this"
        raise Refused(f"{what} is not for reading; {_ONLY} {_ALSO[kind]}")
    # The parser treats what follows such a word as one token.
    body = text[begins.end() :] if told and begins else text
    pieces = pieces_of(body, kind)
    called = _called_names(pieces, kind)
    if name := next((name for name in sorted(called) if is_refused(kind, name)), None):
        raise Refused(f"{name}() may change something, or reach files or other servers; do without it")
    if told:
        _check_metadata(first, body, pieces, kind)
        return Statement(text, "told", called)
    _query(text, kind)
    return Statement(text, "rows", called)


def _called_names(pieces: tuple[Piece, ...], kind: Kind) -> frozenset[str]:
    names: set[str] = set()
    for piece, after in pairwise(pieces):
        if after.text != "(" or not (piece.is_word or piece.kind == "IDENTIFIER"):
            continue
        name = piece.text if piece.kind == "IDENTIFIER" and kind == "postgresql" else piece.lower
        # PostgreSQL truncates longer names to 63 bytes.
        names.add(name.encode()[:63].decode("utf-8", "ignore") if kind == "postgresql" else name)
    return frozenset(names)


def _check_metadata(first: str, text: str, rest: tuple[Piece, ...], kind: Kind) -> None:
    match first:
        case "explain":
            body = _planned_query(rest, kind)
            if not body:
                raise Refused("EXPLAIN of what? Write the query after it")
            _query(text[body[0].start :], kind)
        case "pragma":
            _pragma(rest, kind)
        case "show":
            if not rest or len(rest) > 5 or not all(_is_name(piece) for piece in rest):
                raise Refused("SHOW takes the name of a setting or of a table, and nothing else")
        case _:
            if not rest:
                raise Refused(f"{first.upper()} of what? Write a table or a query after it")
            if not all(_is_name(piece) for piece in rest):
                _query(text[rest[0].start :], kind)
            else:
                _no_files(piece.text for piece in rest)


def _is_name(piece: Piece) -> bool:
    return piece.is_word or piece.kind == "IDENTIFIER" or piece.text == "."


def _planned_query(rest: tuple[Piece, ...], kind: Kind) -> tuple[Piece, ...]:
    """Return the statement to be explained."""
    if rest and rest[0].text == "(" and len(rest) > 1 and rest[1].lower not in (*_QUERIES, *_DUCKDB_QUERIES):
        end = next((at for at, piece in enumerate(rest) if piece.text == ")"), len(rest))
        return rest[end + 1 :]
    while rest and rest[0].lower in _PLAN_WORDS[kind]:
        rest = rest[1:]
    return rest


def _pragma(rest: tuple[Piece, ...], kind: Kind) -> None:
    name = rest[0].lower if rest else ""
    if len(rest) > 2 and rest[1].text == ".":  # main.table_info(...)
        rest = rest[2:]
        name = rest[0].lower
    given = rest[1:]
    allowed = DUCKDB_PRAGMAS if kind == "duckdb" else SQLITE_PRAGMAS | SQLITE_PRAGMAS_OF
    if name not in allowed:
        raise Refused(f"PRAGMA {name} is not one of those that only read: {', '.join(sorted(allowed))}")
    if not given:
        return
    is_one = len(given) == 3 and given[0].text == "(" and given[2].text == ")" and given[1].text not in "()=,;"
    if not is_one or (kind == "sqlite" and name not in SQLITE_PRAGMAS_OF):
        raise Refused(f"PRAGMA {name} with a value may change a setting; write it without one")


def _query(text: str, kind: Kind) -> None:
    from sqlglot import exp

    root = _parse_statement(text, kind)
    while isinstance(root, exp.Subquery | exp.Paren):
        root = root.this
    roots = (exp.Select, exp.SetOperation, exp.Values, *((exp.Pivot,) if kind == "duckdb" else ()))
    if not isinstance(root, roots):
        raise Refused(f"{type(root).__name__.upper()} is not for reading; {_ONLY} {_ALSO[kind]}")
    for node in root.walk():
        name = type(node).__name__
        if name in _CHANGING:
            words = _WORDS_FOR.get(name, f"{name.upper()} changes something")
            raise Refused(f"{words}, and databases are read only here; {_ONLY} {_ALSO[kind]}")
        if isinstance(node, exp.CTE) and not isinstance(node.this, exp.Query | exp.Values):
            raise Refused(f"the part {node.alias!r} of WITH does not only read; write a SELECT in it")
    if kind == "duckdb":
        tables: list[Any] = list(root.find_all(exp.Table))
        if any(isinstance(table.this, exp.Literal) for table in tables):
            raise Refused("files are not read through a database; open them from Python instead")
        _no_files(str(table.name) for table in tables)


def _no_files(names: Iterable[str]) -> None:
    for name in names:
        if "/" in name or "\\" in name or "*" in name or "://" in name or name.lower().endswith(_FILES):
            raise Refused(f"{name[:60]!r} names a file; open files from Python instead")


def _parse_statement(text: str, kind: Kind) -> Any:
    """Return the syntax tree of a single statement."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it also raises what it logs
    try:
        found = [one for one in sqlglot.parse(text, read=DIALECTS[kind]) if one is not None]
    except SqlglotError as error:
        said = str(error).splitlines()[0].replace("\x1b[4m", "").replace("\x1b[0m", "")
        raise Refused(f"the statement cannot be read: {said[:300]} {_ONLY} {_ALSO[kind]}") from error
    except RecursionError as error:
        raise Refused("the statement is nested too deeply; use WITH, or params for long lists") from error
    if len(found) != 1:
        raise Refused(f"there are {len(found)} statements; give one at a time")
    return found[0]
