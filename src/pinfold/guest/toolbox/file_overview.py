"""A program of its own, run inside the sandbox: describes the files here and in the folders named, and their structure.

Prints at most `MOST` characters, whatever the files are like. Reads little of each.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from typing import Any

MOST = 1200
FILES = 12
READ = 4 << 20
"""The most bytes read of a file; for a longer one the number of lines is not given."""
DEEP = 6
FILE = 500
ALONE = 1000
"""The most characters about a data file that is the only one."""
COLUMNS = 20
KEYS = 8
PATH = 300
"""The most characters of a path, which cannot be opened if it is cut."""
WORDS = 40
LINES = 14
BEGINNING = 240
"""The most characters shown of a text."""
TABLES = {".csv": ",", ".tsv": "\t"}
DATA = (*TABLES, ".json", ".jsonl", ".xlsx", ".xls", ".parquet", ".feather", ".db", ".sqlite")
TEXTS = (".txt", ".log", ".md", ".py", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".sql", ".html", ".xml")


def main(elsewhere: list[str]) -> None:
    paths = [path for place in elsewhere for path in (list_folder(place) if os.path.isdir(place) else [place])]
    paths += list_folder("")
    data = [path for path in paths if extension_of(path) in DATA]
    lines = [describe_file(path, ALONE if data == [path] else FILE) for path in paths[:FILES]]
    if len(paths) > FILES:
        lines.append(f"and {len(paths) - FILES} more")
    text = "\n".join(lines)
    sys.stdout.write(text if len(text) <= MOST else f"{text[: MOST - 4]} ...")


def list_folder(folder: str) -> list[str]:
    names = sorted(name for name in os.listdir(folder or ".") if not name.startswith("."))
    return [os.path.join(folder, name) for name in names]


def extension_of(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def describe_file(path: str, most: int) -> str:
    name = shorten(path, PATH)
    try:
        if os.path.isdir(path):
            return f"{name}/"
        if not os.path.isfile(path):
            return name
        size = os.stat(path).st_size
        inside = describe_content(path, size, COLUMNS if most == FILE else 3 * COLUMNS)
    except (OSError, ValueError, RecursionError, csv.Error):
        return name
    return f"{name}: {shorten(inside, most)}" if inside else f"{name} ({size:,} bytes)"


def describe_content(path: str, size: int, columns: int) -> str:
    end = extension_of(path)
    if end not in (*TABLES, *TEXTS, ".json", ".jsonl"):
        return ""
    with open(path, "rb") as file:
        text = file.read(READ).decode("utf-8", "replace")
    if not text.strip():
        return "empty"
    whole = size <= READ
    if end == ".json":
        return describe_shape(json.loads(text), DEEP) if whole else ""
    lines = text.split("\n")
    count = f"{len(lines) - (not lines[-1]):,}" if whole else "many"
    if end == ".jsonl":
        return f"{count} lines like {describe_shape(json.loads(lines[0]), DEEP)}"
    if end in TABLES:
        return describe_table(text, TABLES[end], whole, columns)
    return f"{count} lines: {shorten(' | '.join(line.rstrip() for line in lines[:LINES]), BEGINNING)}"


def describe_table(text: str, delimiter: str, whole: bool, most: int) -> str:
    rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    header = next(rows)
    nothing: list[str] = []
    first = next(rows, nothing)
    count = f"{sum(1 for row in rows if row) + bool(first):,}" if whole else "many"
    missing = [""] * (len(header) - len(first))
    pairs = zip(header, first + missing, strict=False)
    # Quoted, or a space before or after a name would be missed. A column without a name gets the one pandas gives it.
    columns = [
        f'"{shorten(name, WORDS) or f"Unnamed: {at}"}"={shorten(cell, 20)}' for at, (name, cell) in enumerate(pairs)
    ]
    more = f", and {len(columns) - most} more columns" if len(columns) > most else ""
    return f"{count} rows like {', '.join(columns[:most])}{more}"


def describe_shape(given: object, deep: int) -> str:
    """Describe nested data, with one example of each kind."""
    kind = type(given)
    value: Any = given
    if kind is dict:
        if not deep:
            return "{...}"
        parts = [
            f"{shorten(json.dumps(key), WORDS)}: {describe_shape(value[key], deep - 1)}" for key in list(value)[:KEYS]
        ]
        more = f", and {len(value) - KEYS} more" if len(value) > KEYS else ""
        return f"{{{', '.join(parts)}{more}}}"
    if kind is list:
        if not value or not deep:
            return f"[{len(value)} items]"
        return f"[{len(value)} x {describe_shape(value[0], deep - 1)}]"
    if kind is str and not any(letter.isdigit() for letter in value):
        return "str"  # an example could be mistaken for the value that is asked for
    return shorten(json.dumps(value), 30)


def shorten(text: str, most: int) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable if len(printable) <= most else f"{printable[: most - 3]}..."


main(sys.argv[1:])
