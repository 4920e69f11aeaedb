"""Tables that fit the terminal: columns in the middle are left out, numbers are right-aligned."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import unescape

from msgspec import Struct
from rich import box
from rich.table import Table
from rich.text import Text

from pinfold.text import presentable_line

ROWS = 40
"""Rows that are shown; a longer table is cut in the middle."""
HTML = 1 << 20
"""Longest page that is searched for a table."""
_NARROWEST = 6
"""A narrower column is left out."""
_WIDEST = 40
_SIDE = 100
"""Columns at either side that are considered."""
_CELL = 500
_NUMBER = re.compile(r"[-+\u2212]?[$€£]?\s?(?:\d[\d,_ ]*)?(?:\.\d*)?(?:e[-+]?\d+)?\s?%?")
_ODD = ("img", "svg", "canvas", "iframe", "details", "input", "button", "form", "script", "object", "video")
"""Tags that a plain table does not have."""
_TAG = re.compile(r"<(?P<ends>/?)(?P<name>[A-Za-z][A-Za-z0-9]{0,20})(?P<given>(?:\s[^<>]{0,2000})?)/?>")
_SPAN = re.compile(r"\s(colspan|rowspan)\s{0,3}=\s{0,3}[\"']?([0-9]{1,3})[\"']?(?=\s|/|$)", re.IGNORECASE)
_UNSEEN = re.compile(r"<style(?:\s[^<>]{0,200})?>[^<]*</style\s*>|<!--[^<>]{0,2000}-->", re.IGNORECASE)
_MOST_ROWS, _MOST_COLUMNS = 2000, 200
_BESIDE = 300
"""Characters outside the table that a page may have."""
_NOTHING = ("", "NaN", "nan", "None", "<NA>", "NaT", "-", "...", "inf", "-inf")


class Grid(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...] = ()
    """Columns to align right in addition to numeric ones."""
    note: str = ""
    """A line below the table."""


def render_table(grid: Grid, width: int, *, words: Callable[[str], Text] | None = None) -> Table:
    """Fit a table to `width`. `words` renders a cell, whose text is already safe for a terminal."""
    total = len(grid.columns)
    # No terminal has room for the middle of so many columns.
    places = [place for place in range(total) if place < _SIDE or place >= total - _SIDE]
    rows = [grid.columns, *_limit_rows(grid.rows, total)]
    columns = [[row[place] for row in rows] for place in places]
    cells = [[(words or Text)(text[:_CELL]) for text in column] for column in columns]
    kept = _fit_columns([max(one.cell_len for one in column) for column in cells], width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False, header_style="bold")
    for place in kept:
        if place is None:
            table.add_column(Text("...", "dim"), justify="center", style="dim")
            continue
        asked = places[place] < len(grid.right) and grid.right[places[place]]
        right = asked or _is_numeric(columns[place][1:])
        table.add_column(
            cells[place][0],
            justify="right" if right else "left",
            no_wrap=right,
            overflow="ellipsis" if right else "fold",
            max_width=None if len(kept) == 1 else max(_WIDEST, width // len(kept)),
        )
    for number in range(1, len(rows)):
        table.add_row(*(Text("...") if place is None else cells[place][number] for place in kept))
    left_out = total - sum(place is not None for place in kept)
    notes = [f"{left_out:,} columns left out"] * bool(left_out) + [grid.note] * bool(grid.note)
    if notes:
        table.caption, table.caption_justify, table.caption_style = "; ".join(notes), "left", "dim"
    return table


def parse_html_table(html: str) -> Grid | None:
    """Return the page's table; None unless the page is one plain table."""
    if len(html) > HTML or "<table" not in html.lower():
        return None
    reader = _Reader()
    if not reader.read(html):
        return None
    rows = [row for row in reader.rows if row]
    if reader.tables != 1 or not rows:
        return None
    wide = max(map(len, rows))
    even: list[tuple[str, ...]] = [tuple(row) + ("",) * (wide - len(row)) for row in rows]
    heads = max(1, reader.head_rows)
    # A column's heading may take several rows.
    columns = tuple(
        "\n".join(dict.fromkeys(part for part in parts if part)) for parts in zip(*even[:heads], strict=True)
    )
    return Grid(columns=columns, rows=tuple(even[heads:]), note=presentable_line(reader.after.strip())[:100])


class _Reader:
    """Reads the cells of a plain table and a line below it; gives up on anything else.

    Not `html.parser`, which takes quadratic time for hostile input.
    """

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.tables = self.head_rows = 0
        self.after = ""
        self._cell: list[str] | None = None
        self._spans = (1, 1)
        """Columns and rows that the cell spans."""
        self._in_head = False
        self._down: dict[int, int] = {}
        """Columns that a cell above still spans, and for how many rows."""
        self._taken: set[int] = set()

    def read(self, html: str) -> bool:
        """False if it is not a plain table."""
        html = _UNSEEN.sub(" ", html)
        end = 0
        for tag in _TAG.finditer(html):
            if not self._text(html[end : tag.start()]):
                return False
            end = tag.end()
            name = tag["name"].lower()
            if name in _ODD:
                return False
            if tag["ends"]:
                self._end(name)
            else:
                self._begin(name, tag["given"])
            if len(self.rows) > _MOST_ROWS or (self.rows and len(self.rows[-1]) > _MOST_COLUMNS):
                return False
        return self._text(html[end:])

    def _begin(self, tag: str, given: str) -> None:
        match tag:
            case "table":
                self.tables += 1
                self.after = ""
            case "thead":
                self._in_head = True
            case "tr":
                self.rows.append([])
                self.head_rows += self._in_head
                self._taken = set(self._down)
                self._down = {column: rows - 1 for column, rows in self._down.items() if rows > 1}
            case "td" | "th" if self.rows:
                self._cell = []
                spans = {span[1].lower(): int(span[2]) for span in _SPAN.finditer(given)}
                columns, rows = (max(1, min(spans.get(name, 1), _MOST_COLUMNS)) for name in ("colspan", "rowspan"))
                self._spans = columns, rows
            case "br" if self._cell is not None:
                self._cell.append(" ")
            case _:
                pass

    def _end(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self._add(presentable_line(" ".join(unescape("".join(self._cell)).split())))
            self._cell = None
        elif tag == "thead":
            self._in_head = False

    def _text(self, text: str) -> bool:
        """False if it has an unknown tag, or there is too much text outside the table."""
        if self._cell is not None:
            self._cell.append(text)
        elif words := unescape(text).split():
            self.after += f" {' '.join(words)}"
        return "<" not in text and len(self.after) <= _BESIDE

    def _add(self, text: str) -> None:
        row = self.rows[-1]
        while len(row) in self._taken:
            row.append("")
        columns, rows = self._spans
        if rows > 1:
            self._down |= dict.fromkeys(range(len(row), len(row) + columns), rows - 1)
        row += [text, *[""] * (columns - 1)]


def _limit_rows(rows: Sequence[tuple[str, ...]], columns: int) -> list[tuple[str, ...]]:
    even = [row + ("",) * (columns - len(row)) for row in rows]
    if len(even) <= ROWS:
        return even
    half = ROWS // 2
    return [*even[:half], (f"... {len(even) - ROWS:,} more", *["..."] * (columns - 1)), *even[-half:]]


def _fit_columns(widths: Sequence[int], width: int) -> list[int | None]:
    """Return the columns that fit, from both ends; None stands for those left out in the middle."""
    needs = [min(one, _NARROWEST if one > _WIDEST else max(_NARROWEST, min(one, 16))) + 2 for one in widths]
    if len(needs) == 1 or sum(needs) <= width:
        return list(range(len(widths)))
    kept = list(range(len(widths)))
    while len(kept) > 1 and sum(needs[place] for place in kept) > width - 5:
        del kept[len(kept) // 2]
    half = (len(kept) + 1) // 2
    return [*kept[:half], None, *kept[half:]]


def _is_numeric(cells: Sequence[str]) -> bool:
    plain = [cell for cell in cells if cell not in _NOTHING and not cell.startswith("... ")]
    return bool(plain) and all(len(one) < 60 and _NUMBER.fullmatch(one) for one in plain)
