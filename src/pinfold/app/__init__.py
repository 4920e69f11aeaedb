"""The composition root: configuration, sessions on disk, their owners, and `Agent`.

Each name is listed once, in the block below. Type checkers read it as code; `__getattr__` parses it when a name is used,
so that a command loads only the modules it needs. The folders of app do the same. Front ends import only from these
packages.
"""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.clients.agent import Agent, RunResult
    from pinfold.app.clients.session_fork import fork
    from pinfold.app.clients.submit import Opening, event_of, follow, is_end, rewind, submit_and_follow
    from pinfold.app.config.layers import config_schema, load_config
    from pinfold.app.config.schema import PictureMode
    from pinfold.app.errors import CheckpointError, ConfigError, NoSuchSession, OwnerGone, SessionBusy, TurnError
    from pinfold.app.ownership.owner import Link, RemoteSession, acquire, configure, connect
    from pinfold.app.paths import (
        current_folder,
        forget_scratch,
        input_of,
        is_too_wide,
        private_dir,
        remove_unstarted,
        scratch_folder,
        state_dir,
        warm_dir,
    )
    from pinfold.app.session.approvals import Approval, Approve, Decision
    from pinfold.app.session.environment import EnvironmentStatus, build_environment, environment_status
    from pinfold.app.session.live_session import LiveSession, open_session
    from pinfold.app.session.operator_log import start_operator_log
    from pinfold.app.session.options import (
        Options,
        SessionStatus,
        check_paths,
        mounts_of,
        new_session_options,
        resume_options,
    )
    from pinfold.app.session.protected_files import pop_closing_notices
    from pinfold.app.storage.session_store import (
        SessionStore,
        StoredSession,
        label_cells,
        list_folder,
        list_lasting_effects,
        read_session,
    )
    from pinfold.app.tasks import background
    from pinfold.app.trust.privacy import OutboundTotal, sum_outbound
    from pinfold.engine import CommandRefused, changed_in_words, compacted_in_words, plan_in_words, rewound_in_words
    from pinfold.log import BlobMissing, Subscription
    from pinfold.model import BUILTIN
    from pinfold.sandbox import PageQuery, PageRefused, Variable, VariablePage, parse_named_paths
    from pinfold.sandbox.environment import Environment, Progress
    from pinfold.sandbox.guards.set_id_files import begin_search


__getattr__ = lazy_names(__name__)
