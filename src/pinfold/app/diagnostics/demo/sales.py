"""The sales of a shop that never was, by a seeded generator: `sales.csv` is what it makes."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from datetime import date, timedelta

COLUMNS = ("date", "region", "product", "units", "price", "discount")
ROWS = 204
_SEED = 1789
_REGIONS = {"North": 1.2, "South": 0.8, "East": 1.0, "West": 1.5, "Online": 1.9}
_PRODUCTS = {"kettle": 29.9, "toaster": 39.5, "lamp": 54.0, "chair": 89.0, "desk": 249.0, "shelf": 74.5}
_SEASON = (0.8, 0.7, 0.9, 1.0, 1.0, 0.9, 0.8, 0.9, 1.1, 1.2, 1.5, 1.8)
"""By month."""


def sales_csv() -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows())
    return written.getvalue()


def _rows() -> Iterator[tuple[str, str, str, int, str, str]]:
    chance = random.Random(_SEED)  # noqa: S311 - made-up sales
    first = date(2025, 1, 1)
    for day in sorted(chance.randrange(365) for _ in range(ROWS)):
        at = first + timedelta(days=day)
        region = chance.choices(list(_REGIONS), list(_REGIONS.values()))[0]
        product = chance.choices(list(_PRODUCTS), [6, 5, 4, 3, 1, 3])[0]
        growth = 1 + day / 365 * 0.4
        units = max(1, round(chance.gauss(6, 2.5) * _SEASON[at.month - 1] * growth))
        price = _PRODUCTS[product] * chance.choice((1, 1, 1, 1.05, 0.95))
        discount = chance.choices((0, 0.05, 0.1, 0.2), (12, 4, 3, 1))[0]
        yield at.isoformat(), region, product, units, f"{price:.2f}", f"{discount:g}"
