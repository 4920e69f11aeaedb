"""Pinfold: an agent that works by writing Python, in a persistent, isolated, undoable session."""

from __future__ import annotations

from pinfold._version import __version__

TYPE_CHECKING = False  # `typing` is heavy, and Ctrl-C during its import would end in a traceback
if TYPE_CHECKING:
    from pinfold.app import Agent, Approval, Decision, RunResult
    from pinfold.app.errors import CheckpointError, ConfigError, NoSuchSession, OwnerGone, SessionBusy, TurnError
    from pinfold.engine import CommandRefused
    from pinfold.events import ContextTooLong, PinfoldError, RequestFailed
    from pinfold.log import LogError
    from pinfold.memory import MemoryUnusable
    from pinfold.model.errors import ModelError
    from pinfold.sandbox import SandboxError, SandboxUnavailable
    from pinfold.tools import tool
    from pinfold.tools.results import ToolError

__all__ = [
    "Agent",
    "Approval",
    "CheckpointError",
    "CommandRefused",
    "ConfigError",
    "ContextTooLong",
    "Decision",
    "LogError",
    "MemoryUnusable",
    "ModelError",
    "NoSuchSession",
    "OwnerGone",
    "PinfoldError",
    "RequestFailed",
    "RunResult",
    "SandboxError",
    "SandboxUnavailable",
    "SessionBusy",
    "ToolError",
    "TurnError",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> object:
    # Loaded on use: `pinfold --version` must not load the agent.
    from pinfold.app.lazy_names import lazy_names

    return lazy_names(__name__)(name)
