"""Reads tables with DuckDB: detects a file's format and dialect, and tries other options when reading fails.

A sheet of a workbook is first converted to a CSV file with known types, by calamine.
"""

from __future__ import annotations

import csv
import datetime as dt
import os
import re
import tempfile
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from .program_io import Refused, display_path
from .texts import LOOK, encoding_of, kind_of, resolve_file

Found = TypeVar("Found")
Options: TypeAlias = dict[str, str]
Use: TypeAlias = Callable[[Any, "Source", list[tuple[str, str]]], Found]

MEMORY = 128
"""Megabytes for DuckDB; Python, the libraries and what DuckDB does not count come on top."""
MEMORY_MOST = 2000
THREADS = 2
BUFFER = 2_000_000
LONG = 64_000_000
"""The most bytes of a line, once a line has exceeded DuckDB's default limit."""
TRIES = 8
NULLS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A", "#NA")
"""The same as in pandas."""
FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".dat"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "excel"),
}
SHEETS = 10
"""The most sheets of a workbook that are named."""
_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_DELIMITERS = (",", ";", "\t", "|")
_NOT_SNIFFED = ("store_rejects",)
_LATE = "could not convert"
_DECIMAL = re.compile(r"[+-]?\d+,\d+")


class Source:
    """A file and the options it is read with."""

    def __init__(self, path: str) -> None:
        name, _, self._sheet = path.partition("#")
        if not self._sheet or os.path.exists(path):
            name, self._sheet = path, ""
        self.path = resolve_file(name)
        self.name = name
        self.size = os.stat(self.path).st_size
        self.memory = MEMORY
        self.notes: list[str] = []
        self._made: list[str] = []
        """Temporary files."""
        self.options: Options = {}
        self._tried: set[str] = set()
        self._settled: Options = {}
        """Options found by sniffing the file."""
        if not self.size:
            raise Refused(f"{display_path(name)} is empty")
        with open(self.path, "rb") as file:
            head = file.read(LOOK)
        self.kind = self._kind(name, head)
        if self.kind == "csv":
            self._as_csv(head)
        elif self.kind == "excel":
            self._as_excel()

    def _kind(self, name: str, head: bytes) -> str:
        stem, end = os.path.splitext(name.lower())
        if end in _COMPRESSED:
            self.options["compression"] = quote_text(_COMPRESSED[end])
            end = os.path.splitext(stem)[1]
            return FORMATS.get(end, "csv")
        if end in FORMATS:
            return FORMATS[end]
        what = kind_of(name, head)
        if what == "a Parquet table":
            return "parquet"
        if what:
            raise Refused(f"{display_path(name)} is {what}, not a table; use python to work with it")
        return "json" if head.lstrip()[:1] in (b"{", b"[") else "csv"

    def _as_csv(self, head: bytes) -> None:
        self.options["buffer_size"] = str(BUFFER)
        self.options["nullstr"] = f"[{', '.join(map(quote_text, NULLS))}]"
        if "compression" not in self.options:
            encoding, _ = encoding_of(head)
            if encoding.startswith("utf-16"):
                self._set_encoding("utf-16")
            elif encoding not in ("utf-8", ""):
                self._set_encoding("latin-1")

    def _set_encoding(self, encoding: str) -> None:
        self.options["encoding"] = quote_text(encoding)
        self.notes.append(f"the file is not UTF-8 and was read as {encoding}")

    def _as_excel(self) -> None:
        self.path, columns = convert_to_csv(self.path, self.name, self._sheet, self.notes)
        self._made.append(self.path)
        self.kind = "csv"
        types = ", ".join(f"{quote_text(name)}: {quote_text(kind)}" for name, kind in columns.items())
        self.options = {"auto_detect": "false", "header": "true", "columns": f"{{{types}}}", "buffer_size": str(BUFFER)}

    @property
    def sql(self) -> str:
        reader = {"csv": "read_csv", "parquet": "read_parquet", "json": "read_json_auto"}[self.kind]
        chosen = {**self.options, **self._settled}
        if self._settled:
            chosen.pop("sample_size", None)
        options = "".join(f", {name} = {value}" for name, value in chosen.items())
        return f"{reader}({quote_text(self._plain())}{options})"

    def _plain(self) -> str:
        """Return a path that DuckDB does not take for a glob pattern."""
        if not re.search(r"[*?\[\]{}]", self.path):
            return self.path
        link = os.path.join(tempfile.gettempdir(), f"table-{os.urandom(8).hex()}")
        os.symlink(self.path, link)
        self._made.append(link)
        return link

    def close(self) -> None:
        for path in self._made:
            os.unlink(path)

    def look(self, connection: Any) -> list[tuple[str, str]]:
        """Return the columns and their types, adjusting the options until they look like those of a table."""
        if self.kind != "csv" or "columns" in self.options:
            relation = connection.sql(query("*", self))
            return [(str(name), str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)]
        settled, columns = self._sniff(connection)
        if len(columns) == 1 and columns[0][1] == "VARCHAR":
            mark = next((one for one in _DELIMITERS if one in columns[0][0]), "")
            if mark and self._once("ragged"):
                self.options["delim"] = quote_text(mark)
                self._lenient()
                return self.look(connection)
        self._settled = settled
        if self._has_commas(connection, columns) and self._once("commas"):
            self.options["decimal_separator"] = "','"
            return self.look(connection)
        return columns

    def _sniff(self, connection: Any) -> tuple[Options, list[tuple[str, str]]]:
        """Detect the file's dialect and columns, once: otherwise every query would begin with it."""
        asked = {name: value for name, value in self.options.items() if name not in _NOT_SNIFFED}
        options = "".join(f", {name} = {value}" for name, value in asked.items())
        found = connection.sql(f"FROM sniff_csv({quote_text(self._plain())}{options})").fetchall()[0]
        delimiter, quote, escape, newline, comment, skip, header, columns, date, moment = found[:10]
        typed = [(str(one["name"]), str(one["type"])) for one in columns]
        types = ", ".join(f"{quote_text(name)}: {quote_text(kind)}" for name, kind in typed)
        settled = {
            "auto_detect": "false",
            "delim": quote_text(_sign(delimiter) or ","),
            # Quotes may still come after the lines that were sniffed.
            "quote": quote_text(_sign(quote) or '"'),
            "escape": quote_text(_sign(escape) or _sign(quote) or '"'),
            "new_line": quote_text(newline),
            "comment": quote_text(_sign(comment)),
            "skip": str(skip),
            "header": str(header).lower(),
            "columns": f"{{{types}}}",
        }
        # Reading is much faster without an explicit format.
        if date and date != "%Y-%m-%d":
            settled["dateformat"] = quote_text(date)
        if moment and not moment.startswith("%Y-%m-%d"):
            settled["timestampformat"] = quote_text(moment)
        return settled, typed

    def _has_commas(self, connection: Any, columns: list[tuple[str, str]]) -> bool:
        """Return whether a text column holds numbers with a decimal comma."""
        texts = [name for name, kind in columns if kind == "VARCHAR"]
        if len(columns) < 2 or not texts or "encoding" in self.options or "decimal_separator" in self.options:
            return False
        chosen = ", ".join(quote_column(name) for name in texts)
        rows: list[tuple[Any, ...]] = connection.sql(query(chosen, self, "LIMIT 100")).fetchall()
        return any(
            (values := [row[at] for row in rows if row[at] is not None])
            and all(_DECIMAL.fullmatch(value) for value in values)
            for at in range(len(texts))
        )

    def mend(self, words: str) -> bool:
        """Change the options after an error; return False if there is nothing else to try."""
        self._settled = {}
        lower = words.lower()
        if "out of memory" in lower:
            return self.take_more_memory()
        if self.kind != "csv":
            return False
        if "maximum line size" in lower and self._once("long"):
            self.memory = max(self.memory, 10 * LONG // 1_000_000)
            self.options |= {"max_line_size": str(LONG), "buffer_size": str(2 * LONG)}
            return True
        if ("utf-8" in lower or "unicode" in lower) and self._once("encoding"):
            self._set_encoding("latin-1")
            return True
        if _LATE in lower and self._once("types"):
            self.options["sample_size"] = "-1"
            return True
        if _LATE in lower and self._once("texts"):
            self.options["all_varchar"] = "true"
            self.notes.append("column types could not be detected; all columns are read as text")
            return True
        if self._once("lenient"):
            self._lenient()
            return True
        return False

    def take_more_memory(self) -> bool:
        """Raise DuckDB's memory limit; return False if it is at its maximum."""
        if self.memory >= MEMORY_MOST:
            return False
        self.memory *= 3
        return True

    def _lenient(self) -> None:
        self._tried.add("lenient")
        self.options |= {"null_padding": "true", "ignore_errors": "true", "store_rejects": "true"}

    def _once(self, what: str) -> bool:
        if what in self._tried:
            return False
        self._tried.add(what)
        return True

    def note_skipped_rows(self, connection: Any) -> None:
        """Note the rows that could not be read."""
        if "store_rejects" not in self.options:
            return
        count, first = connection.sql("SELECT count(DISTINCT line), min(line) FROM reject_errors").fetchall()[0]
        self.notes.append("rows with too few fields are filled up with nulls")
        if count:
            does = "does not fit the columns and was" if count == 1 else "do not fit the columns and were"
            self.notes.append(f"{many(count, 'row')} {does} left out, the first at line {first:,}")


def read_table(path: str, use: Use[Found], *, ordered: bool) -> tuple[Found, Source]:
    """Return what `use` returns for the table. After a read error, other options are tried while there are any."""
    source = Source(path)
    try:
        return _try_source(source, use, ordered), source
    finally:
        source.close()


def _try_source(source: Source, use: Use[Found], ordered: bool) -> Found:
    duckdb = _duckdb()
    for _ in range(TRIES):
        connection = duckdb.connect()
        try:
            connection.execute(f"SET threads = {THREADS}; SET memory_limit = '{source.memory}MB'")
            connection.execute(f"SET preserve_insertion_order = {str(ordered).lower()}")
            connection.execute(f"SET temp_directory = {quote_text(tempfile.gettempdir())}")
            connection.execute("SET autoinstall_known_extensions = false; SET enable_progress_bar = false")
            found = use(connection, source, source.look(connection))
            source.note_skipped_rows(connection)
        except duckdb.Error as error:
            if not source.mend(str(error)):
                raise Refused(f"{display_path(source.name)} cannot be read as a table: {_first(str(error))}") from error
        else:
            return found
        finally:
            connection.close()
    raise Refused(f"{display_path(source.name)} cannot be read as a table")


def _duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError:
        raise Refused(
            "data_view needs duckdb, and the session's Python has none: `pinfold env build` makes one that has; "
            "read_file and python work without"
        ) from None


def _sign(found: str) -> str:
    return "" if found == "(empty)" else found


def _first(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return " ".join(lines[:3])[:300]


def many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def fetch(connection: Any, source: Source, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, retrying with more memory if it needs more."""
    duckdb = _duckdb()
    while True:
        try:
            return connection.sql(sql).fetchall()
        except duckdb.OutOfMemoryException:
            if not source.take_more_memory():
                raise
            connection.execute(f"SET memory_limit = '{source.memory}MB'")


def query(chosen: str, source: Source, rest: str = "") -> str:
    return " ".join(("SELECT", chosen, "FROM", source.sql, rest))


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def quote_column(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def convert_to_csv(path: str, name: str, sheet: str, notes: list[str]) -> tuple[str, dict[str, str]]:
    """Convert a sheet to a CSV file; return its path and the type of each column."""
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
            raise Refused(f"{display_path(name)} has no sheet {sheet!r}; it has {', '.join(names[:SHEETS])}")
        rows: list[list[Any]] = []
        for chosen in [sheet] if sheet else names:
            rows = book.get_sheet_by_name(chosen).to_python(skip_empty_area=True)
            if rows:
                sheet = chosen
                break
    except (calamine.CalamineError, OSError) as error:
        raise Refused(f"{display_path(name)} cannot be read as a workbook: {error}") from error
    if not rows:
        raise Refused(f"{display_path(name)} has only empty cells")
    others = [one for one in names if one != sheet]
    more = f"; also {', '.join(others[:SHEETS])}, open them as FILE#SHEET" if others else ""
    notes.append(f"sheet {sheet}{more}")
    titles = _titles(rows[0])
    columns = {title: _sheet_type([row[at] for row in rows[1:]]) for at, title in enumerate(titles)}
    fd, path = tempfile.mkstemp(suffix=".csv")
    with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        for row in rows[1:]:
            writer.writerow([_sheet_text(value) for value in row])
    return path, columns


def _titles(row: list[Any]) -> list[str]:
    titles: list[str] = []
    for at, value in enumerate(row):
        title = _sheet_text(value) or f"column{at}"
        while title in titles:
            title += "_1"
        titles.append(title)
    return titles


def _sheet_type(values: list[Any]) -> str:
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


def _sheet_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)
