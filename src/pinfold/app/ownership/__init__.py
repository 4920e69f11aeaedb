"""Which process owns a session: the owner's socket, the daemon, the warm helper; what killed processes left."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.ownership.cleanup import clean_up
    from pinfold.app.ownership.daemon import (
        Daemon,
        RunningServer,
        ask_daemon,
        record_server,
        running_server,
        stop_daemon,
        stop_server,
    )
    from pinfold.app.ownership.warm_helper import (
        PRELOADED,
        Helper,
        can_rehearse,
        keep_launcher,
        list_watched_files,
        rehearsal_folder,
        running_helper,
        stop_helper,
    )

__getattr__ = lazy_names(__name__)
