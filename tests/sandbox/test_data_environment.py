"""The environment as it is shipped: everything in it, at work in a real session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pinfold.sandbox import open_session
from pinfold.sandbox.environment import PACKAGES
from pinfold.sandbox.namespaces import Namespaces

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's own"),
]
IMPORTED = {
    "scikit-learn": "sklearn",
    "python-calamine": "python_calamine",
    "pillow": "PIL",
    "ipython": "IPython",
}
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
