"""Questions about tables. Sizes are every third of those of the 64 files of a public set, whatever they are."""

from __future__ import annotations

from pinfold.app.bench.data import a_file
from pinfold.app.bench.task import Task, Turn


def _peek(*names: str) -> tuple[str, ...]:
    """The first lines of each file, in one cell."""
    if len(names) == 1:
        return (f'print(open("{names[0]}").read(240))',)
    listed = ", ".join(f'"{name}"' for name in names)
    return (f"for name in ({listed}):\n    print(open(name).read(160))",)


def _rows(name: str) -> str:
    return f'import csv\nrows = list(csv.DictReader(open("{name}")))\n'


TASKS = (
    Task(
        name="sales by region",
        domain="CSV analysis",
        files={"sales.csv": a_file("sales", 61_194)},
        turns=(
            Turn(
                asks="What was the revenue by region in sales.csv (units times price)?",
                looks=_peek("sales.csv"),
                does=_rows("sales.csv")
                + 'from collections import defaultdict\nby = defaultdict(float)\nfor r in rows:\n    by[r["region"]] += int(r["units"]) * float(r["price"])\nprint({k: round(v, 2) for k, v in by.items()})',
                says="Revenue by region: {0}.",
            ),
            Turn(
                asks="Which product sold the most units?",
                does='units = defaultdict(int)\nfor r in rows:\n    units[r["product"]] += int(r["units"])\nbest = max(units, key=units.get)\nprint(best, units[best])',
                says="{0}, with {1} units.",
            ),
            Turn(
                asks="Which month was the best?",
                does='months = defaultdict(float)\nfor r in rows:\n    months[r["date"][:7]] += int(r["units"]) * float(r["price"])\nbest = max(months, key=months.get)\nprint(best, round(months[best], 2))',
                says="{0}, with {1}.",
            ),
        ),
    ),
    Task(
        name="sales in detail",
        domain="CSV analysis",
        files={"sales.csv": a_file("sales", 840_734)},
        turns=(
            Turn(
                asks="How many rows does sales.csv have, and what is the median price?",
                looks=_peek("sales.csv"),
                does=_rows("sales.csv")
                + 'from statistics import median\nprint(len(rows), median(float(r["price"]) for r in rows))',
                says="{0} rows; the median price is {1}.",
            ),
            Turn(
                asks="What share of the revenue comes from coffee?",
                does='def revenue(some):\n    return sum(int(r["units"]) * float(r["price"]) for r in some)\nshare = revenue(r for r in rows if r["product"] == "Coffee") / revenue(rows)\nprint(round(100 * share, 2))',
                says="{0} percent.",
            ),
            Turn(
                asks="Write the revenue of each product to products.csv, best first.",
                does='products = sorted({r["product"] for r in rows}, key=lambda p: -revenue(r for r in rows if r["product"] == p))\nwith open("products.csv", "w", newline="") as file:\n    out = csv.writer(file)\n    out.writerow(["product", "revenue"])\n    out.writerows([p, round(revenue(r for r in rows if r["product"] == p), 2)] for p in products)\nprint(products[0])',
                says="Written; {0} comes first.",
            ),
        ),
    ),
    Task(
        name="staff of a small firm",
        domain="CSV analysis",
        files={"staff.csv": a_file("staff", 2_405)},
        turns=(
            Turn(
                asks="What is the mean salary in staff.csv?",
                looks=_peek("staff.csv"),
                does=_rows("staff.csv")
                + 'from statistics import mean\nprint(round(mean(int(r["salary"]) for r in rows)))',
                says="{0}.",
            ),
            Turn(
                asks="Which department has the highest mean rating?",
                does='ratings = {}\nfor r in rows:\n    ratings.setdefault(r["department"], []).append(float(r["rating"]))\nbest = max(ratings, key=lambda d: mean(ratings[d]))\nprint(best, round(mean(ratings[best]), 2))',
                says="{0}, with {1}.",
            ),
        ),
    ),
    Task(
        name="staff with gaps",
        domain="CSV analysis",
        files={"staff.csv": a_file("staff", 67_251)},
        turns=(
            Turn(
                asks="What is the mean age of the people in staff.csv?",
                looks=(
                    *_peek("staff.csv"),
                    _rows("staff.csv")
                    + "from statistics import mean\nanswer(f\"{mean(int(r['age']) for r in rows):.2f}\")",
                ),
                does='ages = [int(r["age"]) for r in rows if r["age"]]\nprint(round(mean(ages), 2), len(rows) - len(ages))',
                says="{0}; {1} people have no age.",
            ),
            Turn(
                asks="How many earn more than 100,000, by department?",
                does='from collections import Counter\nprint(dict(Counter(r["department"] for r in rows if int(r["salary"]) > 100000)))',
                says="{0}.",
            ),
            Turn(
                asks="Do age and salary correlate?",
                does='from statistics import correlation\nboth = [(int(r["age"]), int(r["salary"])) for r in rows if r["age"]]\nprint(round(correlation(*zip(*both)), 3))',
                says="Hardly: the correlation is {0}.",
                reads=True,
            ),
            Turn(
                asks="Who has been there longest?",
                does='first = min(rows, key=lambda r: r["joined"])\nprint(first["id"], first["joined"])',
                says="{0}, since {1}.",
            ),
        ),
    ),
    Task(
        name="temperatures of a week",
        domain="time series",
        files={"sensors.csv": a_file("sensors", 21_967)},
        turns=(
            Turn(
                asks="What is the mean temperature of each sensor in sensors.csv?",
                looks=_peek("sensors.csv"),
                does=_rows("sensors.csv")
                + 'from statistics import mean\nby = {}\nfor r in rows:\n    by.setdefault(r["sensor"], []).append(float(r["temperature"]))\nprint({k: round(mean(v), 2) for k, v in by.items()})',
                says="{0}.",
            ),
            Turn(
                asks="On which day was it warmest on average?",
                does='days = {}\nfor r in rows:\n    days.setdefault(r["time"][:10], []).append(float(r["temperature"]))\nbest = max(days, key=lambda d: mean(days[d]))\nprint(best, round(mean(days[best]), 2))',
                says="On {0}: {1} degrees.",
            ),
            Turn(
                asks="How many readings were above 22.5 degrees?",
                does='print(sum(float(r["temperature"]) > 22.5 for r in rows))',
                says="{0}.",
            ),
        ),
    ),
    Task(
        name="temperatures of a year",
        domain="time series",
        files={"sensors.csv": a_file("sensors", 1_773_532)},
        turns=(
            Turn(
                asks="Which month in sensors.csv was the most humid?",
                looks=_peek("sensors.csv"),
                does=_rows("sensors.csv")
                + 'from statistics import mean\nmonths = {}\nfor r in rows:\n    months.setdefault(r["time"][:7], []).append(float(r["humidity"]))\nbest = max(months, key=lambda m: mean(months[m]))\nprint(best, round(mean(months[best]), 2))',
                says="{0}, with {1} percent.",
            ),
            Turn(
                asks="What is the largest change between two readings of the same sensor?",
                does='last, most = {}, (0, "")\nfor r in rows:\n    now = float(r["temperature"])\n    most = max(most, (abs(now - last.get(r["sensor"], now)), r["time"]))\n    last[r["sensor"]] = now\nprint(round(most[0], 2), most[1])',
                says="{0} degrees, at {1}.",
            ),
            Turn(
                asks="And the 95th percentile of the temperature?",
                does='from statistics import quantiles\nprint(round(quantiles((float(r["temperature"]) for r in rows), n=20)[-1], 2))',
                says="{0} degrees.",
            ),
        ),
    ),
    Task(
        name="late flights",
        domain="CSV analysis",
        files={"flights.csv": a_file("flights", 83_961)},
        turns=(
            Turn(
                asks="Which carrier in flights.csv is the most punctual?",
                looks=_peek("flights.csv"),
                does=_rows("flights.csv")
                + 'from statistics import mean\nby = {}\nfor r in rows:\n    by.setdefault(r["carrier"], []).append(int(r["delay_min"]))\nbest = min(by, key=lambda c: mean(by[c]))\nprint(best, round(mean(by[best]), 2))',
                says="{0}, {1} minutes late on average.",
            ),
            Turn(
                asks="What share of flights is more than 30 minutes late?",
                does='print(round(100 * sum(int(r["delay_min"]) > 30 for r in rows) / len(rows), 2))',
                says="{0} percent.",
            ),
            Turn(
                asks="Which connection has the most flights?",
                does='from collections import Counter\nprint(Counter((r["origin"], r["destination"]) for r in rows).most_common(1)[0])',
                says="{0}.",
            ),
        ),
    ),
    Task(
        name="flights of years",
        domain="CSV analysis",
        files={"flights.csv": a_file("flights", 2_772_143)},
        turns=(
            Turn(
                asks="How many flights does flights.csv hold, and over how many days?",
                looks=_peek("flights.csv"),
                does=_rows("flights.csv") + 'print(len(rows), len({r["date"] for r in rows}))',
                says="{0} flights on {1} days.",
            ),
            Turn(
                asks="Is the delay related to the distance?",
                does='from statistics import correlation\nprint(round(correlation([int(r["delay_min"]) for r in rows], [int(r["distance_km"]) for r in rows]), 4))',
                says="No: the correlation is {0}.",
                reads=True,
            ),
            Turn(
                asks="Which airport has the worst departures, by mean delay?",
                does='from statistics import mean\nby = {}\nfor r in rows:\n    by.setdefault(r["origin"], []).append(int(r["delay_min"]))\nworst = max(by, key=lambda a: mean(by[a]))\nprint(worst, round(mean(by[worst]), 2))',
                says="{0}: {1} minutes.",
            ),
            Turn(
                asks="And the best day of the week?",
                does='from datetime import date\nweek = {}\nfor r in rows:\n    week.setdefault(date.fromisoformat(r["date"]).strftime("%A"), []).append(int(r["delay_min"]))\nbest = min(week, key=lambda d: mean(week[d]))\nprint(best, round(mean(week[best]), 2))',
                says="{0}, with {1} minutes.",
            ),
        ),
    ),
    Task(
        name="prices of houses",
        domain="CSV analysis",
        files={"houses.csv": a_file("houses", 11_515)},
        turns=(
            Turn(
                asks="What does a square metre cost on average, by district, in houses.csv?",
                looks=_peek("houses.csv"),
                does=_rows("houses.csv")
                + 'from statistics import mean\nby = {}\nfor r in rows:\n    by.setdefault(r["district"], []).append(int(r["price"]) / int(r["area"]))\nprint({k: round(mean(by[k])) for k in sorted(by)})',
                says="{0}.",
            ),
            Turn(
                asks="Fit price against area: what is the slope?",
                does='from statistics import linear_regression\nline = linear_regression([int(r["area"]) for r in rows], [int(r["price"]) for r in rows])\nprint(round(line.slope, 1))',
                says="{0} a square metre.",
            ),
            Turn(
                asks="What would 100 square metres cost by that?",
                does="print(round(line.slope * 100 + line.intercept))",
                says="About {0}.",
            ),
        ),
    ),
    Task(
        name="houses by class",
        domain="CSV analysis",
        files={"houses.csv": a_file("houses", 394_007)},
        turns=(
            Turn(
                asks="How many houses of each energy class are in houses.csv?",
                looks=_peek("houses.csv"),
                does=_rows("houses.csv")
                + 'from collections import Counter\nprint(dict(sorted(Counter(r["energy_class"] for r in rows).items())))',
                says="{0}.",
            ),
            Turn(
                asks="Are those built before 1950 cheaper by the metre?",
                does='from statistics import mean\ndef metre(some):\n    return round(mean(int(r["price"]) / int(r["area"]) for r in some))\nprint(metre(r for r in rows if int(r["year"]) < 1950), metre(r for r in rows if int(r["year"]) >= 1950))',
                says="Old ones cost {0} a square metre, newer ones {1}.",
            ),
            Turn(
                asks="Which five are the dearest?",
                does='top = sorted(rows, key=lambda r: -int(r["price"]))[:5]\nprint([(r["price"], r["area"], r["district"]) for r in top])',
                says="{0} (price, area, district).",
            ),
        ),
    ),
    Task(
        name="does learning help",
        domain="CSV analysis",
        files={"pupils.csv": a_file("pupils", 31_050)},
        turns=(
            Turn(
                asks="Do hours of learning and scores in pupils.csv correlate?",
                looks=_peek("pupils.csv"),
                does=_rows("pupils.csv")
                + 'from statistics import correlation\nprint(round(correlation([float(r["hours"]) for r in rows], [float(r["score"]) for r in rows]), 3))',
                says="Yes: the correlation is {0}.",
                reads=True,
            ),
            Turn(
                asks="Which school has the highest median score?",
                does='from statistics import median\nby = {}\nfor r in rows:\n    by.setdefault(r["school"], []).append(float(r["score"]))\nbest = max(by, key=lambda s: median(by[s]))\nprint(best, median(by[best]))',
                says="{0}, with {1}.",
            ),
            Turn(
                asks="Do tutored pupils score higher, and by how much?",
                does='from statistics import mean\nmeans = {t: mean(float(r["score"]) for r in rows if r["tutored"] == t) for t in ("yes", "no")}\nprint(round(means["yes"] - means["no"], 2))',
                says="Tutored pupils score {0} points more.",
            ),
        ),
    ),
    Task(
        name="pupils at the edge",
        domain="CSV analysis",
        files={"pupils.csv": a_file("pupils", 191_962)},
        turns=(
            Turn(
                asks="How many pupils of pupils.csv scored below 40, and how many of them attend less than half the time?",
                looks=_peek("pupils.csv"),
                does=_rows("pupils.csv")
                + 'low = [r for r in rows if float(r["score"]) < 40]\nprint(len(low), sum(float(r["attendance"]) < 50 for r in low))',
                says="{0}, of whom {1} attend less than half the time.",
            ),
            Turn(
                asks="What are mean and standard deviation of the score?",
                does='from statistics import mean, stdev\nscores = [float(r["score"]) for r in rows]\nprint(round(mean(scores), 2), round(stdev(scores), 2))',
                says="Mean {0}, standard deviation {1}.",
            ),
        ),
    ),
    Task(
        name="what power costs",
        domain="time series",
        files={"meter.csv": a_file("meter", 55_628)},
        turns=(
            Turn(
                asks="What did the power in meter.csv cost in all?",
                looks=_peek("meter.csv"),
                does=_rows("meter.csv")
                + 'print(round(sum(float(r["kwh"]) * float(r["price"]) for r in rows), 2))',
                says="{0}.",
            ),
            Turn(
                asks="At which hour of the day is most used?",
                does='hours = {}\nfor r in rows:\n    hours[r["time"][11:13]] = hours.get(r["time"][11:13], 0) + float(r["kwh"])\nbest = max(hours, key=hours.get)\nprint(best, round(hours[best], 1))',
                says="Between {0} and the next hour: {1} kWh.",
            ),
            Turn(
                asks="What would a flat price of 0.22 have cost?",
                does='print(round(0.22 * sum(float(r["kwh"]) for r in rows), 2))',
                says="{0}.",
            ),
        ),
    ),
    Task(
        name="a year of power",
        domain="time series",
        files={"meter.csv": a_file("meter", 1_156_736)},
        turns=(
            Turn(
                asks="How much was used each month, according to meter.csv?",
                looks=_peek("meter.csv"),
                does=_rows("meter.csv")
                + 'months = {}\nfor r in rows:\n    months[r["time"][:7]] = months.get(r["time"][:7], 0) + float(r["kwh"])\nprint({m: round(v) for m, v in months.items()})',
                says="In kWh: {0}.",
            ),
            Turn(
                asks="Which day was the dearest?",
                does='days = {}\nfor r in rows:\n    days[r["time"][:10]] = days.get(r["time"][:10], 0) + float(r["kwh"]) * float(r["price"])\nbest = max(days, key=days.get)\nprint(best, round(days[best], 2))',
                says="{0}, at {1}.",
            ),
            Turn(
                asks="How much cheaper is the night (22 to 6) per kWh?",
                looks=(
                    'night = [r for r in rows if r["hour"] >= "22" or r["hour"] < "06"]\nprint(len(night))',
                ),
                does='def mean_price(some):\n    return sum(float(r["price"]) for r in some) / len(some)\nnight = [r for r in rows if not "06" <= r["time"][11:13] < "22"]\nday = [r for r in rows if "06" <= r["time"][11:13] < "22"]\nprint(round(mean_price(day) - mean_price(night), 4))',
                says="The night is {0} cheaper per kWh.",
            ),
        ),
    ),
    Task(
        name="bikes for rent",
        domain="time series",
        files={"rides.csv": a_file("rides", 16_557)},
        turns=(
            Turn(
                asks="At which hour of the day are most bikes rented, according to rides.csv?",
                looks=_peek("rides.csv"),
                does=_rows("rides.csv")
                + 'from statistics import mean\nby = {}\nfor r in rows:\n    by.setdefault(int(r["hour"]), []).append(int(r["rentals"]))\nbest = max(by, key=lambda h: mean(by[h]))\nprint(best, round(mean(by[best]), 1))',
                says="At {0}: {1} on average.",
            ),
            Turn(
                asks="Does temperature matter?",
                does='from statistics import correlation\nprint(round(correlation([float(r["temperature"]) for r in rows], [int(r["rentals"]) for r in rows]), 3))',
                says="Yes, somewhat: the correlation is {0}.",
                reads=True,
            ),
            Turn(
                asks="How many hours had no rental at all?",
                does='print(sum(r["rentals"] == "0" for r in rows))',
                says="{0}.",
            ),
        ),
    ),
)
