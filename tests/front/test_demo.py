"""`pinfold demo`: recorded words, real numbers, a real undo; offline and quick."""

from __future__ import annotations

import csv
import io
import random
import re
import resource
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import command

from pinfold.app import ConfigError
from pinfold.app.diagnostics import demo
from pinfold.app.diagnostics.demo import COLUMNS, TABLE, provide_table
from pinfold.model.scripted import read_lines

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
BUNDLED = Path(demo.__file__).with_name(TABLE)
ROWS = 204
_SEED = 1789
_REGIONS = {"North": 1.2, "South": 0.8, "East": 1.0, "West": 1.5, "Online": 1.9}
_PRODUCTS = {"kettle": 29.9, "toaster": 39.5, "lamp": 54.0, "chair": 89.0, "desk": 249.0, "shelf": 74.5}
_SEASON = (0.8, 0.7, 0.9, 1.0, 1.0, 0.9, 0.8, 0.9, 1.1, 1.2, 1.5, 1.8)
"""By month."""


def sales_csv() -> str:
    """The sales of a made-up shop, by a seeded generator: `sales.csv` is what it makes."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows())
    return written.getvalue()


def _rows() -> Iterator[tuple[str, str, str, int, str, str]]:
    chance = random.Random(_SEED)
    first = date(2025, 1, 1)
    for day in sorted(chance.randrange(365) for _ in range(ROWS)):
        at = first + timedelta(days=day)
        region = chance.choices(list(_REGIONS), list(_REGIONS.values()))[0]
        product = chance.choices(list(_PRODUCTS), [6, 5, 4, 3, 1, 3])[0]
        growth = 1 + day / 365 * 0.4
        units = max(1, round(chance.gauss(6, 2.5) * _SEASON[at.month - 1] * growth))
        price = _PRODUCTS[product] * chance.choice((1, 1, 1, 1.05, 0.95))
        discount = chance.choices((0, 0.05, 0.1, 0.2), (12, 4, 3, 1))[0]
        yield at.isoformat(), region, product, units, f"{price:.2f}", f"{discount:g}"


def regions_of(table: Path) -> dict[str, float]:
    regions: defaultdict[str, float] = defaultdict(float)
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            revenue = int(row["units"]) * float(row["price"]) * (1 - float(row["discount"]))
            regions[row["region"]] += revenue
    return dict(regions)


def processor_s() -> float:
    """Of all that has ended, which a busy machine does not use up."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_its_numbers_are_those_of_the_table_and_undo_brings_the_table_back_without_any_network(
    tmp_path: Path, pinfold: Any
) -> None:
    folder = tmp_path / "demo"
    shown: list[str] = []
    for discount in (None, "0.9"):
        if discount:  # somebody edits the table between two demos
            table = folder / TABLE
            lines = table.read_text(encoding="utf-8").splitlines()
            edited = [lines[0], *(line.rpartition(",")[0] + f",{discount}" for line in lines[1:])]
            table.write_text("\n".join(edited) + "\n", encoding="utf-8")
        before = (folder / TABLE).read_bytes() if folder.exists() else BUNDLED.read_bytes()
        began = processor_s()
        done = subprocess.run(
            ["unshare", "-rn", *command("demo", "--workspace", str(folder))],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert processor_s() - began < 30
        assert (folder / TABLE).read_bytes() == before
        regions = regions_of(folder / TABLE)
        best = max(regions, key=lambda region: regions[region])
        total = sum(regions.values())
        assert f"sales brought {total:,.0f} in all. {best} sold the most: {regions[best]:,.0f}." in done.stdout
        assert "\x1b" not in done.stdout
        shown.append(done.stdout)
    assert "RECORDED" in shown[0]
    digests = re.findall(r"sales\.csv (?:before|now) +sha256 (\w+)", shown[0])
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]
    assert "204 rows of 6 columns" in shown[0]
    assert "undid cell 3: variables and workspace files are as after cell 2." in " ".join(shown[0].split())
    assert shown[0].count("you> ") == 7
    # What is said to live on does, and only the branch that was kept.
    (session,) = re.findall(r"pinfold exec -s (\w+)", shown[0])
    assert pinfold("exec", "-s", session, "-c", "len(sales)").out == "204\n"
    assert len(pinfold("sessions").out.splitlines()) == 2


def test_ctrl_c_leaves_cleanly(start: Any) -> None:
    process = start("demo")
    for line in process.stdout:
        if line.startswith("  | "):
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert (process.returncode, said.strip()) == (130, "")


def test_the_bundled_table_is_what_its_generator_makes() -> None:
    assert BUNDLED.read_text(encoding="utf-8") == sales_csv()
    replies = [read_lines(path) for path in BUNDLED.parent.glob("recorded/*.jsonl")]
    code = [str(call.args["code"]) for lines in replies for kept in lines for call in kept.calls]
    assert len(code) == 5
    assert max(len(line) for one in code for line in one.splitlines()) <= 75  # as it stands on 80 columns
    assert "CC0-1.0" in BUNDLED.with_name("LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("date,region\n", "no column 'product'"),
        (",".join(COLUMNS) + "\n", "has no rows"),
        (",".join(COLUMNS) + "\n2025-01-01,North,lamp,many,1,0\n", "line 2: invalid literal for int()"),
        (",".join(COLUMNS) + "\n2025-01-01,North,lamp\n", "line 2"),
    ],
)
def test_a_table_the_recorded_model_cannot_use_is_refused_before(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / TABLE).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(words)):
        provide_table(tmp_path)
