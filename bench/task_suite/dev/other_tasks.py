"""Sums, words, plots, edits, scripts and small talk."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random

from bench.task_suite import checks
from bench.task_suite.slips import BLANK, EMPTY_AXES
from bench.task_suite.task import Scene, Tasks, program, table

TASKS = Tasks("dev")
REGIONS = ("North", "South", "East", "West", "Central")
FIRST = ("Anna", "Ben", "Carla", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Liam")


@TASKS.of("arithmetic")
def percent_of(_random: Random) -> Scene:
    return Scene(
        prompt="What is 17.3 % of 4,210?",
        check=checks.number("728.33", within="0.0051"),
        oracle="print('17.3 % of 4,210 is', 4210 * 17.3 / 100)",
        wrong=("17.3 % of 4,210 is 728.3", "72.833", "About 730."),
    )


@TASKS.of("arithmetic")
def compound_interest(_random: Random) -> Scene:
    value = 2500 * 1.032**7
    return Scene(
        prompt=(
            "I put 2,500 into a savings account at 3.2 % interest a year, compounded yearly. How much do I have after "
            "7 years? Round to 2 decimals."
        ),
        check=checks.number(round(value, 2), within="0.0051"),
        oracle="print(f'You will have ${2500 * 1.032 ** 7:,.2f}.')",
        wrong=(f"{2500 * (1 + 0.032 * 7):.2f}", f"{2500 * 1.032**6:.2f}", f"{value - 2500:.2f}"),
    )


@TASKS.of("arithmetic")
def a_big_power(_random: Random) -> Scene:
    return Scene(
        prompt="What is 2 to the power of 64, minus 1? I need all the digits.",
        check=checks.number(2**64 - 1),
        oracle="print(2 ** 64 - 1)",
        wrong=(str(2**64), "1.8446744073709552e+19", str(2**63 - 1)),
    )


@TASKS.of("strings")
def reverse_a_string(_random: Random) -> Scene:
    text = "a pinfold keeps stray sheep"
    return Scene(
        prompt=f'Write this backwards, letter by letter: "{text}"',
        check=checks.exactly(text[::-1]),
        oracle=f"print({text!r}[::-1])",
        wrong=("sheep stray keeps pinfold a", "peehs yarts speek dlofnip", text[::-1].replace("yarts", "yatrs")),
    )


@TASKS.of("strings")
def count_a_letter(_random: Random) -> Scene:
    text = "strawberry and raspberry preserves"
    assert text.count("r") == 8
    return Scene(
        prompt=f'How many times does the letter r occur in "{text}"?',
        check=checks.number(8),
        oracle=f"print('The letter r occurs', {text!r}.count('r'), 'times.')",
        wrong=("7", "The letter r occurs 6 times.", f"{len(text)}"),
    )


@TASKS.of("strings")
def sort_words(_random: Random) -> Scene:
    words = ["walnut", "almond", "pecan", "cashew", "hazel", "acorn", "pistachio"]
    return Scene(
        prompt=f"Sort these words alphabetically: {', '.join(words)}",
        check=checks.sequence(sorted(words)),
        oracle=f"print(sorted({words!r}))",
        wrong=(", ".join(sorted(words, key=len)), ", ".join(sorted(words, reverse=True)), ", ".join(sorted(words)[1:])),
    )


def _stock(random: Random) -> str:
    price = 120.0
    rows: list[tuple[object, ...]] = []
    for i in range(90):
        price += random.uniform(-3, 3.2)
        rows.append((date(2024, 1, 2) + timedelta(days=i), round(price, 2)))
    return table("date,price", rows)


@TASKS.of("plots")
def line_chart(random: Random) -> Scene:
    return Scene(
        prompt="Plot the price over the date from stock.csv as a line chart and save it as stock.png.",
        files={"stock.csv": _stock(random)},
        check=checks.picture("stock.png"),
        oracle=program("""
            import csv, matplotlib
            matplotlib.use('Agg')
            import matplotlib.pyplot as plt
            plt.plot([float(r['price']) for r in csv.DictReader(open('stock.csv'))])
            plt.savefig('stock.png')
            print('Saved as stock.png.')
        """),
        wrong=("I saved the chart as stock.png.",),
        slips=(
            BLANK.format(file="stock.png"),
            EMPTY_AXES.format(file="stock.png"),
            "open('stock.png', 'w').write('x')",
        ),
    )


@TASKS.of("plots")
def green_bars(random: Random) -> Scene:
    rows = [(random.choice(REGIONS), random.randint(1, 50)) for _ in range(60)]
    bars = program("""
        import csv, collections, matplotlib
        matplotlib.use('Agg')
        import matplotlib.pyplot as plt
        total = collections.Counter()
        for r in csv.DictReader(open('sales.csv')):
            total[r['region']] += int(r['units'])
        plt.bar(list(total), list(total.values()), color='COLOUR')
        plt.savefig('regions.png')
    """)
    return Scene(
        prompt=(
            "Make a bar chart of the total units per region from sales.csv. Use green bars and save the chart as "
            "regions.png."
        ),
        files={"sales.csv": table("region,units", [*rows])},
        check=checks.picture("regions.png", "green"),
        oracle=bars.replace("COLOUR", "green"),
        wrong=("The chart is in regions.png.",),
        slips=(bars.replace("COLOUR", "tab:blue"), BLANK.format(file="regions.png")),
    )


@TASKS.of("plots")
def histogram(random: Random) -> Scene:
    rows = [(i, min(100, max(0, round(random.gauss(68, 12))))) for i in range(1, 151)]
    return Scene(
        prompt="Draw a histogram of the score column of scores.csv and save it to scores.png.",
        files={"scores.csv": table("student,score", [*rows])},
        check=checks.picture("scores.png"),
        oracle=program("""
            import pandas, matplotlib
            matplotlib.use('Agg')
            pandas.read_csv('scores.csv')['score'].hist().figure.savefig('scores.png', dpi=150)
        """),
        wrong=("Done: scores.png", "Here is the histogram."),
        slips=(EMPTY_AXES.format(file="scores.png"),),
    )


@TASKS.of("edits")
def change_a_port(_random: Random) -> Scene:
    before = (
        "; main server\n[server]\nhost = 0.0.0.0\nport = 8080\nworkers = 4\n\n"
        "[admin]\nhost = 127.0.0.1\nport = 8081\n\n[log]\nfile = /var/log/8080.log\nlevel   = info\n"
    )
    return Scene(
        prompt="Change the port of [server] in server.ini from 8080 to 9090. Leave everything else as it is.",
        files={"server.ini": before},
        changes=frozenset({"server.ini"}),
        check=checks.file_is("server.ini", before.replace("port = 8080", "port = 9090")),
        oracle=program("""
            text = open('server.ini').read()
            open('server.ini', 'w').write(text.replace('port = 8080', 'port = 9090'))
            print('The port is 9090 now.')
        """),
        wrong=("I changed the port to 9090.",),
        slips=(
            "t = open('server.ini').read(); open('server.ini', 'w').write(t.replace('8080', '9090'))",
            (
                "import configparser as c; p = c.ConfigParser(); p.read('server.ini'); p['server']['port'] = '9090'\n"
                "p.write(open('server.ini', 'w'))"
            ),
        ),
    )


@TASKS.of("edits")
def rename_a_column(random: Random) -> Scene:
    rows = [(f"A{i:03}", random.choice(("bolt", "nut", "screw")), random.randint(1, 500)) for i in range(1, 41)]
    after = table("sku,item,quantity", [*rows])
    return Scene(
        prompt="Rename the column qty to quantity in inventory.csv.",
        files={"inventory.csv": table("sku,item,qty", [*rows])},
        changes=frozenset({"inventory.csv"}),
        check=checks.file_is("inventory.csv", after),
        oracle=program("""
            import pandas
            pandas.read_csv('inventory.csv').rename(columns={'qty': 'quantity'}).to_csv('inventory.csv', index=False)
        """),
        wrong=("The column is called quantity now.",),
        slips=(
            "import pandas as p; p.read_csv('inventory.csv').rename(columns={'qty': 'quantity'}).to_csv('inventory.csv')",
            "open('inventory.csv', 'w').write('sku,item,quantity')",
        ),
    )


@TASKS.of("edits")
def add_a_contact(random: Random) -> Scene:
    rows = [(one, f"{one.lower()}@example.org", random.choice(("Oslo", "Porto", "Graz"))) for one in FIRST[:9]]
    before = table("name,email,city", [*rows])
    return Scene(
        prompt="Add a contact to the end of contacts.csv: name Ada, email ada@example.org, city London.",
        files={"contacts.csv": before},
        changes=frozenset({"contacts.csv"}),
        check=checks.file_is("contacts.csv", before + "Ada,ada@example.org,London\n"),
        oracle="open('contacts.csv', 'a').write('Ada,ada@example.org,London\\n')",
        wrong=("I added Ada to contacts.csv.",),
        slips=(
            "open('contacts.csv', 'w').write('Ada,ada@example.org,London\\n')",
            "open('contacts.csv', 'a').write('\\nAda,ada@example.org,London\\n')",
            "open('contacts.csv', 'a').write('Ada, ada@example.org, London\\n')",
        ),
    )


@TASKS.of("chat")
def hi(_random: Random) -> Scene:
    return Scene(
        prompt="hi",
        check=checks.reply,
        oracle="print('Hello! What can I do for you?')",
        wrong=("```python\nprint('hi')\n```", "Traceback (most recent call last): hello", "42"),
    )


@TASKS.of("clock")
def time_now(_random: Random) -> Scene:
    later = (checks.now() + timedelta(hours=5, minutes=12)).astimezone()
    return Scene(
        prompt="What time is it?",
        check=checks.the_time,
        oracle="import time; print(time.strftime('It is %I:%M %p.'))",
        wrong=(f"It is {later:%H:%M}.", f"{later:%I:%M %p}", "I cannot know the time."),
    )


@TASKS.of("clock")
def weekday_today(_random: Random) -> Scene:
    tomorrow = checks.WEEKDAYS[(checks.now().weekday() + 2) % 7]
    return Scene(
        prompt="What day of the week is it today?",
        check=checks.the_weekday,
        oracle="import datetime; print(f'Today is {datetime.date.today():%A}.')",
        wrong=(f"Today is {tomorrow}.", ", ".join(checks.WEEKDAYS), "I do not have access to a calendar."),
    )


@TASKS.of("listing")
def files_here(_random: Random) -> Scene:
    files = {"budget.xlsx.txt": "x\n", "notes.md": "# Notes\n", "photo-list.csv": "id\n1\n", "run.sh": "echo\n"}
    return Scene(
        prompt="what files are here?",
        files=files,
        check=checks.names([*files], but_not=["main.py", "data.csv", "README.md"]),
        oracle="import os; print(os.listdir())",
        wrong=(
            "There are four files here.",
            "budget.xlsx.txt, notes.md, run.sh",
            "notes.md, main.py, data.csv, README.md",
        ),
    )


@TASKS.of("algorithms")
def the_fiftieth_prime(_random: Random) -> Scene:
    return Scene(
        prompt="What is the 50th prime number?",
        check=checks.number(229),
        oracle=program("""
            found, n = [], 2
            while len(found) < 50:
                if all(n % p for p in found):
                    found.append(n)
                n += 1
            print('The 50th prime number is', found[-1])
        """),
        wrong=("The 50th prime number is 227.", "233", " ".join(map(str, range(220, 240)))),
    )


@TASKS.of("algorithms")
def collatz(_random: Random) -> Scene:
    return Scene(
        prompt=(
            "Start with 27. If the number is even, halve it, otherwise triple it and add 1. How many steps does it take "
            "to reach 1?"
        ),
        check=checks.number(111),
        oracle=program("""
            n, steps = 27, 0
            while n != 1:
                n, steps = n // 2 if n % 2 == 0 else 3 * n + 1, steps + 1
            print(f'It takes {steps} steps.')
        """),
        wrong=("It takes 112 steps.", "110", "10"),
    )


@TASKS.of("units")
def fahrenheit(_random: Random) -> Scene:
    return Scene(
        prompt="How many degrees Celsius are 72 degrees Fahrenheit? One decimal, please.",
        check=checks.number("22.2", within="0.051"),
        oracle="print(f'{(72 - 32) * 5 / 9:.1f} °C')",
        wrong=("161.6", "72 °F are 22 °C.", "40.0"),
    )


@TASKS.of("units")
def miles(_random: Random) -> Scene:
    return Scene(
        prompt="How many kilometres are 26.2 miles? Round to 2 decimals.",
        check=checks.number("42.16", within="0.0151"),
        oracle="print(26.2 * 1.609344, 'km')",
        wrong=("16.28 km", "26.2 miles are about 42 km.", "41.92"),
    )


@TASKS.of("several")
def put_parts_together(random: Random) -> Scene:
    parts = {
        f"part{i}.txt": "".join(f"{random.choice(FIRST)} {random.randint(10, 99)}\n" for _ in range(5))
        for i in (1, 2, 3)
    }
    return Scene(
        prompt="Put the contents of part1.txt, part2.txt and part3.txt together, in this order, into a file all.txt.",
        files=parts,
        check=checks.file_is("all.txt", "".join(parts.values())),
        oracle="open('all.txt', 'w').write(''.join(open(f'part{i}.txt').read() for i in (1, 2, 3)))",
        wrong=("All parts are in all.txt now.",),
        slips=(
            "open('all.txt', 'w').write(''.join(open(f'part{i}.txt').read() for i in (3, 2, 1)))",
            "open('all.txt', 'w').write(''.join(open(f'part{i}.txt').read() + '\\n' for i in (1, 2, 3)))",
        ),
    )


@TASKS.of("scripts")
def fizzbuzz(_random: Random) -> Scene:
    lines = [
        "FizzBuzz" if i % 15 == 0 else "Fizz" if i % 3 == 0 else "Buzz" if i % 5 == 0 else str(i) for i in range(1, 21)
    ]
    source = "for i in range(1, 21):\n    print('Fizz' * (i % 3 == 0) + 'Buzz' * (i % 5 == 0) or i)\n"
    return Scene(
        prompt=(
            "Write a script fizz.py that prints the numbers from 1 to 20, one per line, but Fizz for multiples of 3, Buzz "
            "for multiples of 5 and FizzBuzz for multiples of both. Then run it."
        ),
        check=checks.script_prints("fizz.py", " ".join(lines)),
        oracle=f"open('fizz.py', 'w').write({source!r})",
        wrong=("I wrote fizz.py and ran it.", "\n".join(lines)),
        slips=(f"open('fizz.py', 'w').write({source.replace('21', '20')!r})",),
    )
