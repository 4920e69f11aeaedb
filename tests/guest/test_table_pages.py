"""Pages of variables: what is shown of each kind, sorted and filtered, without the program's code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pinfold.guest.cells.table_pages import Pages
from pinfold.guest.toolbox.files import Refused
from pinfold.sandbox import PageQuery, PageRefused, Session
from pinfold.sandbox.session.session import GuestSession

pytestmark = pytest.mark.integration
NAN = float("nan")


def page(value: object, **query: object) -> dict[str, Any]:
    asked = {"name": "x", "offset": 0, "limit": 500, "sort": None, "descending": False, "filter": "", "column": None}
    found = Pages().page({"x": value}, {**asked, **query})
    return json.loads(json.dumps(found, allow_nan=False))


def column(found: dict[str, Any], at: int = 0) -> dict[str, object]:
    return found["columns"][at]


@pytest.mark.parametrize(
    ("value", "names", "rows"),
    [
        ([3, None, 1.5, True, "a"], ["value"], [[3], [None], [1.5], [True], ["a"]]),
        ((1, 2), ["value"], [[1], [2]]),
        ({"a": 1, 2: [1, {"b": ()}]}, ["key", "value"], [["a", 1], [2, "[1, {'b': ()}]"]]),
        ({7}, ["value"], [[7]]),
        (range(2), ["value"], [[0], [1]]),
        ([{"a": 1, "b": "x"}, {"b": "y", "c": 2}], ["a", "b", "c"], [[1, "x", None], [None, "y", 2]]),
        ([NAN, float("inf"), 2**60, "\ud800"], ["value"], [[None], ["inf"], [str(2**60)], ["?"]]),
        (["x" * 501], ["value"], [["x" * 499 + "…"]]),
        ("some\ntext", ["value"], [["some\ntext"]]),
        (b"ab", ["value"], [["b'ab'"]]),
        (2.5, ["value"], [["2.5"]]),
        ([], ["value"], []),
    ],
    ids=["list", "tuple", "dict", "set", "range", "records", "odd", "long", "text", "bytes", "number", "empty"],
)
def test_a_value_is_shown_as_rows(value: object, names: list[str], rows: list[list[object]]) -> None:
    found = page(value)
    assert [column(found, at)["name"] for at in range(len(names))] == names
    assert found["rows"] == rows
    assert (found["total"], found["matching"]) == (len(rows), len(rows))


@given(st.lists(st.one_of(st.none(), st.floats(), st.integers(), st.text(max_size=5))), st.booleans())
@settings(max_examples=50)
def test_sorted_rows_are_stable_with_what_is_missing_last(values: list[object], descending: bool) -> None:
    rows = [{"at": at, "x": value} for at, value in enumerate(values)]
    numbers = [at for at, one in enumerate(values) if isinstance(one, int | float) and one == one]
    texts = [at for at, one in enumerate(values) if isinstance(one, str)]
    numbers.sort(key=lambda at: values[at], reverse=descending)  # pyright: ignore[reportArgumentType, reportCallIssue]
    texts.sort(key=lambda at: str(values[at]), reverse=descending)
    missing = [at for at in range(len(values)) if at not in {*numbers, *texts}]
    expected = [*texts, *numbers, *missing] if descending else [*numbers, *texts, *missing]
    shown: list[list[object]] = page(rows, sort="x", descending=descending)["rows"] if rows else []
    assert [row[0] for row in shown] == expected


def test_a_filter_finds_text_in_any_case_and_in_one_column_if_that_is_given() -> None:
    rows = [{"a": "Straße", "b": 12}, {"a": "12", "b": 3}, {"a": None, "b": None}]
    assert page(rows, filter="STRASSE")["rows"] == [["Straße", 12]]
    assert page(rows, filter="12")["matching"] == 2
    assert page(rows, filter="12", column="a")["rows"] == [["12", 3]]
    assert page(rows, filter="12", sort="b")["rows"] == [["12", 3], ["Straße", 12]]
    assert page(rows, filter="none")["matching"] == 0
    apart = ["x\0y", "y", "x", "", "Y\0"]
    assert page(apart, filter="y")["rows"] == [["x\0y"], ["y"], ["Y\0"]]
    assert page(apart, filter="\0y")["rows"] == [["x\0y"]]
    many = [f"{at}," for at in range(12_000)]
    assert page(many, filter="1999")["rows"] == [["1999,"], ["11999,"]]
    assert page(many, filter="9,1")["matching"] == 0


def test_columns_are_summarised() -> None:
    rows = [{"n": at, "t": "ab"[at % 2], "m": None} for at in range(40)]
    found = page(rows, limit=1)
    assert column(found) == {
        "name": "n",
        "type": "int",
        "missing": 0,
        "distinct": 40,
        "least": 0,
        "greatest": 39,
        "histogram": [2] * 20,
        "top": [],
        "sampled": False,
    }
    assert column(found, 1) | {"type": ""} == {
        "name": "t",
        "type": "",
        "missing": 0,
        "distinct": 2,
        "least": "a",
        "greatest": "b",
        "histogram": [20, 20],
        "top": ["a", "b"],
        "sampled": False,
    }
    assert (column(found, 2)["missing"], column(found, 2)["histogram"]) == (40, None)


def test_a_large_table_is_summarised_by_evenly_spaced_rows_and_what_is_missing_is_counted() -> None:
    found = page([None, *range(999_999)], limit=1)
    assert column(found)["missing"] == 1
    assert column(found)["sampled"] is True
    assert column(found)["distinct"] == 200_000 - 1


def test_what_is_not_there_is_refused_in_one_line_with_a_near_miss() -> None:
    with pytest.raises(Refused, match=r"no column 'Amount'; did you mean 'amount'\?"):
        page([{"amount": 1, "b": 2}], sort="Amount")
    with pytest.raises(Refused, match=r"no variable 'y'; there are 'x'$"):
        page(1, name="y")


def test_columns_beyond_the_first_hundred_are_counted_and_can_be_sorted_by() -> None:
    found = page([{f"c{n}": n * sign for n in range(120)} for sign in (1, -1)], sort="c119")
    assert (found["more_columns"], len(found["rows"][0])) == (20, 100)
    assert found["rows"][0][1] == -1


SPY = """
called = []
class Meta(type):
    def __eq__(self, other): called.append("meta eq"); return False
    def __hash__(self): called.append("meta hash"); return 1
class Spy(metaclass=Meta):
    def __getattribute__(self, name): called.append(name); return object.__getattribute__(self, name)
    def __repr__(self): called.append("repr"); return "spy"
    __str__ = __repr__
    def __eq__(self, other): called.append("eq"); return True
    def __lt__(self, other): called.append("lt"); return True
    def __hash__(self): called.append("hash"); return 1
    def __len__(self): called.append("len"); return 3
    def __iter__(self): called.append("iter"); return iter([1])
    def __bool__(self): called.append("bool"); return True
    @property
    def shape(self): called.append("shape"); return (1, 2)
class MyList(list):
    def __iter__(self): called.append("list iter"); return super().__iter__()
    def __len__(self): called.append("list len"); return 3
class MyStr(str):
    def casefold(self): called.append("casefold"); return self
    def __lt__(self, other): called.append("str lt"); return True
import datetime
class Zone(datetime.tzinfo):
    def utcoffset(self, at): called.append("zone"); return datetime.timedelta(0)
one, listed, mine, text = Spy(), [Spy(), 1, MyStr("a"), Spy(), MyStr("b")], MyList([1, 2]), MyStr("x")
times, keyed = [datetime.datetime(2020, 1, 1, tzinfo=Zone())] * 2, {Spy(): 1, "a": Spy()}
nested = [{"a": Spy(), "b": [Spy()]}, {"a": 1}]
called.clear()
"""


async def walk(session: Session, names: list[str]) -> None:
    assert isinstance(session, GuestSession)
    for name in names:
        first = await session.variable_page(name, PageQuery(filter="a"))
        for one in first.columns:
            await session.variable_page(name, PageQuery(sort=one.name, descending=True))


async def test_a_page_never_runs_the_programs_code(session: Session) -> None:
    assert (await session.run(SPY)).status == "ok"
    await walk(session, ["one", "listed", "mine", "text", "times", "keyed", "nested"])
    assert (await session.run("print(called)")).stdout == "[]\n"
    assert (await session.run("str(one), called")).value == "('spy', ['repr'])"  # the spy does see calls


async def test_a_page_never_runs_the_programs_code_within_tables(data: Session) -> None:
    made = (
        "import numpy as np, pandas as pd\n"
        "from pandas.api.extensions import ExtensionArray, ExtensionDtype\n"
        "class Kind(ExtensionDtype):\n    name = 'kind'\n    type = object\n"
        "    def __str__(self): called.append('dtype'); return 'kind'\n"
        "class Mine(ExtensionArray):\n    dtype = Kind()\n"
        "    def __len__(self): called.append('array len'); return 2\n"
        "    def __getitem__(self, at): called.append('item'); return 1\n"
        "    def isna(self): called.append('isna'); return np.zeros(2, bool)\n"
        "    def copy(self): return self\n"
        "class Frame(pd.DataFrame):\n    @property\n    def shape(self): called.append('frame'); return (1, 1)\n"
        "objects = pd.DataFrame({'o': [one, listed], 'x': [MyStr('a'), 1]}, dtype=object)\n"
        "array = np.array([one, None, listed], dtype=object)\n"
        "strange = pd.DataFrame({'m': pd.Series(Mine()), 'n': [1, 2]})\n"
        "frame, categories = Frame({'a': [1]}), pd.Series(pd.Categorical([one, one]))\n"
        "called.clear()"
    )
    await data.run(SPY)
    ran = await data.run(made)
    assert ran.status == "ok", ran.error
    await walk(data, ["objects", "array", "strange", "frame", "categories"])
    assert (await data.run("print(called)")).stdout == "[]\n"


LAW = """
import numpy as np, pandas as pd, polars as pl, random
rng = np.random.default_rng({seed})
size = {size}
frame = pd.DataFrame({{
    "f": np.where(rng.random(size) < .2, np.nan, rng.integers(-3, 4, size) / 2),
    "i": rng.integers(-5, 5, size),
    "b": rng.random(size) < .5,
    "s": pd.Series([random.Random({seed} + at).choice(["Ab", "aB", "b", "", "é", None]) for at in range(size)], dtype="str"),
    "o": pd.Series([random.Random({seed} + at).choice(["x", "Y", None]) for at in range(size)], dtype=object),
    "d": pd.to_datetime(rng.integers(0, 4, size) * 10**9),
    "m": pd.array([None if at % 3 == 0 else at % 4 for at in range(size)], dtype="Int64"),
    "c": pd.Categorical(rng.choice(["p", "q"], size), categories=["q", "p"]),
}})
frame["at"] = range(size)
other = pl.DataFrame({{name: frame[name].tolist() for name in ("i", "b", "at")}} | {{"s": [None if one is pd.NA or one != one else one for one in frame["s"]]}})
table = other.to_arrow()
def expected(column, descending, text):
    found = frame.sort_values(column, ascending=not descending, kind="stable", na_position="last")
    if text:
        found = found[found["s"].str.contains(text, case=False, regex=False).fillna(False).astype(bool)]
    return found["at"].tolist()
def text_of(value):
    return "" if pd.isna(value) else value.isoformat() if hasattr(value, "isoformat") else str(value)
def found_in(column, text):
    return [at for at, value in enumerate(frame[column]) if text in text_of(value).casefold()]
"""


@pytest.mark.parametrize(("seed", "size"), [(1, 0), (2, 1), (3, 50), (4, 333)])
async def test_pages_put_together_are_the_frame_as_pandas_sorts_and_filters_it(
    data: Session, seed: int, size: int
) -> None:
    assert isinstance(data, GuestSession)
    ran = await data.run(LAW.format(seed=seed, size=size))
    assert ran.status == "ok", ran.error
    sorts = [("frame", one) for one in "fibsodmc"] + [(name, one) for name in ("other", "table") for one in "ibs"]
    cases = [(name, sort, descending, text) for name, sort in sorts for descending in (0, 1) for text in ("", "b")]
    told = (await data.run(f"import json; print(json.dumps([expected(*case[1:]) for case in {cases!r}]))")).stdout
    for (name, sort, descending, text), expected in zip(cases, json.loads(told), strict=True):
        rows: list[object] = []
        query = PageQuery(limit=70, sort=sort, descending=bool(descending), filter=text, column="s")
        while True:
            found = await data.variable_page(name, replace(query, offset=len(rows)))
            at = [one.name for one in found.columns].index("at")
            rows += [row[at] for row in found.rows]
            if not found.rows:
                break
        assert rows == expected, (name, sort, descending, text)
        assert (found.total, found.matching) == (size, len(expected))
    searched = [(column, text) for column in "fibsdm" for text in ("-1", "0", "true", "t00:00:03", "e", ", ", "a")]
    told = (await data.run(f"print(json.dumps([found_in(*case) for case in {searched!r}]))")).stdout
    for (column, text), expected in zip(searched, json.loads(told), strict=True):
        found = await data.variable_page("frame", PageQuery(limit=500, filter=text, column=column))
        assert [row[-1] for row in found.rows] == expected, (column, text)


async def test_an_index_that_is_more_than_row_numbers_is_shown(data: Session) -> None:
    assert isinstance(data, GuestSession)
    await data.run(
        "import pandas as pd, numpy as np\nframe = pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]})\n"
        "sums = frame.groupby('k')['v'].sum()\nboth = frame.set_index(['k', 'v'])\n"
        "grid, day = np.eye(2), pd.Series(pd.date_range('2020-01-01', periods=1, tz='Europe/Berlin'))\nempty = pd.DataFrame()"
    )
    shown = {name: await data.variable_page(name, PageQuery()) for name in ("frame", "sums", "both", "grid", "day")}
    names = {name: [one.name for one in found.columns] for name, found in shown.items()}
    assert names == {
        "frame": ["k", "v"],
        "sums": ["k", "v"],
        "both": ["k", "v"],
        "grid": ["0", "1"],
        "day": ["value"],
    }
    assert shown["sums"].rows == (("a", 3), ("b", 3))
    assert shown["grid"].rows == ((1.0, 0.0), (0.0, 1.0))
    assert shown["day"].rows == (("2020-01-01T00:00:00+01:00",),)
    assert (await data.variable_page("empty", PageQuery())).total == 0


async def test_a_page_is_no_cell_and_sees_what_the_next_cell_does(session: Session) -> None:
    assert isinstance(session, GuestSession)
    await session.run("x = [3, 1, 2]")
    query = PageQuery(sort="value")
    assert (await session.variable_page("x", query)).rows == ((1,), (2,), (3,))
    await session.run("x[1] = 9\ny = 1")
    assert (await session.variable_page("x", query)).rows == ((2,), (3,), (9,))
    assert {one.name: one.cell for one in await session.variables()} == {"x": 1, "y": 2}


async def test_bad_questions_are_refused_in_one_line(session: Session) -> None:
    assert isinstance(session, GuestSession)
    await session.run("x = 1")
    for query, words in (
        (PageQuery(limit=501), "limit is 501; give 1 to 500"),
        (PageQuery(limit=0), "limit is 0"),
        (PageQuery(offset=-1), "offset is -1"),
        (PageQuery(sort="nope\ud800"), "there is no column"),
    ):
        with pytest.raises(PageRefused, match=words):
            await session.variable_page("x", query)
    assert (await session.variable_page("x", PageQuery(offset=10**30))).rows == ()
    assert (await session.run("x")).value == "1"
