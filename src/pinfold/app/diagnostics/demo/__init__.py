"""The parts of `pinfold demo`: a made-up table and recorded model replies."""

from __future__ import annotations

import csv
from itertools import chain, count
from pathlib import Path
from typing import Literal, TypeAlias

from pinfold.app.errors import ConfigError
from pinfold.app.paths import explain_errors, scratch_folder, scratch_of
from pinfold.sandbox.kernel.folders import in_use, remove_folder

COLUMNS = ("date", "region", "product", "units", "price", "discount")
TABLE = "sales.csv"
_HERE = Path(__file__).parent
Part: TypeAlias = Literal["regions", "months", "mistake", "mean", "trend"]
_LARGEST = 64 << 20
_NUMBERS: dict[str, type[int | float]] = {"units": int, "price": float, "discount": float}


def demo_model_name(part: Part) -> str:
    """Return the scripted model for one prompt. It replies with code, then with text if code could not answer."""
    return f"scripted:{_HERE / 'recorded' / part}.jsonl"


def make_demo_folder() -> Path:
    """Create an empty folder that this process holds until it ends; a later demo reuses it."""
    names = chain(["demo"], (f"demo-{number}" for number in count(2)))
    name = next(name for name in names if not in_use(scratch_of(name)))
    remove_folder(scratch_of(name))
    return scratch_folder(name)


def provide_table(folder: Path) -> Path:
    """Return the table in `folder`, copying ours if there is none. Raises ConfigError."""
    table = folder / TABLE
    with explain_errors(f"{table} cannot be used"):
        if not table.exists():
            with table.open("xb") as file:  # "x": do not write through a dangling link
                file.write((_HERE / TABLE).read_bytes())
        if table.stat().st_size > _LARGEST:
            raise ConfigError(f"{table} is too large for the demo; the limit is {_LARGEST >> 20} MB")
        _check(table)
    return table


def _check(table: Path) -> None:
    """Raise ConfigError for a table of another form, to which the recorded model could not react."""
    afresh = f"fix it, or remove it to get the original back: {table}"
    line = 1
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise ConfigError(f"sales.csv has no column {missing[0]!r}; {afresh}")
            for row in rows:
                line += 1
                for column, kind in _NUMBERS.items():
                    kind(row[column])
    except (ValueError, TypeError, csv.Error) as error:
        raise ConfigError(f"sales.csv, line {line}: {error}; {afresh}") from error
    if line == 1:
        raise ConfigError(f"sales.csv has no rows; {afresh}")
