"""Questions about data in files. Held out: not to be read by whoever tunes an agent."""

from __future__ import annotations

import json
from datetime import date, timedelta
from random import Random

from bench.task_suite import checks
from bench.task_suite.task import Scene, Tasks, program, table

TASKS = Tasks("test")
PEOPLE = ("Mona", "Nils", "Olga", "Pavel", "Quinn", "Rosa", "Sven", "Tara", "Umar", "Vera", "Wim", "Yara")


@TASKS.of("csv")
def mean_of_a_group(random: Random) -> Scene:
    kinds = ("espresso", "latte", "tea", "cocoa")
    rows = [(i, random.choice(kinds), random.randint(180, 620) / 100) for i in range(1, 101)]
    tea = [r[2] for r in rows if r[1] == "tea"]
    mean = sum(tea) / len(tea)
    return Scene(
        prompt="What is the average amount of the tea orders in cafe.csv? Round it to 2 decimals.",
        files={"cafe.csv": table("order,drink,amount", [*rows])},
        check=checks.number(round(mean, 2), within="0.0051"),
        oracle=program("""
            import csv
            tea = [float(r['amount']) for r in csv.DictReader(open('cafe.csv')) if r['drink'] == 'tea']
            print(f'The average tea order is {sum(tea) / len(tea):.2f}.')
        """),
        wrong=(f"{sum(tea):.2f}", f"{sum(r[2] for r in rows) / 100:.2f}", f"{mean + 0.02:.2f}"),
    )


@TASKS.of("csv")
def group_with_the_smallest_sum(random: Random) -> Scene:
    teams = ("Falcons", "Otters", "Badgers", "Lynxes", "Herons")
    rows = [(week, team, random.randint(0, 30)) for week in range(1, 16) for team in teams]
    points = {team: sum(r[2] for r in rows if r[1] == team) for team in teams}
    ranked = sorted(teams, key=lambda team: points[team])
    assert points[ranked[0]] < points[ranked[1]]
    return Scene(
        prompt="league.csv lists the points of each team per week. Which team has the fewest points overall?",
        files={"league.csv": table("week,team,points", [*rows])},
        check=checks.name(ranked[0], teams),
        oracle=program("""
            import csv, collections
            total = collections.Counter()
            for r in csv.DictReader(open('league.csv')):
                total[r['team']] += int(r['points'])
            print(f'The {min(total, key=total.get)} have the fewest points.')
        """),
        wrong=(f"The {ranked[-1]}.", f"The {ranked[1]}.", ", ".join(f"{t}: {points[t]}" for t in teams)),
    )


@TASKS.of("csv")
def best_student_over_two_tables(random: Random) -> Scene:
    students = list(enumerate(PEOPLE[:8], 301))
    grades = [(number, random.randint(40, 100)) for number, _ in students for _ in range(6)]
    random.shuffle(grades)
    mean = {who: sum(g for s, g in grades if s == number) / 6 for number, who in students}
    ranked = sorted(mean, key=lambda who: -mean[who])
    assert mean[ranked[0]] > mean[ranked[1]]
    return Scene(
        prompt=(
            "students.csv has the names of the students and grades.csv their grades by student_id. Which student has "
            "the highest average grade?"
        ),
        files={
            "students.csv": table("student_id,name", [*students]),
            "grades.csv": table("student_id,grade", [*grades]),
        },
        check=checks.name(ranked[0], PEOPLE[:8]),
        oracle=program("""
            import csv, collections
            name = {r['student_id']: r['name'] for r in csv.DictReader(open('students.csv'))}
            grades = collections.defaultdict(list)
            for r in csv.DictReader(open('grades.csv')):
                grades[name[r['student_id']]].append(int(r['grade']))
            print(max(grades, key=lambda who: sum(grades[who]) / len(grades[who])))
        """),
        wrong=(ranked[1], f"Student {301 + PEOPLE.index(ranked[0])}", " ".join(PEOPLE[:8])),
    )


@TASKS.of("csv")
def cheap_and_large(random: Random) -> Scene:
    rows = [(f"H{i}", random.randint(1, 6), random.randint(120, 600) * 1000) for i in range(1, 91)]
    count = sum(r[1] >= 3 and r[2] < 300_000 for r in rows)
    return Scene(
        prompt="How many houses in houses.csv have at least 3 bedrooms and cost less than 300000?",
        files={"houses.csv": table("house,bedrooms,price", [*rows])},
        check=checks.number(count),
        oracle=program("""
            import csv
            rows = csv.DictReader(open('houses.csv'))
            print(sum(int(r['bedrooms']) >= 3 and int(r['price']) < 300000 for r in rows), 'houses')
        """),
        wrong=(
            str(sum(r[1] > 3 and r[2] < 300_000 for r in rows)),
            str(sum(r[2] < 300_000 for r in rows)),
            f"There are {sum(r[1] >= 3 for r in rows)} houses.",
        ),
    )


@TASKS.of("csv")
def total_of_a_year(random: Random) -> Scene:
    rows = [(date(2021, 1, 1) + timedelta(days=random.randrange(1400)), random.randint(5, 90)) for _ in range(150)]
    total = sum(r[1] for r in rows if r[0].year == 2023)
    return Scene(
        prompt="donations.csv has a date and an amount per donation. How much was donated in 2023 altogether?",
        files={"donations.csv": table("date,amount", [*rows])},
        check=checks.number(total),
        oracle=program("""
            import csv
            rows = csv.DictReader(open('donations.csv'))
            print(sum(int(r['amount']) for r in rows if r['date'].startswith('2023')), 'were donated in 2023.')
        """),
        wrong=(
            str(sum(r[1] for r in rows)),
            str(sum(r[0].year == 2023 for r in rows)),
            str(sum(r[1] for r in rows if r[0].year == 2022)),
        ),
    )


@TASKS.of("csv")
def rows_without_an_email(random: Random) -> Scene:
    rows = [
        (who + str(i), "" if random.random() < 0.22 else f"{who.lower()}{i}@example.net", random.choice(("", "0151")))
        for i, who in enumerate(random.choices(PEOPLE, k=70))
    ]
    count = sum(not r[1] for r in rows)
    return Scene(
        prompt="How many members in members.csv have no email address?",
        files={"members.csv": table("name,email,phone", [*rows])},
        check=checks.number(count),
        oracle="import csv; print(sum(not r['email'] for r in csv.DictReader(open('members.csv'))))",
        wrong=(f"{70 - count} members", str(sum(not r[2] for r in rows)), "All members have an email address."),
    )


@TASKS.of("json")
def staff_of_a_company(random: Random) -> Scene:
    places = ("Lisbon", "Tallinn", "Dublin", "Krakow")
    teams = {place: {team: random.randint(3, 25) for team in ("it", "hr", "ops")} for place in places}
    staff = {place: sum(teams[place].values()) for place in places}
    offices = {place: {"floor": random.randint(1, 9), "teams": teams[place]} for place in places}
    company = {"name": "Brightwater", "founded": 1998, "offices": offices}
    return Scene(
        prompt="How many people work in the Dublin office according to company.json? Count all of its teams.",
        files={"company.json": json.dumps(company, indent=2)},
        check=checks.number(staff["Dublin"]),
        oracle=program("""
            import json
            print(sum(json.load(open('company.json'))['offices']['Dublin']['teams'].values()), 'people')
        """),
        wrong=(str(sum(staff.values())), str(staff["Lisbon"]), "3 teams work in the Dublin office."),
    )


@TASKS.of("json")
def the_oldest_person(random: Random) -> Scene:
    born = random.sample(range(1950, 2004), len(PEOPLE))
    people = [{"name": who, "born": year, "town": "Ulm"} for who, year in zip(PEOPLE, born, strict=True)]
    ranked = [who for _, who in sorted(zip(born, PEOPLE, strict=True))]
    return Scene(
        prompt="Who is the oldest person in people.json?",
        files={"people.json": json.dumps(people)},
        check=checks.name(ranked[0], PEOPLE),
        oracle="import json; print(min(json.load(open('people.json')), key=lambda p: p['born']))",
        wrong=(f"{ranked[-1]} is the oldest person.", ranked[1], ", ".join(ranked)),
    )


@TASKS.of("json")
def books_with_a_tag(random: Random) -> Scene:
    tags = ("history", "poetry", "travel", "science", "cooking")
    tagged = [random.sample(tags, random.randint(1, 3)) for _ in range(48)]
    books = [{"title": f"Book {i}", "tags": own, "pages": random.randint(90, 600)} for i, own in enumerate(tagged, 1)]
    count = sum("history" in own for own in tagged)
    return Scene(
        prompt='How many books in library.json have the tag "history"?',
        files={"library.json": json.dumps({"books": books}, indent=1)},
        check=checks.number(count),
        oracle="import json; print(sum('history' in b['tags'] for b in json.load(open('library.json'))['books']), 'books')",
        wrong=(str(tagged.count(["history"])), str(len(books)), str(count + 1)),
    )


@TASKS.of("logs")
def failed_logins_of_one_user(random: Random) -> Scene:
    users = ("root", "backup", "deploy", "web")
    seen = [(random.choice(users), random.random() < 0.4) for _ in range(140)]
    lines = [
        f"Mar 12 0{i // 30 % 10}:{i % 60:02}:17 gate sshd[{900 + i}]: {'Failed' if bad else 'Accepted'} password for {who} port 22\n"
        for i, (who, bad) in enumerate(seen)
    ]
    count = seen.count(("deploy", True))
    return Scene(
        prompt='auth.log has lines such as "Failed password for web". How many failed logins were there for deploy?',
        files={"auth.log": "".join(lines)},
        check=checks.number(count),
        oracle="print(open('auth.log').read().count('Failed password for deploy'), 'failed logins for deploy')",
        wrong=(str(sum(bad for _, bad in seen)), str(seen.count(("deploy", False))), str(seen.count(("web", True)))),
    )


@TASKS.of("logs")
def slowest_path(random: Random) -> Scene:
    paths = ("/home", "/search", "/cart", "/login", "/help", "/about")
    times = random.sample(range(12, 2400), 130)
    rows = [(random.choice(paths), ms) for ms in times]
    ranked = sorted(rows, key=lambda row: -row[1])
    slowest = ranked[0][0]
    second = next(path for path, _ in ranked if path != slowest)
    lines = [f"12:{i // 60:02}:{i % 60:02} GET {path} 200 {ms}ms\n" for i, (path, ms) in enumerate(rows)]
    return Scene(
        prompt="Each line of requests.log ends with how long the request took. Which path had the slowest single request?",
        files={"requests.log": "".join(lines)},
        check=checks.name(slowest, paths),
        oracle=program("""
            lines = [line.split() for line in open('requests.log')]
            slowest = max(lines, key=lambda parts: int(parts[4][:-2]))
            print(f'{slowest[2]} with {slowest[4]}')
        """),
        wrong=(f"{second} was the slowest.", " ".join(paths), f"{ranked[0][1]} ms"),
    )


@TASKS.of("logs")
def warnings_after_a_time(random: Random) -> Scene:
    at = sorted(random.sample(range(9 * 60, 20 * 60), 130))
    levels = random.choices(("INFO", "WARN", "FATAL"), weights=(5, 3, 1), k=130)
    lines = [f"{t // 60:02}:{t % 60:02} [{level}] worker {t % 7}\n" for t, level in zip(at, levels, strict=True)]
    pairs = list(zip(at, levels, strict=True))
    count = sum(t > 14 * 60 + 30 and level == "WARN" for t, level in pairs)
    assert 14 * 60 + 30 not in at
    return Scene(
        prompt="How many WARN lines are there in worker.log after 14:30?",
        files={"worker.log": "".join(lines)},
        check=checks.number(count),
        oracle="print(sum('[WARN]' in line and line[:5] > '14:30' for line in open('worker.log')), 'lines')",
        wrong=(str(levels.count("WARN")), str(sum(t > 14 * 60 + 30 for t in at)), str(levels.count("WARN") - count)),
    )


@TASKS.of("text")
def lines_that_mention(random: Random) -> Scene:
    words = ["lantern", "harbor", "fog", "sailor", "rope", "gull", "tide", "anchor"]
    lines = [" ".join(random.choices(words, k=5)).capitalize() + "." for _ in range(60)]
    count = sum("anchor" in line.lower() for line in lines)
    times = sum(line.lower().count("anchor") for line in lines)
    assert times != count
    return Scene(
        prompt="How many lines of harbor.txt contain the word anchor, in upper or lower case?",
        files={"harbor.txt": "\n".join(lines) + "\n"},
        check=checks.number(count),
        oracle="print(sum('anchor' in line.lower() for line in open('harbor.txt')))",
        wrong=(f"{times} lines", str(sum("anchor" in line for line in lines)), "60 lines"),
    )


@TASKS.of("text")
def distinct_words(random: Random) -> Scene:
    words = [a + b for a in ("mil", "tor", "ven", "sal", "pre", "gan") for b in ("do", "ra", "ki", "us", "em", "ol")]
    chosen = random.sample(words, 29)
    body = [*chosen, *random.choices(chosen, k=81)]
    random.shuffle(body)
    return Scene(
        prompt="How many different words are in words.txt?",
        files={"words.txt": "\n".join(" ".join(body[i : i + 11]) for i in range(0, 110, 11)) + "\n"},
        check=checks.number(29),
        oracle="print(f\"There are {len(set(open('words.txt').read().split()))} different words.\")",
        wrong=("110", "There are 28 different words.", "36"),
    )


@TASKS.of("text")
def longest_word(random: Random) -> Scene:
    words = ["sea", "mountains", "lighthouse", "wind", "archipelago", "shore", "constellation", "night", "valley"]
    body = [random.choice(words[:6] + words[7:]) for _ in range(80)]
    body.insert(37, "constellation")
    return Scene(
        prompt="What is the longest word in essay.txt?",
        files={"essay.txt": "\n".join(" ".join(body[i : i + 9]) for i in range(0, 81, 9)) + "\n"},
        check=checks.name("constellation", words),
        oracle="print('The longest word is', repr(max(open('essay.txt').read().split(), key=len)))",
        wrong=("archipelago", "lighthouse, archipelago, constellation", "It has 13 letters."),
    )


@TASKS.of("several")
def which_letter_mentions(random: Random) -> Scene:
    topics = ("delivery", "invoice", "opening hours", "parking", "refund", "warranty", "newsletter")
    names = [f"letter_{c}.txt" for c in "abcdefg"]
    order = random.sample(topics, len(topics))
    files = {
        one: f"Dear team,\n\nI have a question about the {topic}.\n\nRegards,\n{random.choice(PEOPLE)}\n"
        for one, topic in zip(names, order, strict=True)
    }
    right = names[order.index("refund")]
    other = names[order.index("warranty")]
    return Scene(
        prompt="One of the letters in this folder asks about a refund. Which file is it?",
        files=files,
        check=checks.name(right, names),
        oracle=program("""
            import glob
            print([name for name in glob.glob('letter_*.txt') if 'refund' in open(name).read()])
        """),
        wrong=(f"It is {other}.", " ".join(names), "The letter asks about a refund."),
    )
