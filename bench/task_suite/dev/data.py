"""Questions about data in files."""

from __future__ import annotations

import json
from datetime import date, timedelta
from random import Random

from bench.task_suite import checks
from bench.task_suite.task import Scene, Tasks, program, table

TASKS = Tasks("dev")
REGIONS = ("North", "South", "East", "West", "Central")
FIRST = ("Anna", "Ben", "Carla", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Liam")


def _sales(random: Random) -> list[tuple[str, str, int, float]]:
    start = date(2024, 1, 1)
    return [
        (
            str(start + timedelta(days=random.randrange(180))),
            random.choice(REGIONS),
            random.randint(1, 40),
            random.randint(200, 9000) / 100,
        )
        for _ in range(120)
    ]


@TASKS.of("csv")
def sum_of_a_column(random: Random) -> Scene:
    rows = _sales(random)
    total = sum(row[2] for row in rows)
    return Scene(
        prompt="What is the total of the units column in sales.csv?",
        files={"sales.csv": table("date,region,units,price", [*rows])},
        check=checks.number(total),
        oracle="import csv; print(sum(int(r['units']) for r in csv.DictReader(open('sales.csv'))))",
        wrong=(f"The total is {total - rows[0][2]}.", f"There are {len(rows)} rows.", f"{total / 120:.2f}"),
    )


@TASKS.of("csv")
def best_group(random: Random) -> Scene:
    rows = _sales(random)
    revenue = {region: sum(r[2] * r[3] for r in rows if r[1] == region) for region in REGIONS}
    ranked = sorted(REGIONS, key=lambda region: -revenue[region])
    return Scene(
        prompt="Which region in sales.csv made the most revenue? Revenue is units times price.",
        files={"sales.csv": table("date,region,units,price", [*rows])},
        check=checks.name(ranked[0], REGIONS),
        oracle=program("""
            import csv, collections
            total = collections.Counter()
            for r in csv.DictReader(open('sales.csv')):
                total[r['region']] += int(r['units']) * float(r['price'])
            print('The region with the most revenue is', total.most_common(1)[0][0])
        """),
        wrong=(f"{ranked[1]} made the most revenue.", f"{ranked[1]}, then {ranked[0]}", " ".join(REGIONS)),
    )


@TASKS.of("csv")
def join_two_tables(random: Random) -> Scene:
    countries = ("Germany", "France", "Spain", "Italy")
    customers = [(i, FIRST[i % 12] + str(i), random.choice(countries)) for i in range(1, 31)]
    orders = [(1000 + i, random.randint(1, 30), random.randint(500, 20000) / 100) for i in range(90)]
    of = {c[0]: c[2] for c in customers}
    spent = {x: sum(o[2] for o in orders if of[o[1]] == x) for x in countries}
    return Scene(
        prompt=(
            "orders.csv has a customer_id and an amount per order, customers.csv says which country each customer "
            "is from. How much did customers from Germany spend in total? Give it with 2 decimals."
        ),
        files={
            "customers.csv": table("id,name,country", [*customers]),
            "orders.csv": table("order_id,customer_id,amount", [*orders]),
        },
        check=checks.number(round(spent["Germany"], 2), within="0.006"),
        oracle=program("""
            import csv
            german = {r['id'] for r in csv.DictReader(open('customers.csv')) if r['country'] == 'Germany'}
            rows = csv.DictReader(open('orders.csv'))
            print(f"{sum(float(r['amount']) for r in rows if r['customer_id'] in german):,.2f} in total")
        """),
        wrong=(f"{spent['France']:.2f}", f"{sum(spent.values()):.2f}", f"{spent['Germany'] + 0.02:.2f}"),
    )


@TASKS.of("csv")
def count_by_two_conditions(random: Random) -> Scene:
    teams = ("Engineering", "Sales", "Support", "Finance")
    rows = [
        (f"{random.choice(FIRST)} {chr(65 + i % 26)}.", random.choice(teams), random.randint(40, 110) * 1000)
        for i in range(80)
    ]
    count = sum(r[1] == "Engineering" and r[2] > 70000 for r in rows)
    return Scene(
        prompt="How many people in employees.csv work in Engineering and earn more than 70000?",
        files={"employees.csv": table("name,department,salary", [*rows])},
        check=checks.number(count),
        oracle=program("""
            import csv
            rows = list(csv.DictReader(open('employees.csv')))
            found = [r for r in rows if r['department'] == 'Engineering' and int(r['salary']) > 70000]
            print(f'{len(found)} people in Engineering earn more than 70000.')
        """),
        wrong=(str(sum(r[2] > 70000 for r in rows)), str(sum(r[1] == "Engineering" for r in rows)), str(count + 1)),
    )


@TASKS.of("csv")
def count_in_a_month(random: Random) -> Scene:
    rows = [
        (
            i,
            random.choice(FIRST).lower() + f"{i}@example.com",
            date(2023, 10, 1) + timedelta(days=random.randrange(540)),
        )
        for i in range(1, 201)
    ]
    count = sum(r[2].year == 2024 and r[2].month == 3 for r in rows)
    any_year = sum(r[2].month == 3 for r in rows)
    assert any_year != count
    return Scene(
        prompt="How many users in signups.csv signed up in March 2024?",
        files={"signups.csv": table("id,email,signed_up", [*rows])},
        check=checks.number(count),
        oracle=program("""
            import csv
            print(sum(r['signed_up'].startswith('2024-03') for r in csv.DictReader(open('signups.csv'))))
        """),
        wrong=(f"{any_year} users signed up in March.", str(count + 1), "0"),
    )


@TASKS.of("csv")
def mean_without_missing(random: Random) -> Scene:
    readings = [round(random.uniform(11, 27), 1) for _ in range(60)]
    kept = [None if random.random() < 0.2 else one for one in readings]
    there = [one for one in kept if one is not None]
    mean = sum(there) / len(there)
    rows = [(date(2024, 5, 1) + timedelta(days=i), "" if one is None else one) for i, one in enumerate(kept)]
    return Scene(
        prompt=(
            "temperatures.csv has some empty readings. What is the average of the readings that are there? "
            "Round to 2 decimals."
        ),
        files={"temperatures.csv": table("day,temperature", [*rows])},
        check=checks.number(round(mean, 2), within="0.0051"),
        oracle=program("""
            import csv
            there = [float(r['temperature']) for r in csv.DictReader(open('temperatures.csv')) if r['temperature']]
            print(sum(there) / len(there))
        """),
        wrong=(f"{sum(there) / 60:.2f}", f"{mean + 0.02:.2f}", "nan"),
    )


@TASKS.of("json")
def price_in_a_nested_shop(random: Random) -> Scene:
    goods = {
        "lighting": ("Desk Lamp", "Floor Lamp", "Light Strip"),
        "furniture": ("Desk", "Office Chair", "Bookshelf"),
        "paper": ("Notebook", "Sticky Notes", "Envelopes"),
    }
    prices = {one: random.randint(300, 20000) / 100 for ones in goods.values() for one in ones}
    categories = [
        {"name": key, "products": [{"name": one, "price": prices[one]} for one in ones]} for key, ones in goods.items()
    ]
    shop = {"shop": {"name": "Oak & Sons", "categories": categories}}
    return Scene(
        prompt="What does the Floor Lamp cost according to shop.json?",
        files={"shop.json": json.dumps(shop, indent=2)},
        check=checks.number(prices["Floor Lamp"]),
        oracle=program("""
            import json
            for category in json.load(open('shop.json'))['shop']['categories']:
                for product in category['products']:
                    if product['name'] == 'Floor Lamp':
                        print(f"The Floor Lamp costs {product['price']}.")
        """),
        wrong=(f"It costs {prices['Desk Lamp']}.", "The Floor Lamp is not listed.", str(prices)),
    )


@TASKS.of("json")
def count_active_records(random: Random) -> Scene:
    users = [
        {"id": i, "name": random.choice(FIRST), "active": random.random() < 0.6, "age": random.randint(18, 70)}
        for i in range(1, 58)
    ]
    count = sum(bool(u["active"]) for u in users)
    return Scene(
        prompt="users.json is a list of users. How many of them are active?",
        files={"users.json": json.dumps(users, indent=1)},
        check=checks.number(count),
        oracle="import json; print(sum(u['active'] for u in json.load(open('users.json'))), 'users are active.')",
        wrong=(f"{len(users)} users are active", f"{len(users) - count} users", f"about {count + 1}"),
    )


@TASKS.of("json")
def value_of_all_orders(random: Random) -> Scene:
    things = ("pen", "mug", "bag", "cap")
    bought = [
        [(random.choice(things), random.randint(1, 5), random.randint(100, 3000) / 100) for _ in range(1 + i % 4)]
        for i in range(25)
    ]
    total = sum(qty * price for items in bought for _, qty, price in items)
    plain = sum(price for items in bought for _, _, price in items)
    orders = [
        {"order": i, "items": [{"what": what, "qty": qty, "price": price} for what, qty, price in items]}
        for i, items in enumerate(bought, 1)
    ]
    return Scene(
        prompt=(
            "In orders.json every order has a list of items with qty and price. What is the value of all orders "
            "together, to the cent?"
        ),
        files={"orders.json": json.dumps(orders, indent=2)},
        check=checks.number(round(total, 2), within="0.0051"),
        oracle=program("""
            import json
            orders = json.load(open('orders.json'))
            print(f"${sum(i['qty'] * i['price'] for o in orders for i in o['items']):,.2f}")
        """),
        wrong=(f"{plain:.2f}", f"{len(orders)} orders", f"{total / 25:.2f}"),
    )


def _log(random: Random, lines: int) -> list[tuple[int, str, str]]:
    """Second of the day, level, message; in order."""
    texts = {
        "INFO": ("request served", "cache warmed", "user logged in"),
        "WARNING": ("slow query", "disk at 81 percent", "retrying after ERROR from upstream"),
        "ERROR": ("connection refused", "timeout talking to db", "bad payload"),
    }
    at = sorted(random.sample(range(8 * 3600, 18 * 3600), lines))
    levels = random.choices(("INFO", "WARNING", "ERROR"), weights=(6, 2, 2), k=lines)
    return [(t, level, random.choice(texts[level])) for t, level in zip(at, levels, strict=True)]


def _clock(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def _log_text(lines: list[tuple[int, str, str]]) -> str:
    return "".join(f"2024-06-03 {_clock(at)} {level} {text}\n" for at, level, text in lines)


@TASKS.of("logs")
def count_errors(random: Random) -> Scene:
    lines = _log(random, 160)
    count = sum(level == "ERROR" for _, level, _ in lines)
    naive = sum("ERROR" in level + text for _, level, text in lines)
    assert naive != count
    return Scene(
        prompt="How many lines in app.log have the level ERROR? (The level is the third word of a line.)",
        files={"app.log": _log_text(lines)},
        check=checks.number(count),
        oracle="print(sum(line.split()[2] == 'ERROR' for line in open('app.log')), 'lines')",
        wrong=(f"{naive} lines", f"{len(lines)} lines", f"{count - 1}"),
    )


@TASKS.of("logs")
def busiest_address(random: Random) -> Scene:
    addresses = [f"10.0.{random.randrange(4)}.{20 + i}" for i in range(8)]
    weights = [9 if i == 5 else random.randint(2, 5) for i in range(8)]
    lines = [
        f'{one} - - [03/Jun/2024:12:{i // 60 % 60:02}:{i % 60:02} +0000] "GET /{random.choice("abcd")} HTTP/1.1" 200 512\n'
        for i, one in enumerate(random.choices(addresses, weights=weights, k=220))
    ]
    counts = {one: sum(line.startswith(one + " ") for line in lines) for one in addresses}
    ranked = sorted(addresses, key=lambda one: -counts[one])
    assert counts[ranked[0]] > counts[ranked[1]]
    return Scene(
        prompt="Which IP address made the most requests in access.log?",
        files={"access.log": "".join(lines)},
        check=checks.name(ranked[0], addresses),
        oracle=program("""
            import collections
            print(collections.Counter(line.split()[0] for line in open('access.log')).most_common(1)[0][0])
        """),
        wrong=(ranked[1], "127.0.0.1", "\n".join(f"{one}: {counts[one]}" for one in addresses)),
    )


@TASKS.of("logs")
def lines_within_an_hour(random: Random) -> Scene:
    lines = _log(random, 150)
    count = sum(at // 3600 == 10 for at, _, _ in lines)
    return Scene(
        prompt="How many lines in app.log were written from 10:00:00 to 10:59:59?",
        files={"app.log": _log_text(lines)},
        check=checks.number(count),
        oracle="print(sum(line.split()[1].startswith('10:') for line in open('app.log')), 'lines in that hour')",
        wrong=(str(sum(at // 3600 == 11 for at, _, _ in lines)), str(count + 1), f"{len(lines)}"),
    )


@TASKS.of("text")
def count_words(random: Random) -> Scene:
    words = ["river", "stone", "the", "a", "quiet", "morning", "boat", "under", "bridge", "slowly", "and", "passed"]
    lines = [" ".join(random.choice(words) for _ in range(random.randint(4, 12))) for _ in range(30)]
    count = sum(len(line.split()) for line in lines)
    return Scene(
        prompt="How many words are in story.txt?",
        files={"story.txt": "\n".join(lines) + "\n"},
        check=checks.number(count),
        oracle="print(f\"story.txt has {len(open('story.txt').read().split()):,} words.\")",
        wrong=(f"{len(lines)} words", str(count - 1), str(len("\n".join(lines)))),
    )


@TASKS.of("text")
def longest_line(random: Random) -> Scene:
    words = ["amber", "birch", "copper", "delta", "ember", "fjord", "glacier", "harbour", "island", "juniper"]
    lengths = random.sample(range(2, 14), 12)
    lines = [" ".join(random.choice(words) for _ in range(n)) for n in lengths]
    longest = max(lines, key=len)
    others = sorted(lines, key=len)
    return Scene(
        prompt="What is the longest line in poem.txt? Show me the line.",
        files={"poem.txt": "\n".join(lines) + "\n"},
        check=checks.exactly(longest, longest=150),
        oracle="print('The longest line is:', max(open('poem.txt').read().splitlines(), key=len))",
        wrong=(others[-2], "\n".join(lines), f"It has {len(longest)} characters."),
    )


@TASKS.of("text")
def most_common_word(random: Random) -> Scene:
    words = ["apple", "pear", "plum", "cherry", "quince", "fig"]
    weights = [4, 5, 9, 4, 3, 5]
    body = random.choices(words, weights=weights, k=150)
    counts = {one: body.count(one) for one in words}
    ranked = sorted(words, key=lambda one: -counts[one])
    assert counts[ranked[0]] > counts[ranked[1]]
    text = "\n".join(" ".join(body[i : i + 10]) for i in range(0, 150, 10)) + "\n"
    return Scene(
        prompt="Which word occurs most often in fruit.txt?",
        files={"fruit.txt": text},
        check=checks.name(ranked[0], words),
        oracle=program("""
            import collections
            word, times = collections.Counter(open('fruit.txt').read().split()).most_common(1)[0]
            print(f"'{word}' occurs most often, {times} times.")
        """),
        wrong=(ranked[1], str(counts), "the"),
    )


@TASKS.of("several")
def sum_over_invoices(random: Random) -> Scene:
    totals = [random.randint(2000, 90000) / 100 for _ in range(7)]
    files = {
        f"invoice_{i}.txt": f"Invoice {4000 + i}\nCustomer: {FIRST[i]}\nItems: {random.randint(1, 9)}\nTotal: {total:.2f}\n"
        for i, total in enumerate(totals, 1)
    }
    return Scene(
        prompt="Every invoice_*.txt file here has a line that starts with Total. What do all the totals add up to?",
        files={**files, "readme.txt": "Invoices of the first quarter.\nTotal: see the invoices\n"},
        check=checks.number(round(sum(totals), 2), within="0.0051"),
        oracle=program("""
            import glob
            lines = [line for name in glob.glob('invoice_*.txt') for line in open(name)]
            print('They add up to', round(sum(float(x.split()[1]) for x in lines if x.startswith('Total')), 2))
        """),
        wrong=(f"{sum(totals[1:]):.2f}", f"{totals[0]:.2f}", "7"),
    )
