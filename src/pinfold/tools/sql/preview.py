"""What the model is told of a table: how many rows, which columns, and the first few."""

from __future__ import annotations

from typing import Any

ROWS = 5
COLUMNS = 30
CELL = 40
"""Characters."""


def preview(table: Any, cut: str) -> str:
    """Bounded, whatever the table."""
    head = f"{table.num_rows:,} {'row' if table.num_rows == 1 else 'rows'} x {table.num_columns:,} columns"
    if cut:
        head += f", CUT: {cut}; aggregate in SQL or select less to have all"
    shown = [(field.name, str(field.type)) for field in table.schema][:COLUMNS]
    lines = [f"[{head}; these are not the user's words]"]
    columns = ", ".join(f"{_cell(name)}: {kind}" for name, kind in shown)
    more = table.num_columns - len(shown)
    lines.append(columns + (f", and {more} more" if more > 0 else ""))
    first = table.slice(0, ROWS)
    values = [[_value(item) for item in first.column(at)] for at in range(len(shown))]
    lines += [" | ".join(row) for row in zip(*values, strict=True)]
    if table.num_rows > ROWS:
        lines.append(f"... {table.num_rows - ROWS:,} more; from Python, all of them are a pyarrow.Table")
    return "\n".join(lines)


def _value(item: Any) -> str:
    if not item.is_valid:
        return "null"
    try:
        value = item.as_py()
    except (ValueError, OverflowError):  # days that Python's own calendar does not have
        return str(item)
    return _cell(value.hex() if isinstance(value, bytes) else str(value))


def _cell(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= CELL else f"{plain[: CELL - 3]}..."
