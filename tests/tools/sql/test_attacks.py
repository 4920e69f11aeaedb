"""Statements that would do harm, against each layer alone and against both. What counts is what happened, not what was said."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.tools.sql.databases import Attack, Bare, Seen, World, has_effect, tells

from pinfold.tools import BadCall
from pinfold.tools.sql.statements import Refused, read_statement
from pinfold.tools.sql.workers import Workers

pytestmark = [pytest.mark.safety, pytest.mark.anyio]
KINDS = ("postgresql", "sqlite", "duckdb")
LEAST = 120
PARTS = 3
in_parts = pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))]
)
_CORPUS = tomllib.loads((Path(__file__).parent / "attacks.toml").read_text(encoding="utf-8"))


def attacks(world: World, part: int | None = None) -> list[Attack]:
    found = [Attack(**one) for one in _CORPUS[world.kind]]
    assert len(found) >= LEAST
    return found if part is None else found[part::PARTS]


def harmless_so_far(before: Seen, world: World, attack: Attack, said: str) -> None:
    after = world.see()
    assert not has_effect(before, after, said), f"{attack.sql}\n{said}\n{before}\n{after}"


@in_parts
@pytest.mark.parametrize("world", KINDS, indirect=True)
async def test_no_attack_has_an_effect_through_the_tool(world: World, part: int) -> None:
    workers = Workers()
    before = world.see()
    answered = 0
    try:
        for attack in attacks(world, part):
            for source in world.sources:
                try:
                    told = await workers.ask(source, world.filled(attack.sql))
                    said = told.text + told.table.decode("latin-1")
                    answered += 1
                except BadCall as error:
                    said = str(error)
                harmless_so_far(before, world, attack, said)
    finally:
        await workers.close()
    # Some have been answered, to no avail; were none, it could be that nothing ever is.
    assert answered < LEAST / 5 / PARTS


@in_parts
@pytest.mark.parametrize("world", KINDS, indirect=True)
def test_no_attack_has_an_effect_where_nobody_looked_at_its_text(world: World, part: int) -> None:
    before = world.see()
    refused = 0
    bare = Bare()
    for attack in attacks(world, part):
        if attack.parser_only:
            continue
        for source in world.sources:
            for form in ("rows", "told"):
                said = bare.run(source, world.filled(attack.sql), form)
                refused += said.startswith(("refused", "failed"))
                harmless_so_far(before, world, attack, said)
    bare.close()
    assert refused > LEAST / PARTS


@pytest.mark.parametrize("world", KINDS, indirect=True)
def test_the_text_alone_gives_away_what_has_an_effect(world: World) -> None:
    """But for what only the server can know: a function that writes, behind a view or under a name of its own."""
    passed: list[Attack] = []
    for attack in attacks(world):
        try:
            read_statement(world.filled(attack.sql), world.kind)
            passed.append(attack)
        except Refused:
            pass
    effective = [attack.sql for attack in passed if attack.effect != "none" or attack.parser_only]
    assert all("writes_quietly" in sql or "quiet_view" in sql for sql in effective), effective


@in_parts
@pytest.mark.parametrize("world", KINDS, indirect=True)
def test_each_attack_works_on_whoever_has_no_guard(world: World, part: int) -> None:
    """The control: what is counted as prevented above does happen."""
    counted = 0
    for attack in attacks(world, part):
        if attack.effect == "none":
            continue
        world.seed()
        before = world.see()
        said = world.unguarded(world.filled(attack.sql))
        after = world.see()
        worked = {
            "data": before.state != after.state,
            "file": before.files != after.files,
            "read": tells(said),
            "lock": "locks=1" in said,
            "kill": before.victims != after.victims,
        }[attack.effect]
        assert worked, f"{attack.sql}\n{said}"
        counted += 1
    assert counted >= LEAST / 2 / PARTS
