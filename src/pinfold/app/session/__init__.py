"""Builds a live session: sandbox, tools, policy, approvals and checkpoints behind the engine's ports."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.session.answers import check_schema, read_schema
    from pinfold.app.session.checkpoints import checkpoints_in
    from pinfold.app.session.environment import BUILDING, build_for_session, packages_to_build
    from pinfold.app.session.live_session import Listing
    from pinfold.app.session.notes import open_memory, refuse_secrets, search_conversations, search_notes
    from pinfold.app.session.options import CallerTerms, Mount, refuse_overlap
    from pinfold.memory import Note, describe_note

__getattr__ = lazy_names(__name__)
