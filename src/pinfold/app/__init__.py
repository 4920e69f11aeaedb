"""The composition root: configuration, sessions on disk, their owners, and `Agent`."""

from __future__ import annotations

TYPE_CHECKING = False  # a command loads what it needs of all this, and most need little
if TYPE_CHECKING:
    from pinfold.app.agent import Agent, RunResult
    from pinfold.app.approvals import Approval, Approve, Decision
    from pinfold.app.closing_notices import pop_closing_notices
    from pinfold.app.config import ChatConfig, Config, Loaded, PictureMode, config_schema, load_config
    from pinfold.app.environment import EnvironmentStatus, build_environment, environment_status
    from pinfold.app.errors import CheckpointError, ConfigError, NoSuchSession, OwnerGone, SessionBusy, TurnError
    from pinfold.app.mounts import mounts_of
    from pinfold.app.operator_log import start_operator_log
    from pinfold.app.outbound import OutboundTotal, sum_outbound
    from pinfold.app.owner import Feed, Link, RemoteSession, acquire, configure, connect, rename, revoke
    from pinfold.app.paths import (
        current_folder,
        forget_scratch,
        input_of,
        is_too_wide,
        remove_unstarted,
        scratch_folder,
    )
    from pinfold.app.session import LiveSession, Options, SessionStatus, open_session
    from pinfold.app.session_fork import fork
    from pinfold.app.session_options import check_paths, new_session_options, resume_options
    from pinfold.app.session_reader import label_cells, list_folder, list_lasting_effects, read_session
    from pinfold.app.session_store import SessionStore, StoredSession
    from pinfold.app.submit import Opening, Submission, submit_and_follow
    from pinfold.app.tasks import background
    from pinfold.engine import CommandRefused, changed_in_words, rewound_in_words
    from pinfold.model import BUILTIN, record
    from pinfold.sandbox import parse_named_paths
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
    "Environment",
    "EnvironmentStatus",
    "Feed",
    "Link",
    "LiveSession",
    "Loaded",
    "NoSuchSession",
    "Opening",
    "Options",
    "OutboundTotal",
    "OwnerGone",
    "PictureMode",
    "Progress",
    "RemoteSession",
    "RunResult",
    "SessionBusy",
    "SessionStatus",
    "SessionStore",
    "StoredSession",
    "Submission",
    "TurnError",
    "acquire",
    "background",
    "build_environment",
    "changed_in_words",
    "check_paths",
    "config_schema",
    "configure",
    "connect",
    "current_folder",
    "environment_status",
    "forget_scratch",
    "fork",
    "input_of",
    "is_too_wide",
    "label_cells",
    "list_folder",
    "list_lasting_effects",
    "load_config",
    "mounts_of",
    "new_session_options",
    "open_session",
    "parse_named_paths",
    "pop_closing_notices",
    "read_session",
    "record",
    "remove_unstarted",
    "rename",
    "resume_options",
    "revoke",
    "rewound_in_words",
    "scratch_folder",
    "start_operator_log",
    "submit_and_follow",
    "sum_outbound",
]

_HOMES = {
    "BUILTIN": "pinfold.model",
    "Agent": "pinfold.app.agent",
    "Approval": "pinfold.app.approvals",
    "Approve": "pinfold.app.approvals",
    "ChatConfig": "pinfold.app.config",
    "CheckpointError": "pinfold.app.errors",
    "CommandRefused": "pinfold.engine",
    "Config": "pinfold.app.config",
    "ConfigError": "pinfold.app.errors",
    "Decision": "pinfold.app.approvals",
    "OutboundTotal": "pinfold.app.outbound",
    "Environment": "pinfold.sandbox.environment",
    "EnvironmentStatus": "pinfold.app.environment",
    "Feed": "pinfold.app.owner",
    "Link": "pinfold.app.owner",
    "LiveSession": "pinfold.app.session",
    "Loaded": "pinfold.app.config",
    "NoSuchSession": "pinfold.app.errors",
    "Opening": "pinfold.app.submit",
    "Options": "pinfold.app.session",
    "OwnerGone": "pinfold.app.errors",
    "PictureMode": "pinfold.app.config",
    "Progress": "pinfold.sandbox.environment",
    "RemoteSession": "pinfold.app.owner",
    "RunResult": "pinfold.app.agent",
    "SessionBusy": "pinfold.app.errors",
    "SessionStore": "pinfold.app.session_store",
    "StoredSession": "pinfold.app.session_store",
    "Submission": "pinfold.app.submit",
    "SessionStatus": "pinfold.app.session",
    "TurnError": "pinfold.app.errors",
    "connect": "pinfold.app.owner",
    "background": "pinfold.app.tasks",
    "build_environment": "pinfold.app.environment",
    "label_cells": "pinfold.app.session_reader",
    "changed_in_words": "pinfold.engine",
    "config_schema": "pinfold.app.config",
    "configure": "pinfold.app.owner",
    "current_folder": "pinfold.app.paths",
    "sum_outbound": "pinfold.app.outbound",
    "environment_status": "pinfold.app.environment",
    "check_paths": "pinfold.app.session_options",
    "forget_scratch": "pinfold.app.paths",
    "remove_unstarted": "pinfold.app.paths",
    "fork": "pinfold.app.session_fork",
    "input_of": "pinfold.app.paths",
    "is_too_wide": "pinfold.app.paths",
    "load_config": "pinfold.app.config",
    "mounts_of": "pinfold.app.mounts",
    "parse_named_paths": "pinfold.sandbox",
    "new_session_options": "pinfold.app.session_options",
    "open_session": "pinfold.app.session",
    "read_session": "pinfold.app.session_reader",
    "record": "pinfold.model",
    "rename": "pinfold.app.owner",
    "resume_options": "pinfold.app.session_options",
    "revoke": "pinfold.app.owner",
    "rewound_in_words": "pinfold.engine",
    "scratch_folder": "pinfold.app.paths",
    "submit_and_follow": "pinfold.app.submit",
    "start_operator_log": "pinfold.app.operator_log",
    "acquire": "pinfold.app.owner",
    "pop_closing_notices": "pinfold.app.closing_notices",
    "list_folder": "pinfold.app.session_reader",
    "list_lasting_effects": "pinfold.app.session_reader",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pinfold.app' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
