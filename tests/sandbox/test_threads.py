"""Threads do not survive going back. What each library does after an undo, by trying: cured, or from saved state and said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pinfold.sandbox import Limits, open_session
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
CURED = {
    "numpy": ("import numpy as np\na = np.random.rand(700, 700); b = a @ a", "(a @ a).shape"),
    "scikit-learn on OpenMP": (
        (
            "import numpy as np\nfrom sklearn.cluster import KMeans\n"
            "x = np.random.rand(5000, 4); m = KMeans(3, n_init=1).fit(x)"
        ),
        "m.fit(x).n_clusters",
    ),
    "scikit-learn's boosting": (
        (
            "import numpy as np\nfrom sklearn.ensemble import HistGradientBoostingClassifier\n"
            "x = np.random.rand(2000, 4); y = x[:, 0] > 0.5\nm = HistGradientBoostingClassifier(max_iter=3).fit(x, y)"
        ),
        "m.fit(x, y).score(x, y) > 0.5",
    ),
    "pyarrow": (
        (
            "import pyarrow as pa, pyarrow.parquet as pq\n"
            "t = pa.table({'a': list(range(100_000))}); pq.write_table(t, 't.parquet'); r = pq.read_table('t.parquet')"
        ),
        "pq.read_table('t.parquet').num_rows, t.group_by('a').aggregate([('a', 'count')]).num_rows",
    ),
    "duckdb": (
        (
            "import duckdb\nc = duckdb.connect(); c.execute('create table t as select range a from range(100000)')\n"
            "s = duckdb.sql('select 42 as x').fetchall()"
        ),
        "c.execute('select sum(a) from t').fetchall(), duckdb.sql('select 1').fetchall(), c.close()",
    ),
}
POLARS = (
    "import polars as pl\nd = pl.DataFrame({'a': [1, 2, 2]}); e = d.group_by('a').len()",
    "d.group_by('a').len().height, e.sort('a').to_dicts()",
)
OWN = {
    "a pool of threads": (
        (
            "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n"
            "done = pool.submit(sum, [1, 2]).result()"
        ),
        "done, 'pool' in globals()",
    ),
    "a thread that runs all the time": (
        (
            "import threading\ncount = [0]\n"
            "def run():\n    while True: count[0] += 1\n"
            "thread = threading.Thread(target=run, daemon=True); thread.start()"
        ),
        "count[0] >= 0, 'thread' in globals()",
    ),
}


async def undone_and_used(
    folder: Path, provider: Namespaces, use: str, again: str
) -> tuple[tuple[str, ...], str | None]:
    async with open_session(folder, provider, limits=Limits(cell_s=30)) as session:
        first = await session.run(use + "\nitems = [1]")
        assert first.status == "ok", first
        await session.run("items.append(2)")
        said = await session.undo()
        outcome = await session.run(f"assert items == [1]\n{again}")
        assert outcome.status == "ok", outcome
        ended = await session.run("items.append(3)\nimport os\nos._exit(1)")
        assert ended.rolled_back, ended
        once_more = await session.run("items")
        assert (once_more.status, once_more.value) == ("ok", "[1]"), once_more
        return said or (), outcome.value


@pytest.mark.parametrize("library", CURED)
async def test_a_library_that_is_cured_goes_on_after_an_undo_with_all_it_had(
    tmp_path: Path, data_python: Path, library: str
) -> None:
    said, _ = await undone_and_used(tmp_path, Namespaces(data_python), *CURED[library])
    assert said == ()


async def test_polars_goes_on_from_saved_state_and_it_is_said(tmp_path: Path, data_python: Path) -> None:
    said, _ = await undone_and_used(tmp_path, Namespaces(data_python), *POLARS)
    assert said[0].startswith("Threads ran in this state"), said


@pytest.mark.parametrize("thread", OWN)
async def test_threads_of_the_programs_own_are_gone_by_name_and_the_rest_comes_back(
    tmp_path: Path, thread: str
) -> None:
    said, value = await undone_and_used(tmp_path, Namespaces(), *OWN[thread])
    assert said[0].startswith("Threads ran in this state"), said
    assert said[1].startswith("Lost: "), said
    assert (value or "").endswith("False)")
