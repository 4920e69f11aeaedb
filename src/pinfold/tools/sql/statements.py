"""Whether a statement only reads, by its text alone. The database holds it to that besides."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from pinfold.tools.sql.known import DUCKDB_PRAGMAS, SQLITE_PRAGMAS, SQLITE_PRAGMAS_OF, is_refused
from pinfold.tools.sql.sources import Kind
from pinfold.tools.sql.statement_pieces import DIALECTS, GAP, Piece, Refused, clean, pieces_of

Form: TypeAlias = Literal["rows", "told"]
"""What it gives: rows of a query, or what the database tells of itself or of a plan."""
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
"""Kinds of nodes that have no place anywhere in what only reads."""
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
    """Names that stand before a parenthesis: every function that is called, and some words that are none."""


def read_statement(sql: str, kind: Kind) -> Statement:
    """One statement that only reads, or Refused."""
    text = clean(sql)
    begins = _FIRST.match(text)
    first = begins[1].lower() if begins else ""
    told = first in _TELLING[kind]
    if not told and first not in (*_QUERIES, *(_DUCKDB_QUERIES if kind == "duckdb" else ())):
        what = first.upper() if first else "this"
        raise Refused(f"{what} is not for reading; {_ONLY} {_ALSO[kind]}")
    # The parser takes what follows such a word for one piece.
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
        # PostgreSQL cuts longer names, and takes what is left.
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
    """What the plan is of."""
    if rest and rest[0].text == "(" and len(rest) > 1 and not _begins_query(rest[1]):
        end = next((at for at, piece in enumerate(rest) if piece.text == ")"), len(rest))
        return rest[end + 1 :]
    while rest and rest[0].lower in _PLAN_WORDS[kind]:
        rest = rest[1:]
    return rest


def _begins_query(piece: Piece) -> bool:
    return piece.lower in (*_QUERIES, *_DUCKDB_QUERIES)


def _pragma(rest: tuple[Piece, ...], kind: Kind) -> None:
    name = rest[0].lower if rest else ""
    if len(rest) > 2 and rest[1].text == ".":  # main.table_info(...)
        rest = rest[2:]
        name = rest[0].lower
    given = rest[1:]
    allowed = DUCKDB_PRAGMAS if kind == "duckdb" else SQLITE_PRAGMAS | SQLITE_PRAGMAS_OF
    if name not in allowed:
        raise Refused(f"PRAGMA {name} is not one of those that only tell: {', '.join(sorted(allowed))}")
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
    """The tree of the one statement."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # it says there what it also raises
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
