"""Exact numbers: from the text in which PostgreSQL gives them to decimals, as narrow as holds all of a column."""

from __future__ import annotations

from typing import Any

from pinfold.tools.sql.libraries import arrow, compute

_NARROW, _WIDE = 38, 76
"""Digits that Arrow's two kinds hold."""
_EMPTY = 10
"""Digits after the point where a column has no value to tell."""


def as_decimals(texts: Any, typmod: int) -> Any:
    """`typmod` is PostgreSQL's word for precision and scale. Stays text where there is NaN, infinity, or too many digits."""
    pa = arrow()
    pc = compute()
    before, after = _declared_digits(typmod)
    if before + after == 0:
        # Of 123.45: where the point is, and what comes after it.
        points = pc.find_substring(texts, ".")
        lengths = pc.utf8_length(texts)
        scales = pc.if_else(pc.less(points, 0), 0, pc.subtract(pc.subtract(lengths, points), 1))
        wholes = pc.if_else(pc.less(points, 0), lengths, points)
        before, after = pc.max(wholes).as_py() or 1, pc.max(scales).as_py()
        after = _EMPTY if after is None else after
    digits = max(before + after, 1)
    has_words = pc.any(
        pc.is_in(texts, value_set=pa.array(["nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"]))
    ).as_py()
    if digits > _WIDE or has_words:
        return texts
    kind = pa.decimal128(max(digits, after), after) if digits <= _NARROW else pa.decimal256(digits, after)
    return texts.cast(kind)


def _declared_digits(typmod: int) -> tuple[int, int]:
    """Digits before and after the point; both 0 where nothing was said, or something unusual."""
    if typmod < 4:
        return 0, 0
    precision, scale = (typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF
    return (precision - scale, scale) if scale <= precision else (0, 0)
