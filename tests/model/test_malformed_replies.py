"""Malformed replies on their way through a whole session; `bench/malformed.py` does the same for many more."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.model.malformed_replies import LIMIT_S, WHOLE_FORMS, Output, Tally, look_again, outputs, survive

pytestmark = pytest.mark.integration

COUNT = 150
BATCH = 30


@pytest.fixture(scope="module")
def made() -> list[Output]:
    found: list[Output] = []

    @settings(
        max_examples=COUNT,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(outputs(swollen_one_in=400))
    def collect(output: Output) -> None:
        found.append(output)

    collect()
    return found


async def test_malformed_replies_are_understood_stored_and_replayed(made: list[Output], tmp_path: Path) -> None:
    tally = Tally(limit_s=10 * LIMIT_S)
    for start in range(0, len(made), BATCH):
        await survive(made[start : start + BATCH], tmp_path / str(start), tally)
    assert tally.wrong == []
    assert tally.outputs == len(made) >= COUNT
    assert min(tally.calls, tally.corrections, tally.broken_off) > 0


async def test_a_model_that_may_call_natively_is_no_worse(made: list[Output], tmp_path: Path) -> None:
    tally = Tally(limit_s=10 * LIMIT_S)
    await survive(made[:BATCH], tmp_path / "log", tally, when="unless-native")
    assert tally.wrong == []


async def test_a_reply_that_is_not_stored_as_it_was_said_is_noticed(tmp_path: Path) -> None:
    tally = Tally(limit_s=10 * LIMIT_S)
    said, other = (
        Output(said=text, swollen=False, finish="stop", breaks_off=False, quoted=False) for text in ("x", "y")
    )
    await survive([said], tmp_path / "log", tally)
    assert tally.wrong == []
    await look_again(tmp_path / "log", [other], tally)
    assert [words.partition(":")[0] for words in tally.wrong] == ["stored as another text"]


@pytest.mark.slow
async def test_ten_million_characters_are_survived(tmp_path: Path) -> None:
    tally = Tally(limit_s=10 * LIMIT_S)
    large = [
        Output(said=said, swollen=True, finish="stop", breaks_off=False, quoted=False)
        for said in (WHOLE_FORMS[0] + "\n", '{"name": "now", "arguments": ')
    ]
    await survive(large, tmp_path / "log", tally)
    assert tally.wrong == []
