"""Figures that many calls have to be made for."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="uptime of everything",
        domain="aggregate over many calls",
        servers=("monitor",),
        turns=(
            Turn(
                asks="What was the mean uptime of all services over the last 30 days, and which was worst?",
                looks=(
                    "services = list_services()\nprint(str(services)[:300])",
                    'ups = [get_uptime(service=one["name"]) for one in services["services"]]\nprint(ups[0])',
                ),
                does='worst = min(ups, key=lambda one: one["uptimePercent"])\nmean = round(sum(one["uptimePercent"] for one in ups) / len(ups), 3)\nprint(mean, worst["service"], worst["uptimePercent"])',
                says="{0} percent on average; {1} was worst, with {2}.",
            ),
            Turn(
                asks="How many of them have used up their error budget?",
                does='print(sum(one["budget"]["remaining"] == 0 for one in ups), len(ups))',
                says="{0} of {1}.",
            ),
        ),
    ),
    Task(
        name="words of the minutes",
        domain="aggregate over many calls",
        servers=("drive",),
        turns=(
            Turn(
                asks="How often do the words risk, budget and client occur in the minutes in /minutes?",
                looks=(
                    'names = list_directory(path="/minutes")\nprint(str(names)[:300])',
                    'texts = [read_text_file(path="/minutes/" + one["name"]) for one in names]\nprint(texts[0])',
                ),
                does='from collections import Counter\nwords = Counter(" ".join(texts).split())\nprint(words["risk"], words["budget"], words["client"])',
                says="risk {0} times, budget {1} times, client {2} times.",
            ),
            Turn(
                asks="In how many of the files does risk not occur at all?",
                does='print(sum("risk" not in text for text in texts))',
                says="In {0}.",
            ),
        ),
    ),
    Task(
        name="what the pipeline is worth",
        domain="aggregate over many calls",
        servers=("crm",),
        turns=(
            Turn(
                asks="What are all our deals worth by stage?",
                looks=(
                    "page = list_deals()\nprint(str(page)[:400], str(page)[-60:])",
                    'from collections import defaultdict\ndeals = page["results"]\nwhile "paging" in page:\n    page = list_deals(after=page["paging"]["next"]["after"])\n    deals += page["results"]\nworth = defaultdict(float)\nfor one in deals:\n    worth[one["properties"]["dealstage"]] += float(one["properties"]["amount"])\nprint(dict(worth))',
                ),
                does='worth.clear()\nfor one in deals:\n    worth[one["properties"]["dealstage"]] += float(one["properties"]["amount"] or 0)\nprint(dict(worth))',
                says="In euro: {0}.",
            ),
            Turn(
                asks="How many have no amount?",
                does='print(sum(one["properties"]["amount"] is None for one in deals), len(deals))',
                says="{0} of {1}.",
            ),
        ),
    ),
    Task(
        name="January by merchant",
        domain="aggregate over many calls",
        servers=("bank", "drive"),
        turns=(
            Turn(
                asks="What did I spend with each merchant in January 2026 from CHK-1? Save it as /reports/january.csv too.",
                looks=(
                    'page = list_transactions(account_id="CHK-1", start_date="2026-01-01", end_date="2026-01-31")\nprint(str(page)[:300], str(page)[-80:])',
                ),
                does='from collections import defaultdict\nspent, number = defaultdict(float), 1\nwhile True:\n    for one in page["transactions"]:\n        spent[one["merchant"]] -= one["amount"]\n    if not page["has_more"]:\n        break\n    number += 1\n    page = list_transactions(account_id="CHK-1", start_date="2026-01-01", end_date="2026-01-31", page=number)\nby = {name: round(amount, 2) for name, amount in sorted(spent.items())}\nwrite_file(path="/reports/january.csv", content="merchant,amount\\n" + "".join(f"{name},{amount}\\n" for name, amount in by.items()))\nprint(by)',
                says="In euro: {0}. It is saved as /reports/january.csv.",
            ),
        ),
    ),
    Task(
        name="the cheapest day to Tokyo",
        domain="aggregate over many calls",
        servers=("travel",),
        turns=(
            Turn(
                asks="On which day from 1 to 7 April 2026 is a flight from BER to NRT cheapest, and what does it cost?",
                does='flights = [one for day in range(1, 8) for one in search_flights(origin="BER", destination="NRT", date=f"2026-04-0{day}")]\nbest = min(flights, key=lambda one: one["price"])\nprint(best["date"], best["price"], best["flight_id"])',
                says="On {0}, for {1} euro ({2}).",
            ),
            Turn(
                asks="And the cheapest without a stop?",
                does='direct = min((one for one in flights if not one["stops"]), key=lambda one: one["price"])\nprint(direct["date"], direct["price"], direct["flight_id"])',
                says="On {0}, for {1} euro ({2}).",
            ),
        ),
    ),
)
