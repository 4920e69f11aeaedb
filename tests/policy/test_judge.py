"""The policy table, row by row, as the design has it, and what grants, rules, taint and guards make of it."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from msgspec.structs import replace

from pinfold.events import Action, Allow, Ask, CallTool, Deny, Mode, Reach, RunCell, Verdict
from pinfold.policy import Facts, Guards, Taint, judge, load_rules, shell_facts

pytestmark = [pytest.mark.unit, pytest.mark.installed]

CELL = RunCell(code="import shutil; shutil.rmtree('/')")
TOOL = CallTool(tool="send", args={})
EDIT = CallTool(tool="write_file", args={"path": "src/a.py", "content": ""})
FETCH = CallTool(tool="fetch", args={"url": "https://example.org/"})
PACKAGE = CallTool(tool="install", args={"package": "polars"})
MODES: tuple[Mode, ...] = get_args(Mode)
REACHES: tuple[Reach, ...] = get_args(Reach)
FULL = Taint(private=True, untrusted=True)
ORDER = (Deny, Ask, Allow)

TABLE: list[tuple[str, Action, Facts, tuple[type[Verdict], ...]]] = [
    # row of the design, action, facts,                                                  read-only, ask, auto, full
    ("cell", CELL, Facts(), (Allow, Allow, Allow, Allow)),
    ("pure tool", TOOL, Facts(effect="pure", reach="nothing"), (Allow, Allow, Allow, Allow)),
    ("pure tool that reads", TOOL, Facts(effect="pure", reach="files"), (Allow, Allow, Allow, Allow)),
    ("file tool that writes", EDIT, Facts(reach="workspace", target="src/a.py"), (Deny, Ask, Allow, Allow)),
    ("protected file", EDIT, Facts(reach="protected", target="AGENTS.md"), (Deny, Ask, Deny, Ask)),
    ("install a package", PACKAGE, Facts(reach="packages", target="polars"), (Deny, Ask, Ask, Allow)),
    ("listed host", FETCH, Facts(reach="network", target="a.org:443", listed=True), (Ask, Ask, Allow, Allow)),
    ("other host", FETCH, Facts(reach="network", target="b.org:443"), (Deny, Ask, Ask, Ask)),
    ("keyed tool", TOOL, Facts(effect="keyed", reach="outside"), (Deny, Ask, Ask, Allow)),
    ("once tool", TOOL, Facts(effect="once", reach="outside"), (Deny, Ask, Ask, Allow)),
    ("nothing is known of it", TOOL, Facts(), (Deny, Ask, Ask, Allow)),
    ("host shell", TOOL, Facts(reach="host"), (Deny, Ask, Deny, Ask)),
    ("handed once tool", TOOL, Facts(handed=True), (Deny, Allow, Allow, Allow)),
    ("handed pure tool", TOOL, Facts(effect="pure", reach="nothing", handed=True), (Allow, Allow, Allow, Allow)),
    ("handed, but protected", EDIT, Facts(reach="protected", handed=True), (Deny, Ask, Deny, Ask)),
    ("handed, but on the host", TOOL, Facts(reach="host", handed=True), (Deny, Ask, Deny, Ask)),
]


@pytest.mark.parametrize(
    ("action", "facts", "mode", "verdict"),
    [
        pytest.param(action, facts, mode, verdict, id=f"{name}, {mode}")
        for name, action, facts, row in TABLE
        for mode, verdict in zip(MODES, row, strict=True)
    ],
)
def test_the_table(action: Action, facts: Facts, mode: Mode, verdict: type[Verdict]) -> None:
    assert type(judge(action, facts, mode=mode)) is verdict


def test_the_columns_are_those_of_the_design() -> None:
    assert MODES == ("read-only", "ask", "auto", "full")


def shell(command: str, mode: Mode, **more: object) -> Verdict:
    facts, _ = shell_facts(command)
    action = CallTool(tool="shell", args={"command": command})
    return judge(action, facts, mode=mode, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("reach", "mode"), list(product(REACHES, MODES)))
def test_a_grant_never_makes_a_verdict_stricter_and_never_turns_a_no_into_a_yes(reach: Reach, mode: Mode) -> None:
    facts = Facts(reach=reach, target="a.org:443")
    without = judge(TOOL, facts, mode=mode)
    everything = ("tool: send", "network: a.org:443", "install: a.org:443", "edit: ./*", "shell: ls")
    granted = judge(TOOL, facts, mode=mode, grants=everything)
    assert ORDER.index(type(granted)) >= ORDER.index(type(without))
    if isinstance(without, Deny):
        assert granted == without
    if reach in ("protected", "host"):
        assert granted == without


@pytest.mark.parametrize(("reach", "mode"), list(product(REACHES, ("read-only", "ask", "auto"))))
def test_under_full_taint_nothing_leaves_without_a_question(reach: Reach, mode: Mode) -> None:
    facts = Facts(reach=reach, target="a.org:443", listed=True, handed=True, leaves=True)
    grants = ("network: a.org:443", "tool: fetch", "flow: a.org:80", "flow: other")
    verdict = judge(FETCH, facts, mode=mode, grants=grants, taint=FULL)
    assert not isinstance(verdict, Allow)
    if isinstance(verdict, Ask):
        assert verdict.is_flow
        assert "needs your OK" in verdict.reason


@pytest.mark.parametrize("reach", REACHES)
def test_in_mode_full_taint_holds_nothing_back(reach: Reach) -> None:
    facts = Facts(reach=reach, target="a.org:443", listed=True, leaves=True)
    tainted, clean = (judge(FETCH, facts, mode="full", taint=taint) for taint in (FULL, Taint()))
    assert tainted == clean


@pytest.mark.parametrize(
    ("reach", "flow"),
    [("network", "flow: a.org:443"), ("outside", "flow: fetch of a.org:443"), ("packages", "flow: the package index")],
)
@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_a_yes_to_a_destination_holds_for_that_destination_under_taint(reach: Reach, flow: str, mode: Mode) -> None:
    facts = Facts(reach=reach, target="a.org:443", leaves=True)
    asked = judge(FETCH, facts, mode=mode, taint=FULL)
    assert isinstance(asked, Ask)
    assert asked.pattern == flow
    assert judge(FETCH, facts, mode=mode, taint=FULL, grants=(flow,)) == Allow(rule=flow)
    other = replace(facts, target="b.org:443") if reach != "packages" else replace(facts, reach="outside")
    assert isinstance(judge(FETCH, other, mode=mode, taint=FULL, grants=(flow,)), Ask)


@pytest.mark.parametrize("reach", ["network", "outside", "packages"])
def test_what_the_user_typed_for_the_run_may_leave_but_not_where_the_table_says_no(reach: Reach) -> None:
    facts = Facts(reach=reach, target="a.org:443", leaves=True, may_leave=True)
    for mode in ("ask", "auto"):
        assert isinstance(judge(FETCH, facts, mode=mode, taint=FULL), Allow)
        assert isinstance(judge(FETCH, facts, mode=mode), Allow)
    assert isinstance(judge(FETCH, facts, mode="read-only", taint=FULL), Deny)
    host = Facts(reach="host", leaves=True, may_leave=True)
    assert isinstance(judge(FETCH, host, mode="ask", taint=FULL), Ask)


def test_a_rule_of_the_users_own_is_asked_about_whatever_may_leave() -> None:
    facts = Facts(leaves=True, may_leave=True)
    assert isinstance(judge(TOOL, facts, mode="auto", rules=RULES, taint=FULL), Ask)


@pytest.mark.parametrize("taint", [Taint(), Taint(private=True), Taint(untrusted=True)])
def test_half_a_taint_changes_nothing(taint: Taint) -> None:
    facts = Facts(reach="network", target="a.org:443", listed=True, leaves=True)
    assert judge(FETCH, facts, mode="auto", taint=taint) == Allow(rule="mode auto")


def test_what_stays_here_is_not_asked_about_under_taint() -> None:
    assert isinstance(judge(EDIT, Facts(reach="workspace"), mode="auto", taint=FULL), Allow)
    assert isinstance(judge(CELL, Facts(), mode="ask", taint=FULL), Allow)


def test_reasons_name_the_tool_and_what_it_reaches() -> None:
    assert judge(TOOL, Facts(), mode="auto") == Ask(
        reason="send runs outside the sandbox; what it does may not be undone",
        pattern="tool: send",
        rule="effects that may not be undone",
    )
    assert judge(TOOL, Facts(effect="keyed"), mode="read-only") == Deny(
        "send has effects (keyed), and the mode is read-only", rule="effects that may not be undone"
    )
    assert judge(PACKAGE, Facts(reach="packages", target="polars"), mode="auto") == Ask(
        reason="the package polars would be fetched from the package index and put into the session",
        pattern="install: polars",
        rule="package",
    )
    assert judge(FETCH, Facts(reach="network", target="b.org:443"), mode="auto") == Ask(
        reason="fetch would reach b.org:443", pattern="network: b.org:443", rule="network, other host"
    )
    assert shell("rm build/a", "ask") == Ask(
        reason="rm deletes files", pattern="shell: rm build/a", rule="writes in the workspace"
    )


def test_a_grant_says_yes_to_its_pattern_alone() -> None:
    assert isinstance(shell("git commit -m x", "ask"), Ask)
    assert shell("git commit -m x", "ask", grants={"shell: git commit *"}) == Allow(rule="granted: shell: git commit *")
    assert isinstance(shell("git commit -m x; rm y", "ask", grants={"shell: git commit *"}), Ask)
    assert isinstance(shell("git commit -m x", "read-only", grants={"shell: git commit *"}), Deny)
    assert isinstance(judge(TOOL, Facts(), mode="ask", grants={"tool: sen", "tool: send2", "tool: *"}), Ask)


def test_the_judge_reads_a_command_that_is_no_text_as_a_tool_call() -> None:
    for args in ({}, {"command": 5}, None, "rm x", ["rm"]):
        verdict = judge(CallTool(tool="shell", args=args), Facts(), mode="ask")
        assert isinstance(verdict, Ask)
        assert verdict.pattern == ""


def test_guards_deny_cells_and_only_when_they_are_on() -> None:
    cell = RunCell(code="import socket")
    guards = Guards(imports=frozenset({"math"}))
    assert isinstance(judge(cell, Facts(), mode="full"), Allow)
    assert judge(cell, Facts(), mode="full", guards=guards) == Deny(
        "the guards do not let code import socket", rule="guards"
    )
    assert isinstance(judge(RunCell(code="import math"), Facts(), mode="ask", guards=guards), Allow)


RULES = load_rules("""
[[rule]]
name = "no pushing"
command = ["git", "push"]
verdict = "deny"
[[rule]]
name = "tests are fine"
command = ["make", "test"]
verdict = "allow"
[[rule]]
name = "ask for mail"
tool = "send*"
verdict = "ask"
[[rule]]
name = "any write is fine"
tool = "write_*"
verdict = "allow"
""")


@pytest.mark.parametrize(
    ("command", "verdicts"),
    [
        ("make test", (Deny, Allow, Allow, Allow)),
        ("make test && ls", (Deny, Allow, Allow, Allow)),
        ("make test && make install", (Deny, Ask, Allow, Allow)),
        ("make test > out", (Deny, Ask, Allow, Allow)),
        ("git push", (Deny, Deny, Deny, Deny)),
        ("ls; (cd x && git -C y push origin main)", (Deny, Deny, Deny, Deny)),
        ("$X push", (Deny, Ask, Ask, Ask)),
        ("git pull", (Deny, Ask, Allow, Allow)),
    ],
)
def test_rules_hold_for_every_command_of_a_script(command: str, verdicts: tuple[type[Verdict], ...]) -> None:
    assert tuple(type(shell(command, mode, rules=RULES)) for mode in MODES) == verdicts


def test_a_rule_never_allows_a_protected_file_or_what_the_table_denies() -> None:
    protected = Facts(reach="protected", target="AGENTS.md")
    assert [type(judge(EDIT, protected, mode=mode, rules=RULES)) for mode in MODES] == [Deny, Ask, Deny, Ask]
    inside = Facts(reach="workspace", target="a")
    assert [type(judge(EDIT, inside, mode=mode, rules=RULES)) for mode in MODES] == [Deny, Allow, Allow, Allow]


def test_a_rule_never_allows_what_taint_asks_about() -> None:
    leaving = Facts(reach="network", target="a.org:443", leaves=True)
    verdict = judge(CallTool(tool="write_web", args={}), leaving, mode="auto", rules=RULES, taint=FULL)
    assert isinstance(verdict, Ask)


def test_a_rule_that_asks_is_stricter_than_the_table_and_offers_no_always() -> None:
    verdict = judge(TOOL, Facts(), mode="full", rules=RULES, grants={"tool: send"})
    assert verdict == Ask(reason="your rule 'ask for mail' wants to be asked", rule="ask for mail")
