"""Questions about logs, events and tables that belong together."""

from __future__ import annotations

from pinfold.app.bench.data import a_file
from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="orders and customers",
        domain="joins",
        files={"orders.csv": a_file("orders", 285_512 - 5_000), "customers.csv": a_file("customers", 5_000)},
        turns=(
            Turn(
                asks="What did customers of each country order in all? orders.csv and customers.csv belong together.",
                looks=('for name in ("orders.csv", "customers.csv"):\n    print(open(name).read(120))',),
                does='import csv\norders = list(csv.DictReader(open("orders.csv")))\ncustomers = {r["customer_id"]: r for r in csv.DictReader(open("customers.csv"))}\nby = {}\nfor r in orders:\n    country = customers[r["customer_id"]]["country"]\n    by[country] = by.get(country, 0) + float(r["amount"])\nprint({k: round(v, 2) for k, v in by.items()})',
                says="{0}.",
            ),
            Turn(
                asks="Do gold customers order more per order?",
                does='from statistics import mean\ntiers = {t: mean(float(r["amount"]) for r in orders if customers[r["customer_id"]]["tier"] == t) for t in ("gold", "basic")}\nprint({k: round(v, 2) for k, v in tiers.items()})',
                says="Mean per order: {0}.",
            ),
            Turn(
                asks="How many customers have not ordered anything?",
                does='print(len(customers.keys() - {r["customer_id"] for r in orders}))',
                says="{0}.",
            ),
        ),
    ),
    Task(
        name="a small join",
        domain="joins",
        files={"orders.csv": a_file("orders", 35_500), "customers.csv": a_file("customers", 5_000)},
        turns=(
            Turn(
                asks="Who are the five best customers by amount, and where are they from? See orders.csv and customers.csv.",
                looks=('for name in ("orders.csv", "customers.csv"):\n    print(open(name).read(120))',),
                does='import csv\norders = list(csv.DictReader(open("orders.csv")))\ncustomers = {r["customer_id"]: r for r in csv.DictReader(open("customers.csv"))}\nspent = {}\nfor r in orders:\n    spent[r["customer_id"]] = spent.get(r["customer_id"], 0) + float(r["amount"])\nbest = sorted(spent, key=spent.get, reverse=True)[:5]\nprint([(c, customers[c]["country"], round(spent[c], 2)) for c in best])',
                says="{0}.",
            ),
            Turn(
                asks="Which channel do those over 60 use most?",
                does='from collections import Counter\nold = Counter(r["channel"] for r in orders if int(customers[r["customer_id"]]["age"]) > 60)\nprint(old.most_common(1)[0])',
                says="{0}.",
            ),
        ),
    ),
    Task(
        name="who asks for what",
        domain="logs",
        files={"access.log": a_file("access", 699_211)},
        turns=(
            Turn(
                asks="How many requests in access.log failed with 500, and on which path most?",
                looks=('print(open("access.log").read(250))',),
                does='import re\nfrom collections import Counter\nhits = re.findall(r\'^(\\S+) .*?"GET (\\S+) .*?" (\\d+) (\\d+)$\', open("access.log").read(), re.M)\nbad = Counter(path for _, path, status, _ in hits if status == "500")\nprint(sum(bad.values()), bad.most_common(1)[0])',
                says="{0} failed; most on {1}.",
            ),
            Turn(
                asks="How many megabytes were sent?",
                does="print(round(sum(int(size) for *_, size in hits) / 1e6, 1))",
                says="{0} MB.",
            ),
            Turn(
                asks="Which address asked most often?",
                does="print(Counter(ip for ip, *_ in hits).most_common(1)[0])",
                says="{0}.",
            ),
        ),
    ),
    Task(
        name="errors of a service",
        domain="logs",
        files={"service.log": a_file("service", 5_692)},
        turns=(
            Turn(
                asks="How many errors are in service.log, by component?",
                looks=('print(open("service.log").read(200))',),
                does='from collections import Counter\nlines = [line.split() for line in open("service.log")]\nprint(dict(Counter(one[2] for one in lines if one[1] == "ERROR")))',
                says="{0}.",
            ),
            Turn(
                asks="Which request took longest?",
                does="slow = max(lines, key=lambda one: int(one[6]))\nprint(slow[4], slow[6])",
                says="Request {0}: {1} ms.",
            ),
        ),
    ),
    Task(
        name="a busy service",
        domain="logs",
        files={"service.log": a_file("service", 2_295_032)},
        turns=(
            Turn(
                asks="What is the 99th percentile of the durations in service.log, by component?",
                looks=('print(open("service.log").read(200))',),
                does='lines = [line.split() for line in open("service.log")]\nby = {}\nfor one in lines:\n    by.setdefault(one[2], []).append(int(one[6]))\nprint({k: sorted(v)[int(len(v) * 0.99)] for k, v in by.items()})',
                says="In ms: {0}.",
            ),
            Turn(
                asks="In which minute were most errors?",
                does='from collections import Counter\nprint(Counter(one[0][:16] for one in lines if one[1] == "ERROR").most_common(1)[0])',
                says="{0}.",
            ),
            Turn(
                asks="What share of all lines are warnings or worse?",
                does='print(round(100 * sum(one[1] != "INFO" for one in lines) / len(lines), 2))',
                says="{0} percent.",
            ),
        ),
    ),
    Task(
        name="from view to purchase",
        domain="logs",
        files={"events.jsonl": a_file("events", 5_103)},
        turns=(
            Turn(
                asks="What is the turnover in events.jsonl, and how many users bought something?",
                looks=('print(open("events.jsonl").readline())',),
                does='import json\nevents = [json.loads(line) for line in open("events.jsonl")]\nbuys = [e for e in events if e["kind"] == "buy"]\nprint(round(sum(e["amount"] for e in buys), 2), len({e["user"] for e in buys}))',
                says="{0}, from {1} users.",
            ),
            Turn(
                asks="How many of those who viewed something bought something later?",
                does='viewed = {e["user"] for e in events if e["kind"] == "view"}\nprint(len(viewed & {e["user"] for e in buys}), len(viewed))',
                says="{0} of {1}.",
            ),
        ),
    ),
)
