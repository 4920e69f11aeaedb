"""Writes sales.csv, the same every time. The shop is made up; the file is in the public domain (CC0)."""

from __future__ import annotations

import csv
import random
from datetime import date, timedelta
from pathlib import Path

REGIONS = {"North": 5, "South": 3, "East": 2, "West": 4}
"""With their share of the orders."""
PRICES = {"kettle": 34.90, "lamp": 59.00, "chair": 129.00, "desk": 349.00}
ROWS = 900


def sales(seed: int = 11) -> list[tuple[str, str, str, int, float]]:
    dice = random.Random(seed)
    begin = date(2025, 1, 1)
    rows: list[tuple[str, str, str, int, float]] = []
    for _ in range(ROWS):
        day = begin + timedelta(days=int(365 * dice.betavariate(2.2, 1.6)))
        region = dice.choices(list(REGIONS), list(REGIONS.values()))[0]
        product = dice.choice(list(PRICES))
        rows.append((day.isoformat(), region, product, dice.randint(1, 9), PRICES[product]))
    return sorted(rows)


if __name__ == "__main__":
    with (Path(__file__).parent / "sales.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("date", "region", "product", "units", "price"))
        writer.writerows(sales())
