"""What analysts ask is answered, under all guards: a guard that refuses everything would be no feat."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.tools.sql.databases import World

from pinfold.tools import BadCall
from pinfold.tools.sql.workers import Workers

pytestmark = [pytest.mark.integration, pytest.mark.anyio]
_ASKED: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "everyday.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("world", ["postgresql", "sqlite", "duckdb"], indirect=True)
async def test_what_analysts_ask_is_answered(world: World) -> None:
    workers = Workers()
    refused: list[str] = []
    try:
        for sql in _ASKED[world.kind]:
            try:
                answered = await workers.ask(world.sources[-1], sql)
                assert answered.table
            except BadCall as error:
                refused.append(f"{sql}\n    {error}")
    finally:
        await workers.close()
    assert refused == []
    assert len(_ASKED[world.kind]) >= 58
