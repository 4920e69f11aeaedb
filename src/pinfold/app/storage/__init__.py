"""Sessions on disk: the store, locks, reading, and exports."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.storage.session_store import (
        Claim,
        SessionNode,
        SessionTree,
        build_session_tree,
        claim,
        list_nodes,
    )

__getattr__ = lazy_names(__name__)
