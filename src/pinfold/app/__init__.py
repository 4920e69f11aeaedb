"""The composition root: configuration, sessions on disk, their owners, and `Agent`."""

from __future__ import annotations

TYPE_CHECKING = False  # a command loads what it needs of all this, and most need little
if TYPE_CHECKING:
    from pinfold.app.clients.agent import Agent, RunResult
    from pinfold.app.clients.session_fork import fork
    from pinfold.app.clients.submit import Opening, Submission, submit_and_follow
    from pinfold.app.config.layers import ChatConfig, Config, Loaded, PictureMode, config_schema, load_config
    from pinfold.app.errors import CheckpointError, ConfigError, NoSuchSession, OwnerGone, SessionBusy, TurnError
    from pinfold.app.ownership.owner import Feed, Link, RemoteSession, acquire, configure, connect, rename, revoke
    from pinfold.app.paths import (
        current_folder,
        forget_scratch,
        input_of,
        is_too_wide,
        remove_unstarted,
        scratch_folder,
    )
    from pinfold.app.session.approvals import Approval, Approve, Decision
    from pinfold.app.session.closing_notices import pop_closing_notices
    from pinfold.app.session.environment import EnvironmentStatus, build_environment, environment_status
    from pinfold.app.session.live_session import LiveSession, Options, SessionStatus, open_session
    from pinfold.app.session.mounts import mounts_of
    from pinfold.app.session.operator_log import start_operator_log
    from pinfold.app.session.session_options import check_paths, new_session_options, resume_options
    from pinfold.app.storage.session_reader import label_cells, list_folder, list_lasting_effects, read_session
    from pinfold.app.storage.session_store import SessionStore, StoredSession
    from pinfold.app.tasks import background
    from pinfold.app.trust.outbound import OutboundTotal, sum_outbound
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
    "Agent": "pinfold.app.clients.agent",
    "Approval": "pinfold.app.session.approvals",
    "Approve": "pinfold.app.session.approvals",
    "ChatConfig": "pinfold.app.config.layers",
    "CheckpointError": "pinfold.app.errors",
    "CommandRefused": "pinfold.engine",
    "Config": "pinfold.app.config.layers",
    "ConfigError": "pinfold.app.errors",
    "Decision": "pinfold.app.session.approvals",
    "OutboundTotal": "pinfold.app.trust.outbound",
    "Environment": "pinfold.sandbox.environment",
    "EnvironmentStatus": "pinfold.app.session.environment",
    "Feed": "pinfold.app.ownership.owner",
    "Link": "pinfold.app.ownership.owner",
    "LiveSession": "pinfold.app.session.live_session",
    "Loaded": "pinfold.app.config.layers",
    "NoSuchSession": "pinfold.app.errors",
    "Opening": "pinfold.app.clients.submit",
    "Options": "pinfold.app.session.live_session",
    "OwnerGone": "pinfold.app.errors",
    "PictureMode": "pinfold.app.config.layers",
    "Progress": "pinfold.sandbox.environment",
    "RemoteSession": "pinfold.app.ownership.owner",
    "RunResult": "pinfold.app.clients.agent",
    "SessionBusy": "pinfold.app.errors",
    "SessionStore": "pinfold.app.storage.session_store",
    "StoredSession": "pinfold.app.storage.session_store",
    "Submission": "pinfold.app.clients.submit",
    "SessionStatus": "pinfold.app.session.live_session",
    "TurnError": "pinfold.app.errors",
    "connect": "pinfold.app.ownership.owner",
    "background": "pinfold.app.tasks",
    "build_environment": "pinfold.app.session.environment",
    "label_cells": "pinfold.app.storage.session_reader",
    "changed_in_words": "pinfold.engine",
    "config_schema": "pinfold.app.config.layers",
    "configure": "pinfold.app.ownership.owner",
    "current_folder": "pinfold.app.paths",
    "sum_outbound": "pinfold.app.trust.outbound",
    "environment_status": "pinfold.app.session.environment",
    "check_paths": "pinfold.app.session.session_options",
    "forget_scratch": "pinfold.app.paths",
    "remove_unstarted": "pinfold.app.paths",
    "fork": "pinfold.app.clients.session_fork",
    "input_of": "pinfold.app.paths",
    "is_too_wide": "pinfold.app.paths",
    "load_config": "pinfold.app.config.layers",
    "mounts_of": "pinfold.app.session.mounts",
    "parse_named_paths": "pinfold.sandbox",
    "new_session_options": "pinfold.app.session.session_options",
    "open_session": "pinfold.app.session.live_session",
    "read_session": "pinfold.app.storage.session_reader",
    "record": "pinfold.model",
    "rename": "pinfold.app.ownership.owner",
    "resume_options": "pinfold.app.session.session_options",
    "revoke": "pinfold.app.ownership.owner",
    "rewound_in_words": "pinfold.engine",
    "scratch_folder": "pinfold.app.paths",
    "submit_and_follow": "pinfold.app.clients.submit",
    "start_operator_log": "pinfold.app.session.operator_log",
    "acquire": "pinfold.app.ownership.owner",
    "pop_closing_notices": "pinfold.app.session.closing_notices",
    "list_folder": "pinfold.app.storage.session_reader",
    "list_lasting_effects": "pinfold.app.storage.session_reader",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pinfold.app' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
