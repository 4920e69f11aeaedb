"""Every example, run as its README says, in the real sandbox. What it says is worked out here a second time, from the data."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import math
import os
import re
import runpy
import shutil
import signal
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.fork_server import forked

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

EXAMPLES = Path(__file__).parents[2] / "examples"
OTHER_SEED = 99
"""Not the one the committed data was made with: an answer that was written down beforehand would be wrong."""

Do = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        place = tmp_path / name
        shutil.copytree(EXAMPLES / name, place, ignore=shutil.ignore_patterns("work", "__pycache__"))
        return place

    return copy


@pytest.fixture
def do() -> Do:
    def run(program: Path, *, given: str = "", python: Path | str = "") -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(program)] if program.suffix == ".py" else [str(program)]
        more = {"PINFOLD": " ".join([sys.executable, *forked("-m", "pinfold")])}
        if python:
            more["PINFOLD_SANDBOX_PYTHON"] = str(python)
        return subprocess.run(
            argv, input=given, env={**os.environ, **more}, capture_output=True, text=True, check=False, timeout=200
        )

    return run


def made(place: Path, name: str, *args: Any) -> Any:
    """What a function of an example's make_data.py gives."""
    return runpy.run_path(str(place / "make_data.py"))[name](*args)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def coloured(data_python: Path, picture: Path, colour: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Every pixel of a colour, as (x, y)."""
    look = (
        "import json, sys; import numpy as np; from PIL import Image\n"
        "image = np.asarray(Image.open(sys.argv[1]).convert('RGB')).astype(int)\n"
        "near = (abs(image - json.loads(sys.argv[2])) < 8).all(axis=2)\n"
        "print(json.dumps(np.argwhere(near)[:, ::-1].tolist()))"
    )
    done = subprocess.run(
        [str(data_python), "-c", look, str(picture), json.dumps(colour)], capture_output=True, check=True, timeout=200
    )
    return [(x, y) for x, y in json.loads(done.stdout)]


def runs_of(numbers: set[int]) -> list[list[int]]:
    """Neighbouring numbers together."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def fitted(rows: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    """The plane z = a + b*x + c*y nearest to the points, by the normal equations."""
    x, y, z = (statistics.fmean(row[i] for row in rows) for i in range(3))
    xx = sum((row[0] - x) ** 2 for row in rows)
    yy = sum((row[1] - y) ** 2 for row in rows)
    xy = sum((row[0] - x) * (row[1] - y) for row in rows)
    xz = sum((row[0] - x) * (row[2] - z) for row in rows)
    yz = sum((row[1] - y) * (row[2] - z) for row in rows)
    b = (xz * yy - yz * xy) / (xx * yy - xy**2)
    c = (yz * xx - xz * xy) / (xx * yy - xy**2)
    return z - b * x - c * y, b, c


@pytest.mark.parametrize(
    ("name", "made_by", "file"),
    [
        ("car-prices", "cars", "cars.csv"),
        ("sales-report", "sales", "sales.csv"),
        ("weather", "cities", "cities.json"),
        ("base64-image", "picture", "picture.txt"),
    ],
)
def test_the_committed_data_is_what_its_script_makes(name: str, made_by: str, file: str) -> None:
    rows: Any = made(EXAMPLES / name, made_by)
    kept = EXAMPLES / name / file
    if file == "cities.json":
        assert json.loads(kept.read_text(encoding="utf-8")) == rows
        return
    if file == "picture.txt":
        assert kept.read_text(encoding="utf-8") == f"{rows}\n"
        return
    lines = [row.values() if file == "cars.csv" else row for row in rows]
    assert [tuple(row.values()) for row in rows_of(kept)] == [tuple(map(str, line)) for line in lines]


def test_the_dialogue_about_cars_gives_what_the_table_gives(
    example: Callable[[str], Path], do: Do, data_python: Path, pinfold: Any
) -> None:
    place = example("car-prices")
    write_rows(place / "cars.csv", made(place, "cars", OTHER_SEED))
    done = do(place / "run.py", python=data_python)
    assert done.returncode == 0, done.stderr
    answers = re.findall(r"^Agent: (.*)$", done.stdout, re.MULTILINE)
    rows = rows_of(place / "cars.csv")
    prices = [int(row["price"]) for row in rows]
    years = [int(row["year"]) for row in rows]
    assert answers[0] == f"There is cars.csv ({(place / 'cars.csv').stat().st_size:,} bytes)."
    assert answers[1] == (
        f"{len(rows):,} cars of {len({row['make'] for row in rows})} makes, {min(years)} to {max(years)}. "
        f"They cost {statistics.fmean(prices):,.0f} on average, half of them less than {statistics.median(prices):,.0f}."
    )
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        points[row["make"]].append((max(years) - int(row["year"]), math.log(int(row["price"]))))
    slopes = {make: statistics.linear_regression(*zip(*of, strict=True)).slope for make, of in points.items()}
    loss = sorted((1 - math.exp(slope), make) for make, slope in slopes.items())
    best = loss[0][1]
    told = ", ".join(f"{make} {share:.1%}" for share, make in loss)
    assert answers[2] == f"{best} keeps its value best. What each loses in a year: {told}."
    diesels = [row for row in rows if (row["make"], row["fuel"]) == (best, "diesel")]
    a, b, c = fitted([(max(years) - int(row["year"]), int(row["km"]), math.log(int(row["price"]))) for row in diesels])
    guess = math.exp(a + b * 5 + c * 70_000)
    assert answers[3] == f"About {guess:,.0f}, going by {len(diesels)} diesels of {best}."
    # The table stayed where it was: no row of it is in the log, and less than it was sent.
    log = pinfold("export", "last", "--to", "jsonl").out
    assert "yearly_loss" in log
    assert not [row for row in rows if ",".join(row.values()) in log]
    sent, size = map(int, re.findall(r"\d+", done.stdout.splitlines()[-1].replace(",", "")))
    assert 0 < sent < size


def test_the_review_finds_five_bugs_and_leaves_none(example: Callable[[str], Path], do: Do) -> None:
    place = example("code-review")
    done = do(place / "run.sh")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "5 bugs: in average, last, parse_price, is_leap, add_item. After the changes 0 are left"
    )

    def wrong(path: Path) -> set[str]:
        code = runpy.run_path(str(path))
        found: set[str] = set()

        def check(name: str, wanted: object, *args: Any) -> None:
            try:
                right = code[name](*args) == wanted
            except (ArithmeticError, ValueError):
                right = False
            if not right:
                found.add(name)

        check("average", 0, [])
        check("average", 2.5, [1, 4])
        check("add_item", ["a"], "a")
        check("add_item", ["b"], "b")
        check("add_item", ["c", "d"], "d", ["c"])
        for count in range(5):
            check("last", [1, 2, 3][max(0, 3 - count) :], [1, 2, 3], count)
        for text, value in (("7", 7), ("12.50", 12.5), ("1,250.00", 1250), ("1,000,000", 1_000_000)):
            check("parse_price", value, text)
        for year, leap in ((2023, False), (2024, True), (1900, False), (2100, False), (2000, True)):
            check("is_leap", leap, year)
        check("slug", "hello-world", "Hello,  World!")
        return found

    assert wrong(place / "main.py") == {"average", "add_item", "last", "parse_price", "is_leap"}
    assert wrong(place / "work" / "main.py") == set()
    review = (place / "work" / "review.md").read_text(encoding="utf-8")
    assert review.partition("```diff")[0].count("\n- ") == 5
    assert "-    return year % 4 == 0\n+    return year % 4 == 0 and" in review


@pytest.mark.slow
def test_the_sales_report_has_the_sums_of_the_file_and_draws_them(
    example: Callable[[str], Path], do: Do, data_python: Path
) -> None:
    place = example("sales-report")
    names = ("date", "region", "product", "units", "price")
    made_rows = made(place, "sales", OTHER_SEED)
    write_rows(place / "sales.csv", [dict(zip(names, row, strict=True)) for row in made_rows])
    done = do(place / "run.sh", python=data_python)
    assert done.returncode == 0, done.stderr
    regions, months, products = Counter[str](), Counter[str](), Counter[str]()
    for row in rows_of(place / "sales.csv"):
        cents = int(row["units"]) * round(float(row["price"]) * 100)
        regions[row["region"]] += cents
        months[row["date"][:7]] += cents
        products[row["product"]] += cents
    total = sum(regions.values())
    report = (place / "work" / "report.md").read_text(encoding="utf-8")
    ((best, most),) = months.most_common(1)
    assert f"{len(made_rows)} orders, {total / 100:,.2f} in all." in report
    assert f"The best month was {best} with {most / 100:,.2f}." in report
    for region, cents in regions.items():
        assert f"| {region} | {cents / 100:,.2f} | {cents / total:.1%} |" in report
    assert [line.split(" | ")[0][2:] for line in report.splitlines()[-len(products) :]] == [
        product for product, _ in products.most_common()
    ]
    # A bar for each region, the longest on top, as long as its sum says.
    blue = coloured(data_python, place / "work" / "regions.png", (0x1F, 0x77, 0xB4))
    bars = [max(Counter(y for _, y in blue if y in band).values()) for band in runs_of({y for _, y in blue})]
    sums = [cents for _, cents in regions.most_common()]
    assert len(bars) == len(sums)
    assert [bar / bars[0] for bar in bars] == pytest.approx([one / sums[0] for one in sums], abs=0.01)


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_is_deleted_without_a_yes_and_everything_can_come_back(
    example: Callable[[str], Path], do: Do, tmp_path: Path
) -> None:
    place = example("disk-cleanup")
    made(place, "make", tmp_path / "before")
    before = tree(tmp_path / "before")
    ages = runpy.run_path(str(place / "make_data.py"))["AGES"]
    old = {f"logs/{one}/{one}.log.{ages.index(age)}" for one in ("web", "mail", "jobs") for age in ages if age > 30}
    assert 0 < len(old) < len(before)

    done = do(place / "run.py", given="y\nn\nn\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("allow this? [y/N]") == 2
    assert "Deletes 6 files, 180,000 bytes: cache" in done.stdout
    assert tree(place / "work") == {path: sum_ for path, sum_ in before.items() if path not in old}
    freed = sum((tmp_path / "before" / path).stat().st_size for path in old)
    assert f"logs: {len(old)} files deleted, {freed:,} bytes freed; cache: left as it is." in done.stdout

    done = do(place / "run.py", given="n\ny\ny\n")
    assert "logs: left as it is; cache: 6 files deleted, 180,000 bytes freed." in done.stdout
    assert "This was not run: the user said no" in done.stdout
    assert tree(place / "work") == before


def test_five_cities_take_ten_calls_of_tools_and_one_of_the_model(example: Callable[[str], Path], do: Do) -> None:
    place = example("weather")
    cities = made(place, "cities", OTHER_SEED)
    (place / "cities.json").write_text(json.dumps(cities), encoding="utf-8")
    done = do(place / "run.py")
    assert done.returncode == 0, done.stderr
    asked = ("Toronto", "Montreal", "New York", "Paris", "San Francisco")
    assert done.stdout.splitlines()[-7:] == [
        *("{}: {sky}, {celsius} °C, traffic {delay_min} min".format(city, **cities[city]) for city in asked),
        f"Slowest on the road: {max(asked, key=lambda city: cities[city]['delay_min'])}.",
        "10 calls of tools, 1 of the model",
    ]


def test_questions_over_http_are_answered_by_one_session(
    example: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = example("fastapi")
    (place / "work").mkdir()
    (place / "work" / "notes.txt").write_text("sheep goats and a donkey", encoding="utf-8")
    monkeypatch.setenv("PINFOLD_SANDBOX_PROVIDER", "namespaces")
    argv = [sys.executable, "-m", "uvicorn", "--app-dir", str(place), "app:app", "--port", "0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            lines = iter(server.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))

            def ask(prompt: str) -> dict[str, Any]:
                body = json.dumps({"prompt": prompt}).encode()
                request = Request(f"{url}/ask", body, {"Content-Type": "application/json"})
                with urlopen(request, timeout=50) as reply:
                    return json.load(reply)

            first, second = ask("Count the words."), ask("And the longest?")
        finally:
            server.terminate()
    assert (first["text"], second["text"]) == ("notes.txt has 5 words.", "The longest is 'donkey'.")
    assert first["session"] == second["session"]
    assert server.returncode in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_a_picture_comes_out_mirrored_and_decoded_text_is_not_run(
    example: Callable[[str], Path], do: Do, data_python: Path
) -> None:
    place = example("base64-image")
    (place / "picture.txt").write_text(made(place, "picture", OTHER_SEED), encoding="utf-8")
    done = do(place / "run.py", python=data_python)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Mirrored: 24 x 24 pixels.",
        "Written: work/mirrored.html",
        "The guard did not let it run.",
    ]
    page = (place / "work" / "mirrored.html").read_text(encoding="utf-8")
    shown = place / "mirrored.png"
    shown.write_bytes(base64.b64decode(re.findall(r"base64,([^\"]+)", page)[0]))
    look = "import sys, json; from PIL import Image; print(json.dumps(list(Image.open(sys.argv[1]).convert('RGB').tobytes())))"
    read = subprocess.run([data_python, "-c", look, shown], capture_output=True, check=True, timeout=200)
    wanted = [value for row in made(place, "pixels", OTHER_SEED) for pixel in row[::-1] for value in pixel]
    assert json.loads(read.stdout) == wanted


@pytest.mark.slow
def test_quicksort_sorts_and_its_drawing_shows_what_was_counted(
    example: Callable[[str], Path], do: Do, data_python: Path, pinfold: Any
) -> None:
    place = example("quicksort")
    done = do(place / "run.sh", python=data_python)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("308 cases, 0 wrong. 4096 items took ")
    sort = runpy.run_path(str(place / "work" / "quicksort.py"))["quicksort"]
    for items in ([], [5], [1, 1, 1], list(range(2000)), list(range(2000, 0, -1)), [7, 3] * 400, list("pinfold")):
        assert sort(list(items)) == sorted(items)
    counted = {int(row["size"]): float(row["comparisons"]) for row in rows_of(place / "work" / "quicksort.csv")}
    assert list(counted) == [2**power for power in range(5, 13)]
    # No sort by comparing does with less than about log2(n!), and quicksort needs not twice n log2 n.
    assert all(math.lgamma(n + 1) / math.log(2) < count < 2.5 * n * math.log2(n) for n, count in counted.items())
    # The dots on the picture stand where these numbers say, on logarithmic axes.
    red = coloured(data_python, place / "work" / "quicksort.png", (0xD6, 0x27, 0x28))
    dots = [
        (statistics.fmean(band), statistics.fmean(y for x, y in red if x in band))
        for band in runs_of({x for x, _ in red})
    ]
    assert scaled([x for x, _ in dots]) == pytest.approx(scaled([math.log(n) for n in counted]), abs=0.01)
    heights = [-y for _, y in dots]
    assert scaled(heights) == pytest.approx(scaled([math.log(count) for count in counted.values()]), abs=0.01)
    log = map(json.loads, pinfold("export", "last", "--to", "jsonl").out.splitlines())
    assert any("image/png" in shown["mime"] for event in log for shown in event.get("displays", ()))


def scaled(numbers: list[float]) -> list[float]:
    """From 0 for the first to 1 for the last."""
    return [(number - numbers[0]) / (numbers[-1] - numbers[0]) for number in numbers]


@pytest.mark.parametrize(("name", "program"), [("sales-report", "run.sh"), ("car-prices", "run.py")])
def test_without_the_data_environment_one_line_says_what_to_do(
    example: Callable[[str], Path], do: Do, name: str, program: str
) -> None:
    done = do(example(name) / program, python=sys.executable)
    assert done.returncode == 1
    told = done.stdout if program == "run.sh" else done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(
        r"(matplotlib|pandas) is not here: `\./pinfold env build` makes the data environment, once\.?\n?", told
    )


def test_a_function_of_one_session_is_a_tool_of_the_next(example: Callable[[str], Path], do: Do) -> None:
    place = example("promoted-skill")
    done = do(place / "run.py")
    assert done.returncode == 0, done.stderr
    kept = (place / "work/config/pinfold/skills/calculate-rsi/scripts/calculate_rsi.py").read_text(encoding="utf-8")
    assert kept.startswith("def calculate_rsi(prices: list[float], period: int = 14) -> list[float]:")
    assert kept in done.stdout  # what is kept is what was shown
    assert "calculate_rsi(prices=[100, 102, 101, 103, 105], period=14) = [85.71428571428571]  (cell 2)" in done.stdout
    prices, names = [44.3, 44.1, 44.2, 43.6, 44.3, 44.8, 45.1], dict[str, Any]()
    exec(kept, names)
    assert done.stdout.splitlines()[-1] == f"Agent: RSI: {names['calculate_rsi'](prices, 6)[0]:.1f}"
