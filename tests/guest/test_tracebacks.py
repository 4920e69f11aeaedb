"""Errors as the writer of the cell needs them: their lines, what those worked on, and what to do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pinfold.sandbox import Limits, Session, Spec
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def tables(tmp_path_factory: pytest.TempPathFactory, data_python: Path) -> AsyncGenerator[Session]:
    """One session for many errors: a failed cell changes nothing."""
    folder = tmp_path_factory.mktemp("tables")
    folder.chmod(0o755)
    session = await Namespaces(python=data_python).open(Spec(workspace=folder, limits=Limits(cell_s=40, start_s=40)))
    made = await session.run(
        "import pandas as pd, polars as pl\nother = pd.DataFrame({'id': [1]})\n"
        "frame = pd.DataFrame({'price': [1], ' Region': [2]})\npolar = pl.DataFrame({'price': [1], 'id': [2]})"
    )
    assert made.status == "ok", made.error
    yield session
    await session.close()


async def error_of(session: Session, code: str) -> list[str]:
    outcome = await session.run(code)
    assert outcome.status == "error"
    return (outcome.error or "").splitlines()


async def test_the_failing_line_is_told_with_what_it_worked_on(session: Session) -> None:
    lines = await error_of(
        session,
        "items, key, many = [1, 2], 'k', {'a': 1, 'b': 2}\ndef take(n, unused=3):\n    return items[n] + many[key] + len(key)\ntake(1)",
    )
    assert lines[-2:] == [
        "    items: list of 2   n: int 1   many: dict of 2 {'a': int, 'b': int}   key: str 'k'",
        "KeyError: 'k'",
    ]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("frame.append({'price': 2})", "pandas removed append: add a row with df.loc[len(df)] = [...]"),
        ("frame['price'].iteritems()", "pandas removed iteritems: use items()"),
        ("frame.fillna(method='ffill')", "pandas removed method=: use ffill() or bfill()"),
    ],
)
async def test_what_a_newer_pandas_lacks_is_told_with_what_replaces_it(tables: Session, code: str, hint: str) -> None:
    assert (await error_of(tables, code))[-1].startswith(hint)
    assert "removed" not in (await error_of(tables, "frame.nothing_like_it"))[-1]


async def test_telling_never_runs_the_programs_code(session: Session) -> None:
    await session.run(
        "ran = []\n"
        "def trap(name): return lambda *_: ran.append(name)\n"
        "class Meta(type):\n    __instancecheck__ = trap('check')\n    __getattribute__ = lambda c, n: ran.append(n) or type.__getattribute__(c, n)\n"
        "class Trap(dict, metaclass=Meta):\n"
        "    __repr__ = __str__ = __len__ = __iter__ = __hash__ = __eq__ = __getattr__ = trap('method')\n"
        "    shape = property(trap('shape'))\n"
        "    def __getattribute__(self, name): ran.append(name)\n"
        "class Text(str):\n    __repr__ = __len__ = __getitem__ = trap('text')\n"
        "one, two = Trap(), Text('x')\nran.clear()"
    )
    lines = await error_of(session, "[one, two][5]")
    assert lines[-2:] == ["    one: Trap   two: Text", "IndexError: list index out of range"]
    assert (await session.run("ran")).value == "[]"


async def test_long_things_are_told_shortly(session: Session) -> None:
    lines = await error_of(session, "text, number = 'x' * 10**6, 10 ** 5000\ntext[number]")
    assert lines[-2] == f"    text: str of 1000000: '{'x' * 40}'...   number: int of 16610 bits"
    many = " + ".join(f"n{n}" for n in range(30))
    lines = await error_of(session, "\n".join(f"n{n} = {n}" for n in range(30)) + f"\n{many} + ''")
    assert lines[-2].count(": int") == 8


async def test_frames_of_libraries_are_counted_but_for_the_last(session: Session) -> None:
    lines = await error_of(session, "import json\ndef load(text):\n    return json.loads(text)\nload('{]')")
    text = "\n".join(lines)
    assert "    return json.loads(text)" in text
    assert "    text: str '{]'" in text
    assert "  ... 2 frames in the standard library" in text
    assert text.count("  File ") == 3


async def test_a_deep_recursion_is_short(session: Session) -> None:
    lines = await error_of(session, "def one(n): return two(n + 1)\ndef two(n): return one(n + 1)\none(0)")
    assert lines[-1].startswith("RecursionError")
    assert len(lines) < 80
    assert any("frames in your code" in line for line in lines)


async def test_chained_exceptions_are_all_shown(session: Session) -> None:
    text = "\n".join(
        await error_of(session, "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('outer') from e")
    )
    assert text.index("ZeroDivisionError: division") < text.index("direct cause") < text.index("ValueError: outer")
    text = "\n".join(await error_of(session, "raise ExceptionGroup('all', [ValueError('one'), KeyError('two')])"))
    assert "ValueError: one" in text
    assert "KeyError: 'two'" in text


@pytest.mark.parametrize(
    ("code", "package"),
    [
        ("import nosuchthing.part", "nosuchthing"),
        ("import bs4x", "bs4x"),
        ("raise ModuleNotFoundError('x', name='cv2')", "opencv-python-headless"),
        ("raise ModuleNotFoundError('x', name='skimage.io')", "scikit-image"),
        (
            "try:\n    import nosuchthing\nexcept ImportError as e:\n    raise ImportError('optional') from e",
            "nosuchthing",
        ),
    ],
)
async def test_a_missing_module_names_the_package(session: Session, code: str, package: str) -> None:
    assert (await error_of(session, code))[-1] == (f"`pip` name: {package}; `%pip install {package}` installs it")


async def test_pinfold_itself_is_not_looked_for_in_the_package_index(session: Session) -> None:
    missing = "raise ModuleNotFoundError('x', name='pinfold')"
    (*_, last) = await error_of(session, missing)
    assert last == "Pinfold cannot be used inside its own sandbox; run this with a Python outside of it"
    assert (await session.run(missing)).missing == ""


@pytest.mark.parametrize(
    "code", ["import json.nosuch", "raise ModuleNotFoundError('x', name=5)", "import sys\nfrom sys import nosuch"]
)
async def test_nothing_is_advised_where_installing_would_not_help(session: Session, code: str) -> None:
    assert "`pip` name" not in "\n".join(await error_of(session, code))


async def test_a_missing_column_names_those_like_it(data: Session) -> None:
    await data.run("import pandas as pd\nframe = pd.DataFrame({'price': [1], 'Region ': [2], 'other': [3]})")
    lines = await error_of(data, "frame['prise'].sum()")
    assert "    frame: DataFrame (1, 3) columns 'price', 'Region ', 'other'" in lines
    assert lines[-1] == "frame has no column 'prise'; close: 'price'"
    assert (await error_of(data, "frame['region']"))[-1] == "frame has no column 'region'; close: 'Region '"
    there = "frame has no column 'zzz'; it has 'price', 'Region ', 'other'"
    assert (await error_of(data, "frame['zzz']"))[-1] == there
    assert any("frames in pandas" in line for line in lines)
    assert len(lines) < 30
    lines = await error_of(data, "import numpy as np\nleft, right = np.zeros((2, 3)), np.zeros(4)\nleft @ right")
    assert "    left: ndarray (2, 3) float64   right: ndarray (4,) float64" in lines


async def test_of_two_tables_the_one_without_the_column_is_named(data: Session) -> None:
    await data.run("import pandas as pd\none = pd.DataFrame({'key': [1]})\ntwo = pd.DataFrame({'id': [1]})")
    lines = await error_of(data, "one.merge(two, on='key')")
    assert lines[-1] == "two has no column 'key'; it has 'id'"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (
            "frame[['prise', 'zz']]",
            ["frame has no column 'prise'; close: 'price'", "frame has no column 'zz'; it has 'price', ' Region'"],
        ),
        ("frame[['price', 'region']]", ["frame has no column 'region'; close: ' Region'"]),
        ("frame.dropna(subset=['prise'])", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.drop_duplicates(subset=['prise'])", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.groupby('Region').sum()", ["frame has no column 'Region'; close: ' Region'"]),
        ("frame.groupby('price')['prise'].sum()", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.groupby('price')[['prise']].sum()", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.groupby('price').agg({'prise': 'sum'})", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.sort_values('prise')", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.sort_values(['price', 'region'])", ["frame has no column 'region'; close: ' Region'"]),
        ("frame.set_index(['prise'])", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.drop(columns=['prise'])", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.loc[:, ['prise']]", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.melt(id_vars=['prise'])", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.merge(other, left_on='prise', right_on='id')", ["frame has no column 'prise'; close: 'price'"]),
        (
            "frame.merge(other, left_on='price', right_on='ident')",
            ["frame has no column 'ident'; it has 'price', ' Region'", "other has no column 'ident'; it has 'id'"],
        ),
        ("other.merge(frame, left_on='id', right_on='prise')", ["frame has no column 'prise'; close: 'price'"]),
        ("frame.prise", ["frame has no column 'prise'; close: 'price'"]),
        ("polar['prise']", ["polar has no column 'prise'; close: 'price'"]),
        ("polar.drop_nulls('prise')", ["polar has no column 'prise'; close: 'price'"]),
        ("polar.select('prise')", ['Did you mean "price"?']),
    ],
)
async def test_missing_columns_are_named_however_the_library_says_it(
    tables: Session, code: str, hint: list[str]
) -> None:
    assert (await error_of(tables, code))[-len(hint) :] == hint


@pytest.mark.parametrize(
    "code",
    ["frame.zebra", "{'a': 1}['prise']", "frame.loc[99]", "int('prise')", "[frame][7]", "frame.merge(other, on=3)"],
)
async def test_an_error_about_something_else_names_no_column(tables: Session, code: str) -> None:
    assert "has no column" not in "\n".join(await error_of(tables, code))


async def test_nested_data_is_told_as_deep_as_code_must_go(session: Session) -> None:
    await session.run("data = {'shop': {'shelves': [{'goods': [{'name': 'a', 'price': 1.5}]}]}}")
    lines = await error_of(session, "data['shop']['shelves'][0]['goods'][0]['cost']")
    told = "{'shop': {'shelves': [1 x {'goods': [1 x {'name': str, 'price': float}]}]}}"
    assert f"    data: dict of 1 {told}" in lines
