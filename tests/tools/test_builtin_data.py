"""data_view in a real session with the data packages: the same figures as pandas, whatever the table is like."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from pinfold.sandbox import Limits, Session, open_session
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.tools import Registry, ToolFailed
from pinfold.tools.builtin.files import file_tools
from pinfold.tools.builtin.programs import ask, source

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
MAKE = """
import numpy, pandas
random = numpy.random.default_rng({seed})
count = {count}
made = pandas.DataFrame({{
    "whole": random.integers(-1000, 1000, count),
    "large": random.integers(-2**60, 2**60, count),
    "broken": random.normal(size=count).round(6),
    "skewed": numpy.where(random.random(count) < 0.9, 7.5, random.lognormal(3, 2, count)),
    "holes": pandas.Series(random.random(count)).where(random.random(count) > 0.3),
    "nothing": [None] * count,
    "few": random.choice(["north", "south", "east, or west"], count),
    "many": [f"customer {{number}}" for number in random.integers(0, count, count)],
    "rare": [f"order {{number}}" for number in random.integers(0, 30 * count, count)],
    "unique": [f"{{number:08x}}-x" for number in random.permutation(count)],
    "gaps": pandas.Series(random.choice(["a", "b"], count)).where(random.random(count) > 0.5),
    "day": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(random.integers(0, 900, count), "D"),
    "yes": random.random(count) < 0.3,
}})
made.to_csv("made.csv", index=False)
"""
DESCRIBE = """
import json, pandas
told = pandas.read_csv("made.csv").describe(include="all")
print(json.dumps({name: {key: None if pandas.isna(value) else getattr(value, "item", lambda: value)()
                         for key, value in told[name].items()} for name in told}, default=str))
"""
SHEETS = """
import openpyxl, datetime
book = openpyxl.Workbook()
sheet = book.active
sheet.title = "Sales"
for row in (["code", "sum", "day"], ["007", 1.5, datetime.date(2024, 1, 2)], ["x", 2, datetime.date(2024, 1, 3)]):
    sheet.append(row)
book.create_sheet("Other").append(["only"])
book["Other"].append([3])
book.save("book.xlsx")
"""


@pytest.fixture
async def session(workspace: Path, data_python: Path) -> AsyncGenerator[Session]:
    async with open_session(workspace, Namespaces(data_python), limits=Limits(cell_s=60)) as session:
        yield session


@pytest.fixture
def view(session: Session) -> Callable[..., Any]:
    registry = Registry(file_tools(session))

    async def call(path: str, view: str = "peek", rows: int = 5) -> str:
        return (await registry.call("data_view", {"path": path, "view": view, "rows": rows})).text

    return call


@pytest.mark.parametrize(("seed", "count"), [(1, 5), (2, 1000), pytest.param(3, 130_000, marks=pytest.mark.slow)])
async def test_statistics_are_those_of_pandas(session: Session, seed: int, count: int) -> None:
    assert (await session.run(MAKE.format(seed=seed, count=count))).error is None
    expected = json.loads((await session.run(DESCRIBE)).stdout)
    reply = await ask(session, "tables", "view", asked("made.csv", "stats"), timeout_s=60)
    figures = {one["column"]: one for one in reply.get("figures")}
    assert list(figures) == list(expected)
    compared = 0
    for name, told in expected.items():
        for key in ("count", "unique", "freq", "mean", "std", "min", "25%", "50%", "75%", "max"):
            if told.get(key) is not None:
                assert figures[name][key] == pytest.approx(told[key], rel=1e-9), (name, key)
                compared += 1
    # Exact, not only near.
    for name in ("whole", "broken", "skewed", "holes"):
        assert [figures[name][key] for key in ("25%", "50%", "75%")] == [
            expected[name][key] for key in ("25%", "50%", "75%")
        ]
    assert compared > 55
    assert figures["few"]["top"] == expected["few"]["top"]
    assert figures["unique"]["unique"] == count
    assert figures["nothing"]["count"] == 0
    assert figures["day"]["min"] >= "2020-01-01"


async def test_figures_are_worked_out_without_pandas(session: Session, workspace: Path) -> None:
    (workspace / "a.csv").write_text("a,b,c,d\n1,x,2020-01-02 03:04:05,true\n")
    program = source("tables") + "print('pandas' in sys.modules, file=sys.stderr)"
    request = json.dumps({"do": "view", "with": asked("a.csv", "stats")}).encode()
    ran = await session.command(["python3", "-I", "-c", program], timeout_s=60, stdin=request)
    assert json.loads(ran.stdout)["figures"]
    assert ran.stderr.split() == [b"False"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def asked(path: str, view: str, known: dict[str, int] | None = None) -> dict[str, Any]:
    return {"path": path, "view": view, "rows": 5, "known": known or {}}


async def test_a_table_is_looked_at_from_every_side(view: Callable[..., Any], workspace: Path) -> None:
    (workspace / "a.csv").write_text("name,n,when\nanna,1,2024-01-01\nbob,,2024-01-02\n")
    assert await view("a.csv") == "name  n     when\nanna  1     2024-01-01\nbob   NULL  2024-01-02"
    assert await view("a.csv", rows=1) == "name  n  when\nanna  1  2024-01-01"
    assert await view("a.csv", "shape") == "2 rows, 3 columns, 46 bytes (46 bytes)"
    assert await view("a.csv", "columns") == (
        "column  type     nulls  examples\n"
        "name    VARCHAR  0      anna, bob\n"
        "n       BIGINT   1      1\n"
        "when    DATE     0      2024-01-01, 2024-01-02\n"
        "[2 rows, 3 columns]"
    )


ODD: dict[str, tuple[bytes, str]] = {
    "ragged": (
        b"a,b,c\n1,2,3\n4,5\n6,7,8\n",
        "a  b  c\n1  2  3\n4  5  NULL\n6  7  8\n[rows with too few fields are filled up with nulls]",
    ),
    "bom": ("\ufeffname,n\nx,1\n".encode(), "name  n\nx     1"),
    "semicolons": (b"name;price\nx;1,5\ny;2,25\n", "name  price\nx     1.5\ny     2.25"),
    "latin-1": (
        "name,n\nJos\xe9,1\n".encode("latin-1"),
        "name  n\nJosé  1\n[the file is not UTF-8 and was read as latin-1]",
    ),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "a  b\n1  2\n[the file is not UTF-8 and was read as utf-16]"),
    "quotes": (
        b'a,b\n"x, y","he said ""hi"""\n"line\nbreak",2\n',
        'a            b\nx, y         he said "hi"\nline\\nbreak  2',
    ),
    "one-column": (b"value\n1\n2\n", "value\n1\n2"),
    "header-only": (b"a,b\n", "a  b\n[no rows]"),
    "nulls": (b"a,b\n1,NA\n2,3\n", "a  b\n1  NULL\n2  3"),
    "tabs": (b"a\tb\n1\t2\n", "a  b\n1  2"),
    "crlf": (b"a,b\r\n1,2\r\n", "a  b\n1  2"),
}


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_file_is_read_or_what_is_odd_is_said(view: Callable[..., Any], workspace: Path, name: str) -> None:
    data, shown = ODD[name]
    (workspace / "odd.csv").write_bytes(data)
    assert [line.rstrip() for line in (await view("odd.csv")).splitlines()] == shown.splitlines()


ANSWER = "program_io.answer(tables.OPERATIONS)"
ANSWER_ALL = "import json\nprint(json.dumps([tables.view(**each)['text'] for each in json.load(sys.stdin)]))"


@pytest.mark.slow
async def test_odd_files_are_looked_at_from_every_side_and_packed(session: Session, workspace: Path) -> None:
    """In one process: to start Python and DuckDB for each takes longer than all of it."""
    wanted: list[tuple[dict[str, Any], str]] = []
    for name, (data, shown) in ODD.items():
        (workspace / f"{name}.csv").write_bytes(data)
        wanted += [(asked(f"{name}.csv", other), "row") for other in ("shape", "columns", "stats")]
        if name not in ("latin-1", "utf-16"):
            (workspace / f"{name}.csv.gz").write_bytes(gzip.compress(data))
            wanted.append((asked(f"{name}.csv.gz", "peek"), shown.splitlines()[0]))
    program = source("tables")
    assert ANSWER in program
    requests = json.dumps([request for request, _ in wanted]).encode()
    argv = ["python3", "-I", "-c", program.replace(ANSWER, ANSWER_ALL)]
    ran = await session.command(argv, timeout_s=60, stdin=requests)
    texts = json.loads(ran.stdout)
    for (request, words), text in zip(wanted, texts, strict=True):
        if request["view"] == "peek":
            assert text.splitlines()[0].rstrip() == words, request
        else:
            assert words in text, request


@pytest.mark.parametrize(
    ("late", "told"),
    [
        ("x,1", "a       VARCHAR  30,001"),
        ("NA,1", "a       BIGINT   30,000"),
        ('"2","q,r"', "b       VARCHAR  30,001"),
        ("1,NA", "b       VARCHAR  30,000"),
        ("1,2,3", r"1 row does not fit the columns and was left out, the first at line 30,002"),
    ],
)
async def test_what_comes_late_in_a_file_is_not_overlooked(
    view: Callable[..., Any], workspace: Path, late: str, told: str
) -> None:
    (workspace / "late.csv").write_text("a,b\n" + "1,x\n" * 30_000 + late + "\n")
    assert told in await view("late.csv", "stats")


async def test_other_kinds_of_tables_are_read(session: Session, view: Callable[..., Any], workspace: Path) -> None:
    (workspace / "a.json").write_text(json.dumps([{"a": 1, "b": [1, 2]}, {"a": None, "b": []}]))
    (workspace / "a.jsonl").write_text('{"a": 1}\n{"a": 2.5}\n')
    await session.run("import pandas; pandas.DataFrame({'a': range(1000)}).to_parquet('a.parquet')")
    assert (await session.run(SHEETS)).error is None
    assert await view("a.json") == "a     b\n1     [1, 2]\nNULL  []"
    assert "1.75" in await view("a.jsonl", "stats")
    assert (await view("a.parquet", "shape")).startswith("1,000 rows, 1 column, ")
    assert "499.5" in await view("a.parquet", "stats")
    assert await view("book.xlsx") == (
        "code  sum  day\n007   1.5  2024-01-02\nx     2.0  2024-01-03\n[sheet Sales; also Other, open them as FILE#SHEET]"
    )
    assert (await view("book.xlsx#Other")).startswith("only\n3\n")
    assert "[2 rows, 3 columns; sheet Sales" in await view("book.xlsx", "columns")


async def test_what_is_no_table_is_said(view: Callable[..., Any], workspace: Path) -> None:
    (workspace / "empty.csv").touch()
    (workspace / "a.pdf").write_bytes(b"%PDF-1.7")
    (workspace / "bad.json").write_text("{nothing")
    (workspace / "bad.parquet").write_text("nothing")
    (workspace / "bad.xlsx").write_text("nothing")
    for path, says in {
        "empty.csv": "empty.csv is empty",
        "a.pdf": "a.pdf is a PDF, not a table",
        "bad.json": "bad.json cannot be read as a table",
        "bad.parquet": "bad.parquet cannot be read as a table",
        "bad.xlsx": "bad.xlsx cannot be read as a workbook",
        "lost.csv": "there is no lost.csv",
    }.items():
        with pytest.raises(ToolFailed, match=says):
            await view(path, "stats")


async def test_a_name_that_is_a_pattern_names_one_file(view: Callable[..., Any], workspace: Path) -> None:
    (workspace / "[ab]*.csv").write_text("right\n1\n")
    (workspace / "a.csv").write_text("wrong\n1\n")
    assert await view("[ab]*.csv") == "right\n1"


async def test_figures_are_kept_by_content_and_not_by_date(
    session: Session, view: Callable[..., Any], workspace: Path
) -> None:
    path = workspace / "a.csv"
    path.write_text("a\n1\n2\n")
    before = path.stat()
    first = await view("a.csv", "stats")
    assert "1.5" in first
    assert await view("a.csv", "stats") == first
    # A rewrite of the same size and date.
    path.write_text("a\n1\n4\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert "2.5" in await view("a.csv", "stats")
    # The old content again, under a new date.
    path.write_text("a\n1\n2\n")
    assert await view("a.csv", "stats") == first


async def test_content_that_is_known_is_not_worked_out_again(session: Session, workspace: Path) -> None:
    (workspace / "a.csv").write_text("a\n1\n")
    reply = await ask(session, "tables", "view", asked("a.csv", "stats"), timeout_s=60)
    known = {reply.text("digest"): reply.count("size")}
    again = await ask(session, "tables", "view", asked("a.csv", "stats", known), timeout_s=60)
    assert again.get("same") == reply.get("digest")
    assert again.get("text") is None


async def test_nothing_is_left_behind_in_the_workspace(
    session: Session, view: Callable[..., Any], workspace: Path
) -> None:
    await session.run(MAKE.format(seed=1, count=20_000))
    await session.run(SHEETS)
    before = names(workspace)
    await view("made.csv", "stats")
    await view("book.xlsx", "stats")
    assert names(workspace) == before
    left = await session.command(["sh", "-c", "ls -A $TMPDIR"], timeout_s=10)
    assert b".csv" not in left.stdout
    assert b"table-" not in left.stdout
