"""The environment as it is shipped: everything in it, at work in a real session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pinfold.sandbox import Limits, open_session
from pinfold.sandbox.environment import PACKAGES
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's own")]
IMPORTED = {"scikit-learn": "sklearn", "python-calamine": "python_calamine", "pillow": "PIL", "ipython": "IPython"}
GROUPBY = """
import pandas
sales = pandas.DataFrame({"region": ["n", "s", "n"], "sum": [1, 2, 3]})
sales.groupby("region")["sum"].sum().to_dict()
"""


async def test_a_session_has_all_packages_and_works_with_them(data_python: Path, tmp_path: Path) -> None:
    names = [IMPORTED.get(package, package) for package in PACKAGES]
    missing = f"from importlib.util import find_spec\n[name for name in {names} if find_spec(name) is None]"
    async with open_session(tmp_path, Namespaces(data_python)) as session:
        assert (await session.run(missing)).value == "[]"
        assert (await session.run(GROUPBY)).value == "{'n': 4, 's': 2}"
        assert (await session.run("open(pandas.__file__)")).status == "ok"
        assert (await session.run("open(pandas.__file__, 'a')")).status == "error"


async def test_what_the_libraries_set_aside_does_not_count_as_the_programs_memory(
    data_python: Path, tmp_path: Path
) -> None:
    limits = Limits(memory_bytes=512 << 20)
    async with open_session(tmp_path, Namespaces(data_python), limits=limits) as session:
        assert (await session.run("len(bytearray(256 << 20)) >> 20")).value == "256"
        assert "MemoryError" in ((await session.run("bytearray(600 << 20)")).error or "")


async def test_sessions_count_no_references_to_the_libraries_they_share(data_python: Path, tmp_path: Path) -> None:
    # A count would be written to the memory of the library, and a page that is written is no longer shared.
    count = "import sys, pandas; [sys.getrefcount(it) == sys.getrefcount(None) for it in (pandas, pandas.DataFrame.sum, [])]"
    async with open_session(tmp_path, Namespaces(data_python, pool=1)) as session:
        if (await session.run("import sys; sys.version_info >= (3, 13)")).value != "True":
            pytest.skip("this Python has no function for it")
        assert (await session.run(count)).value == "[True, True, False]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "fit",
    [
        "from sklearn.cluster import KMeans; import numpy; KMeans(4, n_init=1).fit(numpy.random.rand(900, 8)).n_clusters",
        "from sklearn.ensemble import HistGradientBoostingRegressor as Model; import numpy; rows = numpy.random.rand(900, 4); Model(max_iter=4).fit(rows, rows[:, 0]).n_iter_",
        "import numpy; (numpy.random.rand(300, 300) @ numpy.random.rand(300, 300)).shape[0] // 75",
        "import numpy, scipy.linalg; scipy.linalg.eigh(numpy.eye(500))[0].shape[0] // 125",
        "import pyarrow.compute as compute, pyarrow; compute.sum(pyarrow.array(range(4))).as_py() - 2",
    ],
    ids=["openmp", "openmp-boosting", "blas", "scipy", "arrow"],
)
async def test_libraries_with_threads_work_on_after_undo(data_python: Path, tmp_path: Path, fit: str) -> None:
    async with open_session(tmp_path, Namespaces(data_python)) as session:
        assert (await session.run(fit)).value == "4"
        await session.run("items = []; items.append(1)")
        await session.undo()
        outcome = await session.run(fit, timeout_s=20)
        assert (outcome.value, outcome.notices) == ("4", ()), outcome
