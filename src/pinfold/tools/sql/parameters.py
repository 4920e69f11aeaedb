"""Puts values into a statement for PostgreSQL, whose fastest way of giving rows takes none beside it.

They become literals without a type, as if somebody had typed them: `day = $1` works for a date given as text. What comes
of it is checked like any other statement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pinfold.tools.sql.statements import Piece, Refused, clean, pieces_of

Params = Sequence[Any] | Mapping[str, Any]
_FOREIGN = re.compile(r"%s\b|%\(\w+\)s")


def bind_params(sql: str, params: Params | None) -> str:
    """`$1`, `$2` ... for a list, `:name` for a dictionary. Raises Refused."""
    if params is None:
        return sql
    text = clean(sql)
    if _FOREIGN.search(text):
        raise Refused("write $1, $2 ... for params in a list, or :name for a dictionary; not %s")
    named = isinstance(params, Mapping)
    values: Mapping[Any, Any] = params if named else {str(at): value for at, value in enumerate(params, start=1)}
    sign = ":" if named else "$"
    used: set[str] = set()
    parts: list[str] = []
    at = 0
    pieces = pieces_of(text, "postgresql")
    for mark, name in _marks(pieces, sign):
        if name.text not in values:
            given = ", ".join(f"{sign}{one}" for one in values) or "none"
            raise Refused(f"the statement names {sign}{name.text}, and params has {given}")
        used.add(name.text)
        parts += [text[at : mark.start], literal(values[name.text])]
        at = name.end
    if unused := [f"{sign}{name}" for name in values if name not in used]:
        raise Refused(f"params has {', '.join(unused)}, which the statement does not name")
    return "".join([*parts, text[at:]])


def _marks(pieces: tuple[Piece, ...], sign: str) -> list[tuple[Piece, Piece]]:
    found: list[tuple[Piece, Piece]] = []
    for before, mark, name in zip((None, *pieces), pieces, pieces[1:], strict=False):
        touches = mark.text == sign and mark.end == name.start
        # `x[1:n]` is a part of an array.
        is_slice = sign == ":" and before is not None and before.end == mark.start and before.text != "("
        fits = name.text.isdigit() if sign == "$" else name.is_word
        if touches and fits and not is_slice:
            found.append((mark, name))
    return found


def literal(value: Any) -> str:
    """A value as one writes it in PostgreSQL. Raises Refused."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"({value})" if value < 0 else str(value)
        case float():
            plain = repr(value) if math.isfinite(value) else f"'{value}'::float8"
            return f"({plain})" if plain.startswith("-") else plain
        case str():
            if "\0" in value:
                raise Refused("a text of params has a zero byte, which PostgreSQL cannot hold")
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"'\\x{value.hex()}'::bytea"
        case list() | tuple():
            inside = ", ".join(literal(one) for one in cast("Sequence[Any]", value))
            return f"ARRAY[{inside}]" if inside else "'{}'"
        case _:
            raise Refused(
                f"params cannot hold a {type(value).__name__}; give text, numbers, true, false, null or lists"
            )
