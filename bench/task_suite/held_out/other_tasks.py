"""Sums, words, plots, edits, scripts and small talk. Held out: not to be read by whoever tunes an agent."""

from __future__ import annotations

import math
from datetime import date, timedelta
from random import Random

from bench.task_suite import checks
from bench.task_suite.slips import BLANK, EMPTY_AXES
from bench.task_suite.task import Scene, Tasks, program, table

TASKS = Tasks("test")


@TASKS.of("arithmetic")
def price_with_tax(_random: Random) -> Scene:
    return Scene(
        prompt="A bike costs 1,349.50 before tax. What does it cost with 8.25 % sales tax? Round to 2 decimals.",
        check=checks.number("1460.83", within="0.0051"),
        oracle="print(f'With tax the bike costs {1349.50 * 1.0825:,.2f}.')",
        wrong=("111.33", "1460.8", "The bike costs 1,357.75 with tax."),
    )


@TASKS.of("arithmetic")
def mean_of_some_numbers(_random: Random) -> Scene:
    values = (12.5, 13.75, 9.2, 18.05, 11.4, 16.6)
    return Scene(
        prompt=f"What is the mean of {', '.join(map(str, values))}? Give me 3 decimals.",
        check=checks.number(round(sum(values) / 6, 3), within="0.00051"),
        oracle=f"print(sum({values}) / 6)",
        wrong=(f"{sum(values):.2f}", f"{sum(values) / 5:.3f}", f"{sum(values) / 6:.1f}"),
    )


@TASKS.of("arithmetic")
def a_factorial(_random: Random) -> Scene:
    return Scene(
        prompt="What is 23 factorial, exactly?",
        check=checks.number(math.factorial(23)),
        oracle="import math; print(f'{math.factorial(23):,}')",
        wrong=(str(math.factorial(22)), "2.585201673888498e+22", str(math.factorial(23) + 1)),
    )


@TASKS.of("strings")
def count_vowels(_random: Random) -> Scene:
    text = "The quick onyx goblin jumps over a lazy dwarf in Ouagadougou"
    count = sum(c in "aeiou" for c in text.lower())
    return Scene(
        prompt=f'How many vowels (a, e, i, o, u) are in the sentence "{text}"?',
        check=checks.number(count),
        oracle=f"print('There are', sum(c in 'aeiou' for c in {text!r}.lower()), 'vowels.')",
        wrong=(str(count - 1), str(len(text)), f"The sentence has {count + 3} vowels."),
    )


@TASKS.of("strings")
def to_snake_case(_random: Random) -> Scene:
    return Scene(
        prompt="Turn the name TotalAmountOfOpenInvoices into snake_case.",
        check=checks.exactly("total_amount_of_open_invoices"),
        oracle="import re; print(re.sub('(?<!^)(?=[A-Z])', '_', 'TotalAmountOfOpenInvoices').lower())",
        wrong=("totalAmountOfOpenInvoices", "Total_Amount_Of_Open_Invoices", "total-amount-of-open-invoices"),
    )


@TASKS.of("strings")
def unique_in_order(_random: Random) -> Scene:
    words = ["kiwi", "lime", "kiwi", "date", "lime", "papaya", "date", "guava", "kiwi", "mango"]
    unique = list(dict.fromkeys(words))
    return Scene(
        prompt=f"Remove the duplicates from this list and keep the order of first appearance: {', '.join(words)}",
        check=checks.sequence(unique),
        oracle=f"print(', '.join(dict.fromkeys({words!r})))",
        wrong=(", ".join(sorted(unique)), ", ".join(unique[:-1]), ", ".join(reversed(unique))),
    )


@TASKS.of("plots")
def scatter(random: Random) -> Scene:
    rows = [(h := random.randint(150, 198), round(h * 0.9 - 90 + random.uniform(-9, 9), 1)) for _ in range(80)]
    return Scene(
        prompt="Make a scatter plot of weight against height from body.csv and save it as body.png.",
        files={"body.csv": table("height,weight", [*rows])},
        check=checks.picture("body.png"),
        oracle=program("""
            import pandas, matplotlib
            matplotlib.use('Agg')
            import matplotlib.pyplot as plt
            d = pandas.read_csv('body.csv')
            plt.scatter(d['height'], d['weight'])
            plt.savefig('body.png')
        """),
        wrong=("The scatter plot was saved as body.png.",),
        slips=(EMPTY_AXES.format(file="body.png"), BLANK.format(file="body.png")),
    )


@TASKS.of("plots")
def red_bars(random: Random) -> Scene:
    rows = [(day, random.randint(20, 200)) for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")]
    bars = program("""
        import pandas, matplotlib
        matplotlib.use('Agg')
        import matplotlib.pyplot as plt
        d = pandas.read_csv('visitors.csv')
        plt.barh(d['day'], d['visitors'], color='COLOUR')
        plt.savefig('visitors.png')
    """)
    return Scene(
        prompt="Draw the visitors per day from visitors.csv as a horizontal bar chart in red. Save it to visitors.png.",
        files={"visitors.csv": table("day,visitors", [*rows])},
        check=checks.picture("visitors.png", "red"),
        oracle=bars.replace("COLOUR", "red"),
        wrong=("The chart is saved.",),
        slips=(bars.replace("COLOUR", "tab:blue"), EMPTY_AXES.format(file="visitors.png")),
    )


@TASKS.of("plots")
def a_sine(_random: Random) -> Scene:
    return Scene(
        prompt="Plot the sine function from 0 to 10 and save the picture as sine.png.",
        check=checks.picture("sine.png"),
        oracle=program("""
            import math, matplotlib
            matplotlib.use('Agg')
            import matplotlib.pyplot as plt
            plt.plot([math.sin(x / 10) for x in range(101)])
            plt.savefig('sine.png')
        """),
        wrong=("Saved sine.png.",),
        slips=(BLANK.format(file="sine.png"), "open('sine.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n')"),
    )


@TASKS.of("edits")
def switch_a_setting(_random: Random) -> Scene:
    before = (
        '# settings of the shop\n[app]\nname = "shop"\ndebug = true   # turn off in production\n\n'
        '[cache]\ndebug = true\nseconds = 300\n\n[mail]\nsender = "debug@example.com"\n'
    )
    after = before.replace("debug = true   #", "debug = false   #")
    return Scene(
        prompt="In settings.toml, set debug to false in the [app] section. Do not change anything else.",
        files={"settings.toml": before},
        changes=frozenset({"settings.toml"}),
        check=checks.file_is("settings.toml", after),
        oracle=program("""
            text = open('settings.toml').read()
            open('settings.toml', 'w').write(text.replace('debug = true', 'debug = false', 1))
            print('Debug is off.')
        """),
        wrong=("debug is now false.",),
        slips=(
            "t = open('settings.toml').read(); open('settings.toml', 'w').write(t.replace('true', 'false'))",
            "open('settings.toml', 'w').write('[app]\\ndebug = false\\n')",
        ),
    )


@TASKS.of("edits")
def delete_a_row(random: Random) -> Scene:
    rows = [(100 + i, random.choice(("basic", "plus", "pro")), random.randint(1, 36)) for i in range(25)]
    after = table("id,plan,months", [row for row in rows if row[0] != 107])
    return Scene(
        prompt="Delete the subscriber with id 107 from subscribers.csv.",
        files={"subscribers.csv": table("id,plan,months", [*rows])},
        changes=frozenset({"subscribers.csv"}),
        check=checks.file_is("subscribers.csv", after),
        oracle=program("""
            lines = open('subscribers.csv').readlines()
            open('subscribers.csv', 'w').writelines(line for line in lines if not line.startswith('107,'))
        """),
        wrong=("I deleted the subscriber 107.",),
        slips=(
            "l = open('subscribers.csv').readlines(); open('subscribers.csv', 'w').writelines(l[:7] + l[8:])",
            "l = open('subscribers.csv').readlines(); open('subscribers.csv', 'w').writelines(l[1:8] + l[9:])",
        ),
    )


@TASKS.of("edits")
def replace_a_name(random: Random) -> Scene:
    words = ["Meeting", "with", "Acme", "about", "the", "acmeology", "contract", "and", "budget"]
    lines = [" ".join(random.choices(words, k=7)) for _ in range(20)]
    before = "\n".join(["# Acme", "", *lines]) + "\n"
    after = before.replace("Acme", "Globex")
    return Scene(
        prompt="Replace every Acme in minutes.md with Globex. The word acmeology stays.",
        files={"minutes.md": before},
        changes=frozenset({"minutes.md"}),
        check=checks.file_is("minutes.md", after),
        oracle=program("""
            text = open('minutes.md').read()
            open('minutes.md', 'w').write(text.replace('Acme', 'Globex'))
        """),
        wrong=("Every Acme is Globex now.",),
        slips=(
            "t = open('minutes.md').read(); open('minutes.md', 'w').write(t.replace('Acme', 'Globex', 1))",
            "import re; t = open('minutes.md').read()\nopen('minutes.md', 'w').write(re.sub('(?i)acme', 'Globex', t))",
        ),
    )


@TASKS.of("chat")
def good_morning(_random: Random) -> Scene:
    return Scene(
        prompt="good morning!",
        check=checks.reply,
        oracle="print('Good morning! How can I help?')",
        wrong=("```python\nprint('good morning')\n```", "None", "Traceback (most recent call last): good"),
    )


@TASKS.of("clock")
def date_today(_random: Random) -> Scene:
    other = (checks.now() - timedelta(days=3)).date()
    return Scene(
        prompt="What's today's date?",
        check=checks.the_date,
        oracle="import datetime; print(f'Today is {datetime.date.today():%B %d, %Y}.')",
        wrong=(f"Today is {other}.", "Today is October 5, 2023.", "I have no access to a calendar."),
    )


def _left(today: date) -> int:
    return (date(today.year, 12, 31) - today).days


@TASKS.of("clock")
def days_left_in_the_year(_random: Random) -> Scene:
    left = _left(checks.now().date())
    return Scene(
        prompt="How many days are left from today until 31 December of this year?",
        check=checks.days_from_today(_left),
        oracle=program("""
            import datetime
            today = datetime.date.today()
            print((datetime.date(today.year, 12, 31) - today).days, 'days')
        """),
        wrong=(f"{left + 2} days", f"{365 - left} days" if left != 182 else "180 days", "It depends on the date."),
    )


@TASKS.of("listing")
def count_csv_files(_random: Random) -> Scene:
    csv = [f"data/{year}.csv" for year in (2019, 2020, 2021, 2022)] + ["data/old/2018.csv", "summary.csv", "plan.csv"]
    other = ["data/notes.txt", "report.csv.bak", "index.html", "data/old/csv.md"]
    return Scene(
        prompt="How many .csv files are in this folder, including its subfolders?",
        files=dict.fromkeys(csv, "a,b\n1,2\n") | dict.fromkeys(other, "-\n"),
        check=checks.number(7),
        oracle="import pathlib; print(len(list(pathlib.Path().rglob('*.csv'))), 'files')",
        wrong=("2 files", "There are 8 .csv files.", "11"),
    )


@TASKS.of("algorithms")
def a_fibonacci_number(_random: Random) -> Scene:
    return Scene(
        prompt="The Fibonacci numbers start 1, 1, 2, 3, 5. What is the 32nd of them?",
        check=checks.number(2178309),
        oracle=program("""
            a, b = 1, 1
            for _ in range(31):
                a, b = b, a + b
            print(f'The 32nd Fibonacci number is {a:,}.')
        """),
        wrong=("1346269", "3524578", "The 32nd is 2,178,308."),
    )


@TASKS.of("algorithms")
def digit_sum_of_a_power(_random: Random) -> Scene:
    return Scene(
        prompt="What is the sum of the digits of 3 to the power of 120?",
        check=checks.number(sum(map(int, str(3**120)))),
        oracle="print(sum(int(c) for c in str(3 ** 120)))",
        wrong=(str(3**120), str(sum(map(int, str(3**119))) + 9), "360"),
    )


@TASKS.of("units")
def pounds(_random: Random) -> Scene:
    return Scene(
        prompt="Convert 8.4 kg to pounds, with 2 decimals.",
        check=checks.number("18.52", within="0.0151"),
        oracle="print(f'8.4 kg are {8.4 / 0.45359237:.2f} pounds.')",
        wrong=("3.81 pounds", "About 18 pounds.", "16.80"),
    )


@TASKS.of("units")
def metres_per_second(_random: Random) -> Scene:
    return Scene(
        prompt="A train goes 130 km/h. How many metres per second is that? Use 1 decimal.",
        check=checks.number("36.1", within="0.051"),
        oracle="print(130 / 3.6)",
        wrong=("468.0", "A train at 130 km/h goes 36 m/s.", "2.2"),
    )


@TASKS.of("several")
def merge_two_tables(random: Random) -> Scene:
    one = [(f"T{i}", random.randint(1, 99)) for i in range(1, 13)]
    two = [(f"W{i}", random.randint(1, 99)) for i in range(1, 10)]
    return Scene(
        prompt=(
            "tuesday.csv and wednesday.csv have the same columns. Make one file both.csv with the rows of tuesday.csv "
            "followed by those of wednesday.csv, with the header only once."
        ),
        files={"tuesday.csv": table("ticket,minutes", [*one]), "wednesday.csv": table("ticket,minutes", [*two])},
        check=checks.csv_is("both.csv", [("ticket", "minutes"), *one, *two]),
        oracle=program("""
            import pandas
            pandas.concat([pandas.read_csv('tuesday.csv'), pandas.read_csv('wednesday.csv')]).to_csv('both.csv', index=False)
        """),
        wrong=("both.csv has all rows now.",),
        slips=(
            "open('both.csv', 'w').write(open('tuesday.csv').read() + open('wednesday.csv').read())",
            "import pandas as p; p.concat([p.read_csv(x) for x in ('tuesday.csv', 'wednesday.csv')]).to_csv('both.csv')",
        ),
    )


@TASKS.of("scripts")
def script_that_averages(random: Random) -> Scene:
    values = [random.randint(1, 100) for _ in range(20)]
    values[0] += (20 - sum(values) % 20) % 20
    mean = sum(values) // 20
    source = "n = [int(x) for x in open('numbers.txt')]\nprint(round(sum(n) / len(n)))\n"
    return Scene(
        prompt=(
            "numbers.txt has one number per line. Write a script average.py that reads numbers.txt and prints their "
            "average as a whole number and nothing else. Run it and tell me the result."
        ),
        files={"numbers.txt": "".join(f"{one}\n" for one in values)},
        check=checks.all_of(
            checks.number(mean),
            checks.script_prints("average.py", str(mean)),
            checks.script_prints("average.py", "30", with_files={"numbers.txt": "10\n20\n60\n"}),
        ),
        oracle=f"open('average.py', 'w').write({source!r})\nexec(open('average.py').read())",
        wrong=(f"The average is {mean}.", str(mean + 1)),
        slips=(f"open('average.py', 'w').write('print({mean})')",),
    )
