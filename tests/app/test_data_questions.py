"""A scripted model on data in the real sandbox: what it is told of columns, of rows left out, and of an error that stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from pinfold.app import Options, open_session
from pinfold.events import (
    ApproachChanged,
    Entry,
    Say,
    SessionRewound,
    TurnEnded,
    TurnFailed,
    new_session_id,
    new_turn_id,
)

DATA_PYTHON = "PINFOLD_TEST_DATA_PYTHON"
PYTHON = os.environ.get(DATA_PYTHON, "")
"""Read now: tests have an environment of their own."""
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.skipif(not Path(PYTHON).is_file(), reason=f"no Python with pandas: set {DATA_PYTHON} to one"),
]
Script = Callable[..., str]


@pytest.fixture
def fares(workspace: Path) -> Path:
    (workspace / "fares.csv").write_text(" Fare,town\n1,A\n2,A\nfree,B\n")
    (workspace / "other.csv").write_text("salary\n100\n")
    return workspace


async def events_of(workspace: Path, model: str, prompt: str) -> list[Any]:
    options = Options(workspace=workspace, model=model, mode="auto", sandbox="namespaces", python=PYTHON)
    say, events = Say(turn=new_turn_id(), text=prompt), list[Any]()
    async with open_session(None, new_session_id(), options) as live, live.subscribe(0) as feed:
        await live.submit(say)
        with anyio.fail_after(120):
            async for item in feed:
                if isinstance(item, Entry):
                    events.append(item.event)
                    if isinstance(item.event, TurnEnded | TurnFailed):
                        return events
    raise AssertionError("the feed ended")


async def test_a_near_miss_is_quoted_rows_left_out_are_told_and_the_printed_form_is_the_answer(
    fares: Path, script: Script, cell: Any
) -> None:
    read = "import pandas as pd\ndf = pd.read_csv('fares.csv')\ndf.dropna(subset=['Fare'])"
    turn = "fare = pd.to_numeric(df[' Fare'], errors='coerce')\nfare.head(1)"
    give = "print(f'@mean[{fare.dropna().mean()}]')"
    model = script(
        cell(read),
        cell(turn, expect="df has no column 'Fare'; close: ' Fare'"),
        cell(give, expect='[to_numeric(errors="coerce") turned 1 of 3 values into missing ones]'),
        {"text": "never asked"},
    )
    events = await events_of(fares, model, 'What is the mean fare? Format: @mean[value] where "value" is a number')
    assert (events[-1].text, events[-1].printed) == ("@mean[1.5]", True)


async def test_an_error_that_stays_brings_a_look_at_the_files_in_question_and_then_a_new_start(
    fares: Path, script: Script, cell: Any
) -> None:
    read = "import pandas as pd\nopen('made.txt', 'w').write('x')\ndf = pd.read_csv('fares.csv')"
    model = script(
        cell(read),
        *(cell(f"df['Fare'].sum() + {n}") for n in range(3)),
        cell("df[df['town'] == 'A']['Fare']", expect='fares.csv: 3 rows like " Fare"=1, "town"=A'),
        cell(
            "import os\nprint('made.txt' in os.listdir(), 'df' in globals())", expect="tried before and failed 4 times"
        ),
        {"text": "done", "expect": "False False"},
    )
    events = await events_of(fares, model, "Sum the fares.")
    assert isinstance(events[-1], TurnEnded), events[-1]
    looks, starts = [event for event in events if isinstance(event, ApproachChanged)]
    assert looks.error == "KeyError: 'Fare'"
    assert "salary" not in looks.look  # nobody has asked for that file
    assert "df (DataFrame 3 x 2 of cell 1)" in looks.look
    assert starts.started_over
    assert [event.undone for event in events if isinstance(event, SessionRewound)] == [(1, 2, 3, 4, 5)]
