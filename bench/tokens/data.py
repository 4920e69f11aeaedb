"""Files for the tasks, the same at every start and of any size."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from random import Random

Row = Callable[[Random, int], str]
_START = datetime(2025, 1, 1)  # noqa: DTZ001 - local time, as files have it
_REGIONS = ("North", "South", "East", "West")
_ITEMS = ("Tea", "Coffee", "Cocoa", "Juice", "Water", "Syrup")
_TEAMS = ("Sales", "Support", "Research", "Finance", "Legal")
_CARRIERS = ("AX", "BL", "CQ", "DV")
_PORTS = ("BER", "CDG", "LHR", "MAD", "VIE", "OSL")
_PATHS = ("/", "/login", "/cart", "/api/items", "/api/orders", "/static/app.js", "/search?q=tea")
_PARTS = ("auth", "billing", "search", "export", "mailer")


def _sale(made: Random, at: int) -> str:
    day = _START + timedelta(hours=at)
    return (
        f"{day:%Y-%m-%d},{made.choice(_REGIONS)},{made.choice(_ITEMS)},{made.randint(1, 40)},{made.uniform(2, 30):.2f}"
    )


def _person(made: Random, at: int) -> str:
    age = str(made.randint(21, 66)) if made.random() > 0.02 else ""
    joined = _START - timedelta(days=made.randint(10, 6000))
    return f"E{at:05d},{made.choice(_TEAMS)},{age},{made.randint(28, 140) * 1000},{made.uniform(1, 5):.1f},{joined:%Y-%m-%d}"


def _reading(made: Random, at: int) -> str:
    time = _START + timedelta(minutes=10 * at)
    return f"{time:%Y-%m-%dT%H:%M},s{at % 5},{15 + 8 * made.random():.2f},{made.uniform(30, 70):.1f}"


def _flight(made: Random, at: int) -> str:
    day = _START + timedelta(minutes=25 * at)
    origin, target = made.sample(_PORTS, 2)
    late = max(-10, round(made.gauss(8, 25)))
    return f"{day:%Y-%m-%d},{made.choice(_CARRIERS)},{origin},{target},{late},{made.randint(250, 2400)}"


def _house(made: Random, _: int) -> str:
    area = made.randint(35, 220)
    price = area * made.randint(2800, 6200)
    return f"{area},{max(1, area // 28)},{made.randint(1920, 2024)},D{made.randint(1, 12)},{made.choice('ABCDEFG')},{price}"


def _pupil(made: Random, at: int) -> str:
    hours = made.uniform(0, 20)
    score = min(100, max(0, 35 + 2.4 * hours + made.gauss(0, 12)))
    return f"P{at:05d},School {made.randint(1, 9)},{hours:.1f},{score:.1f},{made.uniform(20, 100):.1f},{made.choice(('yes', 'no'))}"


def _meter(made: Random, at: int) -> str:
    time = _START + timedelta(minutes=15 * at)
    used = 0.2 + 1.8 * made.random() * (1.6 if 7 <= time.hour < 22 else 0.5)
    return f"{time:%Y-%m-%d %H:%M},{used:.3f},{made.uniform(0.05, 0.38):.4f}"


def _ride(made: Random, at: int) -> str:
    day = _START + timedelta(hours=at)
    warm = 10 + 12 * made.random()
    return f"{day:%Y-%m-%d},{day.hour},{'winter spring summer autumn'.split()[day.month % 12 // 3]},{warm:.1f},{made.randint(0, 1)},{made.randint(0, int(20 * warm))}"  # noqa: SIM905


def _order(made: Random, at: int) -> str:
    return f"{at + 1},{made.randint(1, 300)},{made.uniform(5, 400):.2f},{made.choice(('web', 'phone', 'shop'))}"


def _customer(made: Random, at: int) -> str:
    return f"{at + 1},{made.choice(('DE', 'FR', 'US', 'JP'))},{made.choice(('basic', 'gold'))},{made.randint(18, 80)}"


def _request(made: Random, at: int) -> str:
    time = _START + timedelta(seconds=7 * at)
    status = made.choice((200, 200, 200, 200, 304, 404, 500))
    return f'10.0.{made.randint(0, 9)}.{made.randint(1, 254)} - - [{time:%d/%b/%Y:%H:%M:%S} +0000] "GET {made.choice(_PATHS)} HTTP/1.1" {status} {made.randint(180, 24000)}'


def _line(made: Random, at: int) -> str:
    time = _START + timedelta(seconds=3 * at)
    level = made.choice(("INFO", "INFO", "INFO", "INFO", "WARN", "ERROR"))
    return f"{time:%Y-%m-%dT%H:%M:%S} {level} {made.choice(_PARTS)} request {made.randint(1000, 9999)} took {made.randint(2, 900)} ms"


def _event(made: Random, at: int) -> str:
    time = _START + timedelta(seconds=41 * at)
    kind = made.choice(("view", "view", "view", "add", "buy"))
    return f'{{"at": "{time:%Y-%m-%dT%H:%M:%S}", "user": "u{made.randint(1, 500)}", "kind": "{kind}", "amount": {made.uniform(1, 90):.2f}}}'


_KINDS: dict[str, tuple[str, Row]] = {
    "sales": ("date,region,product,units,price", _sale),
    "staff": ("id,department,age,salary,rating,joined", _person),
    "sensors": ("time,sensor,temperature,humidity", _reading),
    "flights": ("date,carrier,origin,destination,delay_min,distance_km", _flight),
    "houses": ("area,rooms,year,district,energy_class,price", _house),
    "pupils": ("id,school,hours,score,attendance,tutored", _pupil),
    "meter": ("time,kwh,price", _meter),
    "rides": ("date,hour,season,temperature,holiday,rentals", _ride),
    "orders": ("order_id,customer_id,amount,channel", _order),
    "customers": ("customer_id,country,tier,age", _customer),
    "access": ("", _request),
    "service": ("", _line),
    "events": ("", _event),
}


@cache
def text(kind: str, size: int) -> str:
    """Whole lines, of `size` bytes or just under."""
    header, row = _KINDS[kind]
    made = Random(kind)
    lines = [f"{header}\n"] if header else []
    left = size - sum(map(len, lines))
    for at in count():
        line = f"{row(made, at)}\n"
        left -= len(line)
        if left < 0:
            break
        lines.append(line)
    return "".join(lines)
