"""The list of variables: shapes, sizes and origins, known without the program's code."""

from __future__ import annotations

import pytest

from pinfold.guest.cells.bindings import find_bound_names
from pinfold.sandbox import Session

pytestmark = pytest.mark.integration


async def cells(session: Session) -> dict[str, int | None]:
    return {variable.name: variable.cell for variable in await session.variables()}


async def test_the_cell_that_bound_a_name_last_is_its_origin(session: Session) -> None:
    await session.run("a = b = c = 1\nimport os\ndef f(): pass")
    await session.run("print(a)\nb = 1\ndef reach():\n    global e\n    e = 5\nfor n in []: pass")
    await session.run("reach()\nglobals()['g'] = 1\nfrom math import *")
    found = await cells(session)
    assert {name: found[name] for name in ("a", "b", "c", "os", "f", "e", "g", "pi")} == {
        "a": 1,
        "b": 2,
        "c": 1,
        "os": 1,
        "f": 1,
        "e": 3,
        "g": 3,
        "pi": 3,
    }


async def test_a_cell_that_failed_counts_for_what_it_got_to(session: Session) -> None:
    await session.run("a, b = object(), object()")
    await session.run("a = object()\n1 / 0\nb = object()")
    assert await cells(session) == {"a": 2, "b": 1}


async def test_a_name_that_was_deleted_and_comes_back_has_its_new_origin(session: Session) -> None:
    await session.run("a = 1")
    await session.run("del a")
    assert await cells(session) == {}
    await session.run("a = 1")
    await session.run("await __import__('asyncio').sleep(0)\nb = a")
    assert await cells(session) == {"a": 3, "b": 4}


def test_stored_names_are_found_however_many_there_are() -> None:
    names = [f"name_{n}" for n in range(1000)]
    code = compile("\n".join(f"{name} = print(len, {name!r})" for name in names), "<cell>", "exec")
    assert find_bound_names(code) == names


async def test_a_cell_can_free_what_it_rebinds(session: Session) -> None:
    await session.run("import weakref\nclass Big: pass\nbig = Big()\ngone = []\nweakref.finalize(big, gone.append, 1)")
    assert (await session.run("big = None\nprint(gone)\nbig = 1")).stdout == "[1]\n"


async def test_shapes_and_sizes_of_tables(data: Session) -> None:
    await data.run(
        "import numpy as np, pandas as pd, polars as pl\n"
        "array = np.zeros((3, 4))\n"
        "frame = pd.DataFrame({'a': np.arange(10), 'b': np.zeros(10), 'c': ['x'] * 10})\n"
        "series, index, multi = frame['a'], pd.Index([3, 1, 2]), frame.set_index(['a', 'c'])\n"
        "other = pl.DataFrame({'a': [1, 2]})\n"
        "class Mine(pd.DataFrame): pass\nmine = Mine({'a': [1]})"
    )
    found = {variable.name: (variable.type, variable.shape, variable.size) for variable in await data.variables()}
    assert found["array"] == ("ndarray", "3 x 4", 96)
    assert found["series"] == ("Series", "10", 80)
    assert found["index"] == ("Index", "3", 24)
    assert found["multi"] == ("DataFrame", "10 x 1", 80)
    assert found["other"] == ("DataFrame", "2 x 1", 16)
    assert found["mine"] == ("Mine", None, None)
    assert found["frame"][:2] == ("DataFrame", "10 x 3")
    assert 160 < (found["frame"][2] or 0) < 1000


async def test_arrays_of_the_programs_own_inside_pandas_are_not_asked(data: Session) -> None:
    outcome = await data.run(
        "import numpy as np, pandas as pd\nfrom pandas.api.extensions import ExtensionArray, ExtensionDtype\n"
        "ran = []\n"
        "class Kind(ExtensionDtype):\n    name, type, na_value = 'kind', int, None\n"
        "class Mine(ExtensionArray):\n"
        "    dtype = Kind()\n"
        "    def __init__(self, n): self.n = n\n"
        "    def __len__(self): ran.append('len'); return self.n\n"
        "    def __getitem__(self, item): ran.append('item'); return self if isinstance(item, slice) else 1\n"
        "    def isna(self): return np.zeros(self.n, bool)\n"
        "    def copy(self): return self\n"
        "    @property\n    def nbytes(self): ran.append('nbytes'); return 1\n"
        "    @property\n    def shape(self): ran.append('shape'); return (self.n,)\n"
        "frame = pd.DataFrame({'a': Mine(3)})\nseries = frame['a']\nran.clear()"
    )
    assert outcome.status == "ok", outcome.error
    found = {variable.name: (variable.shape, variable.size) for variable in await data.variables()}
    assert (found["frame"], found["series"]) == (("3 x 1", None), ("3", None))
    assert (await data.run("ran")).value == "[]"
