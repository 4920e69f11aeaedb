"""What pandas leaves out because the code says so is counted, and nothing else is changed by that."""

from __future__ import annotations

import pytest

from pinfold.sandbox import Session

pytestmark = pytest.mark.integration
SETUP = "import pandas as pd\nraw = pd.Series(['1', 'x', None, '4'])\nframe = pd.DataFrame({'a': [1, None, 3], 'b': [1, 2, None]})"


async def test_values_and_rows_that_are_left_out_are_counted(data: Session) -> None:
    await data.run(SETUP)
    assert (await data.run("n = pd.to_numeric(raw, errors='coerce')")).lost == (("to_numeric", 1, 4),)
    assert (await data.run("frame.dropna()")).lost == (("dropna", 2, 3),)
    assert (await data.run("frame.dropna(inplace=True)\nlen(frame)")).lost == (("dropna", 2, 3),)
    both = "pd.to_datetime(['2026-01-02', 'soon'], errors='coerce')\npd.DataFrame({'a': raw, 'b': raw}).apply(pd.to_numeric, errors='coerce')"
    assert (await data.run(both)).lost == (("to_datetime", 1, 2), ("to_numeric", 2, 8))


@pytest.mark.parametrize(
    "code",
    [
        "pd.to_numeric(['1', '2'], errors='coerce')",
        "pd.to_numeric('x', errors='coerce')",
        "pd.to_numeric(pd.Series([1, None]))",
        "pd.Series([1, 2]).dropna()",
        "frame.dropna(axis=1)",
        "frame.describe(), frame['a'].mode(), frame['a'].nunique(), frame.groupby('a').sum()",
        "class Odd:\n    def __len__(self): raise RuntimeError\ntry:\n    pd.to_numeric(Odd(), errors='coerce')\nexcept Exception: pass",
    ],
)
async def test_what_loses_nothing_by_the_code_s_own_word_is_not_told_of(data: Session, code: str) -> None:
    await data.run(SETUP)
    done = await data.run(code)
    assert (done.error, done.lost) == (None, ())


async def test_the_functions_are_what_they_were(data: Session) -> None:
    await data.run(SETUP)
    same = (
        "import inspect, pickle\n"
        "kept = pickle.loads(pickle.dumps([pd.to_numeric, pd.DataFrame.dropna]))\n"
        "str(inspect.signature(pd.to_numeric))[:5], kept == [pd.to_numeric, pd.DataFrame.dropna], pd.to_numeric.__module__"
    )
    assert (await data.run(same)).value == "('(arg,', True, 'pandas')"
    failed = await data.run("pd.to_numeric(raw, errors='raise')")
    assert "import_hooks.py" not in (failed.error or "")
    assert "Unable to parse string" in (failed.error or "")
