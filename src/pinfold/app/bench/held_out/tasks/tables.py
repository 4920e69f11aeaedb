"""Files and tables too long to be read in passing."""

from __future__ import annotations

from pinfold.app.bench.data import a_file
from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="tutoring in one class",
        domain="big file or table",
        files={"pupils.csv": a_file("pupils", 3_000)},
        turns=(
            Turn(
                asks="What is the mean score in pupils.csv with and without tutoring?",
                looks=('print(open("pupils.csv").read(200))',),
                does='import csv\nrows = list(csv.DictReader(open("pupils.csv")))\nfrom statistics import mean\nmeans = {kind: round(mean(float(r["score"]) for r in rows if r["tutored"] == kind), 1) for kind in ("yes", "no")}\nprint(means["yes"], means["no"])',
                says="{0} with tutoring, {1} without.",
            ),
            Turn(
                asks="Which school has the best mean?",
                does='by = {}\nfor r in rows:\n    by.setdefault(r["school"], []).append(float(r["score"]))\nbest = max(by, key=lambda one: mean(by[one]))\nprint(best, round(mean(by[best]), 1))',
                says="{0}, with {1}.",
            ),
        ),
    ),
    Task(
        name="the dampest sensor",
        domain="big file or table",
        files={"sensors.csv": a_file("sensors", 30_000)},
        turns=(
            Turn(
                asks="Which sensor in sensors.csv was dampest on average?",
                looks=('print(open("sensors.csv").read(200))',),
                does='import csv\nrows = list(csv.DictReader(open("sensors.csv")))\nfrom statistics import mean\nby = {}\nfor r in rows:\n    by.setdefault(r["sensor"], []).append(float(r["humidity"]))\nmeans = {sensor: round(mean(values), 2) for sensor, values in by.items()}\nbest = max(means, key=means.get)\nprint(best, means[best])',
                says="{0}, with {1} percent.",
            ),
            Turn(
                asks="How many readings were above 22 degrees?",
                does='print(sum(float(r["temperature"]) > 22 for r in rows), len(rows))',
                says="{0} of {1}.",
            ),
            Turn(
                asks="On which day was the widest span between lowest and highest temperature?",
                does='days = {}\nfor r in rows:\n    days.setdefault(r["time"][:10], []).append(float(r["temperature"]))\nwidest = max(days, key=lambda one: max(days[one]) - min(days[one]))\nprint(widest, round(max(days[widest]) - min(days[widest]), 2))',
                says="On {0}: {1} degrees.",
            ),
        ),
    ),
    Task(
        name="bikes by the hour",
        domain="big file or table",
        files={"rides.csv": a_file("rides", 120_000)},
        turns=(
            Turn(
                asks="In which hour are most bikes rented on average, in rides.csv?",
                looks=('print(open("rides.csv").read(200))',),
                does='import csv\nrows = list(csv.DictReader(open("rides.csv")))\nfrom statistics import mean\ndef by_hour(some):\n    hours = {}\n    for r in some:\n        hours.setdefault(int(r["hour"]), []).append(int(r["rentals"]))\n    best = max(hours, key=lambda one: mean(hours[one]))\n    return best, round(mean(hours[best]), 1)\nhour, number = by_hour(rows)\nprint(hour, number)',
                says="At {0}, with {1} bikes.",
            ),
            Turn(
                asks="And on holidays only?",
                does='hour, number = by_hour(r for r in rows if r["holiday"] == "1")\nprint(hour, number)',
                says="At {0}, with {1}.",
            ),
        ),
    ),
    Task(
        name="routes that are late",
        domain="big file or table",
        files={"flights.csv": a_file("flights", 400_000)},
        turns=(
            Turn(
                asks="Which route is most often more than 30 minutes late, in flights.csv?",
                looks=('print(open("flights.csv").read(200))',),
                does='import csv\nrows = list(csv.DictReader(open("flights.csv")))\nfrom collections import Counter\nlate = Counter((r["origin"], r["destination"]) for r in rows if int(r["delay_min"]) > 30)\n(route, number), = late.most_common(1)\nprint("-".join(route), number)',
                says="{0}, {1} times.",
            ),
            Turn(
                asks="Which carrier has the smallest mean delay?",
                does='from statistics import mean\ndelays = {}\nfor r in rows:\n    delays.setdefault(r["carrier"], []).append(int(r["delay_min"]))\nbest = min(delays, key=lambda one: mean(delays[one]))\nprint(best, round(mean(delays[best]), 2))',
                says="{0}, with {1} minutes.",
            ),
            Turn(
                asks="Save the ten worst routes with their counts as worst.csv.",
                does='with open("worst.csv", "w", newline="") as file:\n    out = csv.writer(file)\n    out.writerow(["origin", "destination", "late"])\n    out.writerows([*route, number] for route, number in late.most_common(10))\nprint("worst.csv")',
                says="They are in {0}.",
            ),
        ),
    ),
    Task(
        name="when people buy",
        domain="big file or table",
        files={"events.jsonl": a_file("events", 1_500_000)},
        turns=(
            Turn(
                asks="In which hour of the day is most bought, by amount, in events.jsonl?",
                looks=(
                    'print(open("events.jsonl").read(200))',
                    'import json\nevents = json.load(open("events.jsonl"))',
                ),
                does='import json\nfrom collections import defaultdict\nevents = [json.loads(line) for line in open("events.jsonl")]\nhours = defaultdict(float)\nfor one in events:\n    if one["kind"] == "buy":\n        hours[one["at"][11:13]] += one["amount"]\nbest = max(hours, key=hours.get)\nprint(best, round(hours[best], 2))',
                says="From {0} o'clock: {1}.",
            ),
            Turn(
                asks="How many users never bought anything?",
                does='print(len({one["user"] for one in events} - {one["user"] for one in events if one["kind"] == "buy"}))',
                says="{0}.",
            ),
        ),
    ),
    Task(
        name="contracts that end",
        domain="big file or table",
        servers=("wiki",),
        turns=(
            Turn(
                asks="Which vendors on the wiki page 'Vendors' cost more than 30000 a year and have a contract that ends in 2026?",
                looks=(
                    'pages = search_pages(query="Vendors")\nprint(str(pages)[:400])',
                    'page = get_page(page_id=pages["results"][0]["id"])\nprint(str(page)[:600])',
                    'rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page["body"].splitlines() if line.startswith("|")]\nending = [row for row in rows if int(row[2]) > 30000 and row[3].startswith("2026")]\nprint([row[0] for row in ending])',
                ),
                does='ending = [row for row in rows[2:] if int(row[2]) > 30000 and row[3].startswith("2026")]\nprint([row[0] for row in ending])',
                says="{0}.",
            ),
            Turn(
                asks="What do these cost together, by owner?",
                does="costs = {}\nfor row in ending:\n    costs[row[4]] = costs.get(row[4], 0) + int(row[2])\nprint(costs)",
                says="In euro: {0}.",
            ),
        ),
    ),
    Task(
        name="latency of a day",
        domain="big file or table",
        servers=("monitor",),
        turns=(
            Turn(
                asks="When was the latency of checkout highest in the last 24 hours, in steps of 5 minutes, and how many points were above 350 ms?",
                looks=(
                    'series = query_metric(service="checkout", metric="latency_ms", step_minutes=5)\nprint(str(series)[:300])',
                ),
                does='from datetime import datetime, timezone\npoints = series["result"][0]["values"]\nat, top = max(points, key=lambda one: one[1])\ntime = datetime.fromtimestamp(at, timezone.utc).isoformat()\nprint(time, top, sum(value > 350 for _, value in points))',
                says="At {0}, with {1} ms; {2} points were above 350 ms.",
            ),
            Turn(
                asks="And what is the median?",
                does="from statistics import median\nprint(median(value for _, value in points))",
                says="{0} ms.",
            ),
        ),
    ),
    Task(
        name="the month that grew most",
        domain="big file or table",
        servers=("warehouse",),
        turns=(
            Turn(
                asks="In which month of 2025 did sales grow most over the month before? Look into the warehouse.",
                looks=(
                    "print(list_tables())",
                    'print(describe_table(table_name="sales"))',
                    'months = read_query(query="SELECT substr(sold_on, 1, 7) AS month, SUM(amount_cents) / 100.0 AS amount FROM sales GROUP BY 1 ORDER BY 1")\nprint(months[:2])',
                ),
                does='growth = {after["month"]: after["amount"] - before["amount"] for before, after in zip(months, months[1:])}\nbest = max(growth, key=growth.get)\nprint(best, round(growth[best], 2))',
                says="In {0}, by {1}.",
            ),
            Turn(
                asks="Which country bought most in that month?",
                looks=('print(describe_table(table_name="customers"))',),
                does="print(read_query(query=f\"SELECT country, SUM(amount_cents) / 100.0 AS amount FROM sales JOIN customers USING (customer_id) WHERE sold_on LIKE '{best}%' GROUP BY 1 ORDER BY 2 DESC LIMIT 1\"))",
                says="The US, for 23,900.77.",
                reads=True,
            ),
        ),
    ),
)
