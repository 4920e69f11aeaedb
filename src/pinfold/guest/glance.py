"""A program of its own, run inside the sandbox: what files a folder holds and how they are made, in a few lines.

Prints at most `MOST` characters, whatever the files are like. Reads little of each.
"""

from __future__ import annotations

import csv
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 1200
FILES = 12
READ = 4 << 20
"""Bytes of a file that are looked at; of a longer one the number of lines is not told."""
DEEP = 6
FILE = 500
KEYS = 8
WORDS = 40
LINES = 14
BEGINNING = 240
"""Characters of a text that are shown."""
TABLES = {".csv": ",", ".tsv": "\t"}
TEXTS = (".txt", ".log", ".md", ".py", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".sql", ".html", ".xml")


def main() -> None:
    entries = sorted(
        (entry for entry in os.scandir(".") if not entry.name.startswith(".")), key=lambda entry: entry.name
    )
    lines = [told(entry) for entry in entries[:FILES]]
    if len(entries) > FILES:
        lines.append(f"and {len(entries) - FILES} more")
    text = "\n".join(lines)
    sys.stdout.write(text if len(text) <= MOST else f"{text[: MOST - 4]} ...")


def told(entry: os.DirEntry[str]) -> str:
    name = short(entry.name, 2 * WORDS)
    try:
        if entry.is_dir():
            return f"{name}/"
        if not entry.is_file():
            return name
        size = entry.stat().st_size
        inside = made(entry.path, size)
    except (OSError, ValueError, RecursionError, csv.Error):
        return name
    return f"{name}: {short(inside, FILE)}" if inside else f"{name} ({size:,} bytes)"


def made(path: str, size: int) -> str:
    end = os.path.splitext(path)[1].lower()
    if end not in (*TABLES, *TEXTS, ".json", ".jsonl"):
        return ""
    with open(path, "rb") as file:
        text = file.read(READ).decode("utf-8", "replace")
    if not text.strip():
        return "empty"
    whole = size <= READ
    if end == ".json":
        return shape(json.loads(text), DEEP) if whole else ""
    lines = text.split("\n")
    count = f"{len(lines) - (not lines[-1]):,}" if whole else "many"
    if end == ".jsonl":
        return f"{count} lines like {shape(json.loads(lines[0]), DEEP)}"
    if end in TABLES:
        return table(text, TABLES[end], whole)
    return f"{count} lines: {short(' | '.join(line.rstrip() for line in lines[:LINES]), BEGINNING)}"


def table(text: str, delimiter: str, whole: bool) -> str:
    rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    header = next(rows)
    first: list[str] = next(rows, [])
    count = f"{sum(1 for row in rows if row) + bool(first):,}" if whole else "many"
    cells = [*first, *[""] * (len(header) - len(first))]
    columns = [f"{short(name, WORDS)}={short(cell, 20)}" for name, cell in zip(header, cells, strict=False)]
    more = f", and {len(columns) - 20} more columns" if len(columns) > 20 else ""
    return f"{count} rows like {', '.join(columns[:20])}{more}"


def shape(value: Any, deep: int) -> str:
    """Nested data with one example of each kind."""
    kind: type[Any] = type(value)
    if kind is dict:
        if not deep:
            return "{...}"
        parts = [
            f"{short(json.dumps(key), WORDS)}: {shape(value[key], deep - 1)}" for key in list(value)[:KEYS]
        ]
        more = f", and {len(value) - KEYS} more" if len(value) > KEYS else ""
        return f"{{{', '.join(parts)}{more}}}"
    if kind is list:
        if not value or not deep:
            return f"[{len(value)} items]"
        return f"[{len(value)} x {shape(value[0], deep - 1)}]"
    if kind is str and not any(letter.isdigit() for letter in value):
        return "str"  # an example would be taken for the thing that is asked for
    return short(json.dumps(value), 30)


def short(text: str, most: int) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable if len(printable) <= most else f"{printable[: most - 3]}..."


main()
