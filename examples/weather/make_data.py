"""Writes cities.json, the same every time. Weather and traffic are made up; the file is in the public domain (CC0)."""

from __future__ import annotations

import json
import random
from pathlib import Path

CITIES = ("Toronto", "Montreal", "New York", "Paris", "San Francisco", "Oslo", "Lagos", "Lima")
SKIES = ("clear", "cloudy", "rain")


def cities(seed: int = 12) -> dict[str, dict[str, str | int]]:
    dice = random.Random(seed)
    found: dict[str, dict[str, str | int]] = {}
    for city in CITIES:
        celsius = dice.randint(-6, 31)
        sky = "snow" if celsius <= 0 else dice.choice(SKIES)
        found[city] = {"sky": sky, "celsius": celsius, "delay_min": dice.randint(0, 55)}
    return found


if __name__ == "__main__":
    text = json.dumps(cities(), indent=1) + "\n"
    (Path(__file__).parent / "cities.json").write_text(text, encoding="utf-8")
