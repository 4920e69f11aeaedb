"""The composition root: configuration, sessions on disk, their owners, and `Agent`."""

from __future__ import annotations

TYPE_CHECKING = False  # a command loads what it needs of all this, and most need little
if TYPE_CHECKING:
    from pinfold.app.agent import Agent, RunResult
    from pinfold.app.approving import Approval, Approve, Decision
    from pinfold.app.config import ChatConfig, Config, Loaded, PictureMode, config_schema, load_config
    from pinfold.app.environment import EnvironmentStanding, build_environment, environment_standing
    from pinfold.app.errors import (
        CheckpointError,
        ConfigError,
        NoSuchSession,
        OwnerGone,
        SessionBusy,
        TurnError,
    )
    from pinfold.app.forking import fork
    from pinfold.app.live import LiveSession, Options, Standing, own
    from pinfold.app.mounts import mounts_of
    from pinfold.app.opening import existing, new_session_options, resumed_options
    from pinfold.app.operator import start_operator_log
    from pinfold.app.owner import Feed, Link, RemoteSession, attach, configure, rename, revoke, take
    from pinfold.app.parting import take_parting
    from pinfold.app.paths import (
        current_folder,
        forget_scratch,
        forget_unbegun,
        input_of,
        is_too_wide,
        scratch_folder,
    )
    from pinfold.app.reading import cells_of, read_session, top_of, what_stays
    from pinfold.app.sent import Departure, departures
    from pinfold.app.shelf import Shelf, Shelved
    from pinfold.app.speaking import Opening, Spoken, spoken
    from pinfold.app.tasks import background
    from pinfold.engine import CommandRefused, changed_in_words, rewound_in_words
    from pinfold.model import BUILTIN, record
    from pinfold.sandbox import named_paths
    from pinfold.sandbox.environment import Environment, Progress

__all__ = [
    "BUILTIN",
    "Agent",
    "Approval",
    "Approve",
    "ChatConfig",
    "CheckpointError",
    "CommandRefused",
    "Config",
    "ConfigError",
    "Decision",
    "Departure",
    "Environment",
    "EnvironmentStanding",
    "Feed",
    "Link",
    "LiveSession",
    "Loaded",
    "NoSuchSession",
    "Opening",
    "Options",
    "OwnerGone",
    "PictureMode",
    "Progress",
    "RemoteSession",
    "RunResult",
    "SessionBusy",
    "Shelf",
    "Shelved",
    "Spoken",
    "Standing",
    "TurnError",
    "attach",
    "background",
    "build_environment",
    "cells_of",
    "changed_in_words",
    "config_schema",
    "configure",
    "current_folder",
    "departures",
    "environment_standing",
    "existing",
    "forget_scratch",
    "forget_unbegun",
    "fork",
    "input_of",
    "is_too_wide",
    "load_config",
    "mounts_of",
    "named_paths",
    "new_session_options",
    "own",
    "read_session",
    "record",
    "rename",
    "resumed_options",
    "revoke",
    "rewound_in_words",
    "scratch_folder",
    "spoken",
    "start_operator_log",
    "take",
    "take_parting",
    "top_of",
    "what_stays",
]

_HOMES = {
    "BUILTIN": "pinfold.model",
    "Agent": "pinfold.app.agent",
    "Approval": "pinfold.app.approving",
    "Approve": "pinfold.app.approving",
    "ChatConfig": "pinfold.app.config",
    "CheckpointError": "pinfold.app.errors",
    "CommandRefused": "pinfold.engine",
    "Config": "pinfold.app.config",
    "ConfigError": "pinfold.app.errors",
    "Decision": "pinfold.app.approving",
    "Departure": "pinfold.app.sent",
    "Environment": "pinfold.sandbox.environment",
    "EnvironmentStanding": "pinfold.app.environment",
    "Feed": "pinfold.app.owner",
    "Link": "pinfold.app.owner",
    "LiveSession": "pinfold.app.live",
    "Loaded": "pinfold.app.config",
    "NoSuchSession": "pinfold.app.errors",
    "Opening": "pinfold.app.speaking",
    "Options": "pinfold.app.live",
    "OwnerGone": "pinfold.app.errors",
    "PictureMode": "pinfold.app.config",
    "Progress": "pinfold.sandbox.environment",
    "RemoteSession": "pinfold.app.owner",
    "RunResult": "pinfold.app.agent",
    "SessionBusy": "pinfold.app.errors",
    "Shelf": "pinfold.app.shelf",
    "Shelved": "pinfold.app.shelf",
    "Spoken": "pinfold.app.speaking",
    "Standing": "pinfold.app.live",
    "TurnError": "pinfold.app.errors",
    "attach": "pinfold.app.owner",
    "background": "pinfold.app.tasks",
    "build_environment": "pinfold.app.environment",
    "cells_of": "pinfold.app.reading",
    "changed_in_words": "pinfold.engine",
    "config_schema": "pinfold.app.config",
    "configure": "pinfold.app.owner",
    "current_folder": "pinfold.app.paths",
    "departures": "pinfold.app.sent",
    "environment_standing": "pinfold.app.environment",
    "existing": "pinfold.app.opening",
    "forget_scratch": "pinfold.app.paths",
    "forget_unbegun": "pinfold.app.paths",
    "fork": "pinfold.app.forking",
    "input_of": "pinfold.app.paths",
    "is_too_wide": "pinfold.app.paths",
    "load_config": "pinfold.app.config",
    "mounts_of": "pinfold.app.mounts",
    "named_paths": "pinfold.sandbox",
    "new_session_options": "pinfold.app.opening",
    "own": "pinfold.app.live",
    "read_session": "pinfold.app.reading",
    "record": "pinfold.model",
    "rename": "pinfold.app.owner",
    "resumed_options": "pinfold.app.opening",
    "revoke": "pinfold.app.owner",
    "rewound_in_words": "pinfold.engine",
    "scratch_folder": "pinfold.app.paths",
    "spoken": "pinfold.app.speaking",
    "start_operator_log": "pinfold.app.operator",
    "take": "pinfold.app.owner",
    "take_parting": "pinfold.app.parting",
    "top_of": "pinfold.app.reading",
    "what_stays": "pinfold.app.reading",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pinfold.app' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
