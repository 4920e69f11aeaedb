"""Reads CSV that is written as it should be with Arrow, in less time than DuckDB takes. Anything odd is left to DuckDB.

Plain is: UTF-8, one kind of line end, quotes around whole fields only, as many fields in every row as in the first,
every value of its column's type. Where DuckDB could see something else in it, NotPlain is raised.
"""

from __future__ import annotations

import csv
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from .columns import np
from .sources import KINDS, THREADS, NotPlain, named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .sources import Dialect, Source
    from .tables import Part

BLOCK = 4 << 20
"""Bytes that are read at once; no row is longer."""
_QUOTE = b'"'
_HOUR = len("2020-01-02 03")


def read_into(parts: list[Part], connection: Any, source: Source, until: float) -> bool:
    """Whether there was time for all of it. Raises NotPlain where it takes DuckDB to read it."""
    dialect = source.dialect([part.kind for part in parts])
    reader = Reader(dialect)
    blocks = Blocks(source.path, dialect, until)
    texts = [at for at, part in enumerate(parts) if part.is_text]

    def work() -> None:
        cursor = connection.cursor()
        hashes = Hashes(cursor)
        room = bytearray(BLOCK)
        try:
            while (taken := blocks.take(room))[0]:
                arrays = reader.columns(room, *taken)
                for at, values in hashes.of(reader.table(arrays, texts)).items():
                    parts[int(at)].take(values, len(values))
                for part, array in zip(parts, arrays, strict=True):
                    if not part.is_text:
                        part.add(array)
        finally:
            blocks.stop()  # there are no more, or it makes no sense to go on
            cursor.close()

    try:
        blocks.skip_header()
        with ThreadPoolExecutor(THREADS) as pool:
            for done in [pool.submit(work) for _ in range(THREADS)]:
                done.result()
        return blocks.done
    finally:
        blocks.close()
        reader.close()


class Hashes:
    """Of texts, as DuckDB has them. It is told once what to do: to work that out takes as long as a third of the doing."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._texts: Any = None

    def of(self, texts: Any) -> dict[str, Any]:
        """Of every column of a table of Arrow's, as NumPy has them. All tables have the same columns."""
        first, self._texts = self._texts is None, texts
        if not texts.column_names:
            return {}
        if first:
            hashes = ", ".join(f"hash({named(name)}) AS {named(name)}" for name in texts.column_names)
            self._cursor.register("texts", self)
            self._cursor.execute(f"PREPARE hashes AS SELECT {hashes} FROM texts").fetchall()  # noqa: S608 - our own names
        return self._cursor.execute("EXECUTE hashes").fetchnumpy()

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        """Where DuckDB finds the texts of now."""
        return self._texts.__arrow_c_stream__(schema)


class Blocks:
    """The rows of a file, some megabytes at a time, for several threads."""

    def __init__(self, path: str, dialect: Dialect, until: float) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self._size = os.fstat(self._fd).st_size
        self._dialect = dialect
        self._until = until
        self._turn = threading.Lock()
        self._at = 0

    def skip_header(self) -> None:
        line = os.pread(self._fd, BLOCK, 0).partition(self._dialect.newline)[0]
        try:
            [names] = csv.reader([line.decode()], delimiter=self._dialect.delimiter, strict=True)
        except (ValueError, csv.Error):
            raise NotPlain from None
        if len(names) != len(self._dialect.kinds):
            raise NotPlain
        self._at = len(line) + len(self._dialect.newline)

    @property
    def done(self) -> bool:
        return self._at >= self._size

    def take(self, room: bytearray) -> tuple[int, bool]:
        """Fills the room with whole rows. How many bytes: 0 when there are no more, or no time for more; any quotes?"""
        with self._turn:
            if self.done or time.monotonic() > self._until:
                return 0, False
            end = os.preadv(self._fd, [room], self._at)
            more = self._at + end < self._size
            if more:
                end = room.rfind(b"\n", 0, end) + 1
            last = room.rfind(_QUOTE, 0, end)
            # Counting is slow where there is nothing to count.
            if more and last >= 0 and room.count(_QUOTE, 0, end) % 2:
                end = room.rfind(b"\n", 0, last) + 1  # that line ended within a field
            if not end:
                raise NotPlain
            self._at += end
        self._check(room, end, quotes=last >= 0)
        return end, last >= 0

    def _check(self, data: bytearray, end: int, *, quotes: bool) -> None:
        """For what Arrow would read without a word, and in its own way."""
        if self._dialect.newline == b"\n":
            if data.find(b"\r", 0, end) >= 0:
                raise NotPlain
        elif len({data.count(one, 0, end) for one in (b"\r", b"\n", b"\r\n")}) > 1:
            raise NotPlain
        if not quotes:
            return
        text = np.frombuffer(data, np.uint8, end)
        found = np.flatnonzero(text == ord(_QUOTE))
        # A quote within a field is written as two, of which the first seems to end the field and the second to begin it.
        opening, closing = found[::2], found[1::2]
        edges = np.frombuffer(_QUOTE + self._dialect.delimiter.encode() + b"\r\n", np.uint8)
        before = text[opening[opening > 0] - 1]
        after = text[closing[closing < end - 1] + 1]
        if len(found) % 2 or not np.isin(before, edges).all() or not np.isin(after, edges).all():
            raise NotPlain

    def stop(self) -> None:
        self._until = 0.0

    def close(self) -> None:
        os.close(self._fd)


class Reader:
    """Turns blocks into columns."""

    def __init__(self, dialect: Dialect) -> None:
        self._arrow = arrow = import_module("pyarrow")
        self._csv = import_module("pyarrow.csv")
        self._kinds = dialect.kinds
        # Moments come as texts first: Arrow also takes a day and an hour for one, and DuckDB does not.
        types = dict.fromkeys(KINDS, arrow.string()) | {
            "BIGINT": arrow.int64(),
            "DOUBLE": arrow.float64(),
            "BOOLEAN": arrow.bool_(),
            "DATE": arrow.date32(),
        }
        names = [str(number) for number in range(len(dialect.kinds))]
        self._names = names
        # What need not be looked for is not: most blocks have no quotes, and nothing but ASCII.
        self._parse = {
            quotes: self._csv.ParseOptions(
                delimiter=dialect.delimiter, quote_char=quotes and '"', newlines_in_values=quotes
            )
            for quotes in (False, True)
        }
        self._convert = {
            plain: self._csv.ConvertOptions(
                check_utf8=not plain,
                column_types={name: types[kind] for name, kind in zip(names, dialect.kinds, strict=True)},
                null_values=list(dialect.nulls),
                strings_can_be_null=True,
                true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            )
            for plain in (False, True)
        }

    def columns(self, room: bytearray, size: int, quotes: bool) -> list[Any]:
        """Whole numbers, days and truth values as int64, broken ones as float64, moments as microseconds, texts."""
        arrow = self._arrow
        options = self._csv.ReadOptions(use_threads=False, block_size=size + 1, column_names=self._names)
        try:
            table = self._csv.read_csv(
                arrow.BufferReader(memoryview(room)[:size]),
                read_options=options,
                parse_options=self._parse[quotes],
                convert_options=self._convert[room.isascii()],
            )
            return [self._plain(*one) for one in zip(table.columns, self._kinds, strict=True)]
        except arrow.ArrowInvalid:
            raise NotPlain from None

    def _plain(self, column: Any, kind: str) -> Any:
        arrow = self._arrow
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if kind == "TIMESTAMP":
            # Not asked of pyarrow, which imports pandas at the sight of a number.
            ends = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
            if (np.diff(ends) == _HOUR).any():
                raise NotPlain
            return array.cast(arrow.timestamp("us")).view(arrow.int64())
        if kind == "DATE":
            return array.view(arrow.int32()).cast(arrow.int64())
        if kind == "BOOLEAN":
            return array.cast(arrow.int8()).cast(arrow.int64())
        return array

    def close(self) -> None:
        """Give back what Arrow keeps for the next block."""
        self._arrow.default_memory_pool().release_unused()

    def table(self, arrays: list[Any], chosen: list[int]) -> Any:
        """Some of the columns, named by their place."""
        return self._arrow.table({self._names[at]: arrays[at] for at in chosen})
