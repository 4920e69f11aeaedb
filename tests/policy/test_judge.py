"""The policy table, row by row, as the design has it; only the rows whose actions exist today."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from pinfold.events import Action, Allow, Ask, CallTool, Deny, Effect, Mode, RunCell, Verdict
from pinfold.policy import judge

pytestmark = [pytest.mark.unit, pytest.mark.installed]

CELL = RunCell(code="import shutil; shutil.rmtree('/')")
TOOL = CallTool(tool="send", args={})
PACKAGE = CallTool(tool="install", args={"package": "polars"})
MODES: tuple[Mode, ...] = get_args(Mode)
EFFECTS: tuple[Effect, ...] = get_args(Effect)
NOBODY: frozenset[str] = frozenset()

TABLE: list[tuple[str, Action, Effect, frozenset[str], tuple[type[Verdict], ...]]] = [
    # row of the design,         action, effect, granted,             read-only, ask, auto, full
    ("cell", CELL, "once", NOBODY, (Allow, Allow, Allow, Allow)),
    ("pure tool", TOOL, "pure", NOBODY, (Allow, Allow, Allow, Allow)),
    ("keyed tool", TOOL, "keyed", NOBODY, (Deny, Ask, Ask, Allow)),
    ("once tool", TOOL, "once", NOBODY, (Deny, Ask, Ask, Allow)),
    ("granted keyed tool", TOOL, "keyed", frozenset({"send"}), (Deny, Allow, Allow, Allow)),
    ("granted once tool", TOOL, "once", frozenset({"send"}), (Deny, Allow, Allow, Allow)),
    ("install a package", PACKAGE, "keyed", NOBODY, (Deny, Ask, Ask, Allow)),
    ("install, granted", PACKAGE, "keyed", frozenset({"install"}), (Deny, Allow, Allow, Allow)),
    ("another tool's grant", TOOL, "once", frozenset({"sen", "send2"}), (Deny, Ask, Ask, Allow)),
]


@pytest.mark.parametrize(
    ("action", "effect", "granted", "mode", "verdict"),
    [
        pytest.param(action, effect, granted, mode, verdict, id=f"{name}, {mode}")
        for name, action, effect, granted, row in TABLE
        for mode, verdict in zip(MODES, row, strict=True)
    ],
)
def test_the_table(
    action: Action, effect: Effect, granted: frozenset[str], mode: Mode, verdict: type[Verdict]
) -> None:
    assert type(judge(action, effect=effect, mode=mode, granted=granted)) is verdict


def test_the_columns_are_those_of_the_design() -> None:
    assert MODES == ("read-only", "ask", "auto", "full")


@pytest.mark.parametrize(("effect", "mode"), list(product(EFFECTS, MODES)))
def test_a_grant_never_makes_a_verdict_stricter(effect: Effect, mode: Mode) -> None:
    order = (Deny, Ask, Allow)
    without = judge(TOOL, effect=effect, mode=mode, granted=NOBODY)
    granted = judge(TOOL, effect=effect, mode=mode, granted=frozenset({"send"}))
    assert order.index(type(granted)) >= order.index(type(without))


def test_reasons_name_the_tool_and_the_rule() -> None:
    assert judge(TOOL, effect="once", mode="auto", granted=NOBODY) == Ask(
        reason="send has effects that may not be undone (once)"
    )
    assert judge(TOOL, effect="keyed", mode="read-only", granted=NOBODY) == Deny(
        "send has effects (keyed), and the mode is read-only"
    )
    assert judge(PACKAGE, effect="keyed", mode="auto", granted=NOBODY) == Ask(
        reason="a package would be fetched from the package index and put into the session"
    )
    assert judge(PACKAGE, effect="keyed", mode="read-only", granted=NOBODY) == Deny(
        "a package would be installed, and the mode is read-only"
    )
    assert judge(TOOL, effect="once", mode="ask", granted=frozenset({"send"})) == Allow(
        rule="send was granted to this session"
    )
