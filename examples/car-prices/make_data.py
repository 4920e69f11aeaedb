"""Writes cars.csv, the same every time. The cars are made up; the file is in the public domain (CC0)."""

from __future__ import annotations

import csv
import random
from pathlib import Path

MAKES = {"Alder": (31_000, 0.13), "Birch": (24_000, 0.17), "Cedar": (42_000, 0.11), "Hazel": (19_000, 0.20)}
"""By make: the price of a new car, and the share of its value that it loses in a year."""
FUELS = {"petrol": 1.0, "diesel": 1.06, "electric": 1.24}
ROWS = 1500
NOW = 2026


def cars(seed: int = 7) -> list[dict[str, str | int]]:
    dice = random.Random(seed)
    rows: list[dict[str, str | int]] = []
    for number in range(1, ROWS + 1):
        make, fuel = dice.choice(list(MAKES)), dice.choice(list(FUELS))
        new, loss = MAKES[make]
        age = dice.randint(0, 12)
        km = round(max(0.0, dice.gauss(14_000, 4_000)) * age)
        price = new * FUELS[fuel] * (1 - loss) ** age * (1 - km / 1_000_000) * dice.gauss(1, 0.06)
        rows.append(
            {"id": number, "make": make, "year": NOW - age, "km": km, "fuel": fuel, "price": int(round(price, -1))}
        )
    return rows


if __name__ == "__main__":
    rows = cars()
    with (Path(__file__).parent / "cars.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
