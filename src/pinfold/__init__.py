"""Pinfold: an agent that works by writing Python, in a persistent, isolated, undoable session."""

from __future__ import annotations

from pinfold._version import __version__

TYPE_CHECKING = False  # `typing` is heavy, and Ctrl-C during its import would end in a traceback
if TYPE_CHECKING:
    from pinfold.app import Agent, Approval, Decision, RunResult
    from pinfold.events import PinfoldError
    from pinfold.tools import tool

__all__ = ["Agent", "Approval", "Decision", "PinfoldError", "RunResult", "__version__", "tool"]

_HOMES = {
    "Agent": "pinfold.app",
    "Approval": "pinfold.app",
    "Decision": "pinfold.app",
    "PinfoldError": "pinfold.events",
    "RunResult": "pinfold.app",
    "tool": "pinfold.tools",
}


def __getattr__(name: str) -> object:
    # `pinfold --version` must not pay for the agent.
    if name not in _HOMES:
        raise AttributeError(f"module 'pinfold' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
