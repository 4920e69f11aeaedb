"""The composition root: configuration, sessions on disk, their owners, and `Agent`."""

from pinfold.app.agent import Agent, RunResult
from pinfold.app.approving import Approval, Approve, Decision
from pinfold.app.config import ChatConfig, Config, Loaded, PictureMode, config_schema, load_config
from pinfold.app.environment import EnvironmentStanding, environment_standing
from pinfold.app.errors import CheckpointError, ConfigError, NoSuchSession, OwnerGone, SessionBusy, TurnError
from pinfold.app.forking import fork
from pinfold.app.live import LiveSession, Options, Standing, own
from pinfold.app.mounts import mounts_of
from pinfold.app.opening import existing, new_session_options, resumed_options
from pinfold.app.operator import start_operator_log
from pinfold.app.owner import Feed, Link, RemoteSession, attach, configure, rename, revoke, take
from pinfold.app.paths import current_folder, forget_scratch, forget_unbegun, input_of, scratch_folder
from pinfold.app.reading import cells_of, read_session, top_of, what_stays
from pinfold.app.sent import Departure, departures
from pinfold.app.shelf import Shelf, Shelved
from pinfold.app.speaking import Opening, Spoken, spoken
from pinfold.app.tasks import background
from pinfold.engine import CommandRefused, changed_in_words, rewound_in_words
from pinfold.log import export_bundle
from pinfold.model import BUILTIN, record
from pinfold.sandbox import named_paths
from pinfold.sandbox.environment import Environment, Progress
from pinfold.sandbox.environment import build as build_environment

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
    "export_bundle",
    "forget_scratch",
    "forget_unbegun",
    "fork",
    "input_of",
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
    "top_of",
    "what_stays",
]
