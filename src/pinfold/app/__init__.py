"""The composition root: configuration, sessions on disk, their owners, and `Agent`."""

from pinfold.app.agent import Agent, RunResult
from pinfold.app.approving import Approval, Approve, Decision
from pinfold.app.checkpoints import Checkpoint, Restored, checkpoints_in
from pinfold.app.config import Config, Loaded, config_schema, load_config
from pinfold.app.environment import EnvironmentStanding, environment_standing
from pinfold.app.errors import CheckpointError, ConfigError, NoSuchSession, OwnerGone, SessionBusy, TurnError
from pinfold.app.forking import fork
from pinfold.app.live import LiveSession, Options, Standing, own
from pinfold.app.mounts import mounts_of
from pinfold.app.offered import Answered, Offered, RanCell
from pinfold.app.offering import ANYONE, Offering, Terms, server_token
from pinfold.app.opening import existing, new_session_options, resumed_options
from pinfold.app.operator import start_operator_log
from pinfold.app.owner import Feed, Link, RemoteSession, attach, configure, rename, take
from pinfold.app.paths import current_folder, forget_scratch
from pinfold.app.reading import cells_of, read_session, what_stays
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
    "ANYONE",
    "BUILTIN",
    "Agent",
    "Answered",
    "Approval",
    "Approve",
    "Checkpoint",
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
    "Offered",
    "Offering",
    "Opening",
    "Options",
    "OwnerGone",
    "Progress",
    "RanCell",
    "RemoteSession",
    "Restored",
    "RunResult",
    "SessionBusy",
    "Shelf",
    "Shelved",
    "Spoken",
    "Standing",
    "Terms",
    "TurnError",
    "attach",
    "background",
    "build_environment",
    "cells_of",
    "changed_in_words",
    "checkpoints_in",
    "config_schema",
    "configure",
    "current_folder",
    "departures",
    "environment_standing",
    "existing",
    "export_bundle",
    "forget_scratch",
    "fork",
    "load_config",
    "mounts_of",
    "named_paths",
    "new_session_options",
    "own",
    "read_session",
    "record",
    "rename",
    "resumed_options",
    "rewound_in_words",
    "server_token",
    "spoken",
    "start_operator_log",
    "take",
    "what_stays",
]
