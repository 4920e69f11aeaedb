"""Decides whether an action may run. Pure: no clock, no disk, no network."""

from __future__ import annotations

from typing import assert_never

from pinfold.events import Action, Allow, Ask, CallTool, Deny, Effect, Mode, RunCell, Verdict

INSTALL = "install"


def judge(action: Action, *, effect: Effect, mode: Mode, granted: frozenset[str]) -> Verdict:
    """`granted` names the tools the user has handed to this session themselves."""
    match action:
        case RunCell():
            return Allow(rule="cells run in the sandbox")
        case CallTool(tool=tool):
            return _judge_tool(tool, effect, mode, granted)
        case _:
            assert_never(action)


def _judge_tool(tool: str, effect: Effect, mode: Mode, granted: frozenset[str]) -> Verdict:
    if effect == "pure":
        return Allow(rule="pure tools change nothing")
    if mode == "read-only" and tool == INSTALL:
        return Deny("a package would be installed, and the mode is read-only")
    if mode == "read-only":
        return Deny(f"{tool} has effects ({effect}), and the mode is read-only")
    if tool in granted:
        return Allow(rule=f"{tool} was granted to this session")
    if mode == "full":
        return Allow(rule="mode full")
    if tool == INSTALL:
        return Ask(
            reason="a package would be fetched from the package index and put into the session",
            pattern="tool: install",
        )
    return Ask(reason=f"{tool} has effects that may not be undone ({effect})", pattern=f"tool: {tool}")
