"""A sheet of a workbook as a CSV file with types. Needs calamine."""

from __future__ import annotations

import csv
import datetime as dt
import os
import tempfile
from importlib import import_module
from typing import Any

from .program_io import Refused, display_path

LISTED = 10


def convert_to_csv(path: str, name: str, sheet: str, notes: list[str]) -> tuple[str, dict[str, str]]:
    """Where it is, and the type of each column."""
    try:
        calamine: Any = import_module("python_calamine")
    except ImportError:
        raise Refused(
            "workbooks need python-calamine, and the session's Python has none: `pinfold env build` makes one that has"
        ) from None
    try:
        book = calamine.CalamineWorkbook.from_path(path)
        names = list(book.sheet_names)
        if sheet and sheet not in names:
            raise Refused(f"{display_path(name)} has no sheet {sheet!r}; it has {', '.join(names[:LISTED])}")
        rows: list[list[Any]] = []
        for chosen in [sheet] if sheet else names:
            rows = book.get_sheet_by_name(chosen).to_python(skip_empty_area=True)
            if rows:
                sheet = chosen
                break
    except (calamine.CalamineError, OSError) as error:
        raise Refused(f"{display_path(name)} cannot be read as a workbook: {error}") from error
    if not rows:
        raise Refused(f"{display_path(name)} has no cells with anything in them")
    others = [one for one in names if one != sheet]
    more = f"; also {', '.join(others[:LISTED])}, to be had as FILE#SHEET" if others else ""
    notes.append(f"sheet {sheet}{more}")
    return _write_csv(rows)


def _write_csv(rows: list[list[Any]]) -> tuple[str, dict[str, str]]:
    titles = _titles(rows[0])
    columns = {title: _type([row[at] for row in rows[1:]]) for at, title in enumerate(titles)}
    fd, path = tempfile.mkstemp(suffix=".csv")
    with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        for row in rows[1:]:
            writer.writerow([_text(value) for value in row])
    return path, columns


def _titles(row: list[Any]) -> list[str]:
    titles: list[str] = []
    for at, value in enumerate(row):
        title = _text(value) or f"column{at}"
        while title in titles:
            title += "_1"
        titles.append(title)
    return titles


def _type(values: list[Any]) -> str:
    kinds: set[type] = {type(value) for value in values if value != ""}
    if not kinds:
        return "VARCHAR"
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds <= {int, float}:
        whole = all(float(value).is_integer() and abs(value) < 1 << 53 for value in values if value != "")
        return "BIGINT" if whole else "DOUBLE"
    if kinds == {dt.date}:
        return "DATE"
    if kinds <= {dt.date, dt.datetime}:
        return "TIMESTAMP"
    return "VARCHAR"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)
