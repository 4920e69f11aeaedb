"""Private views of a workspace: what a session with `Spec.view` changed, and bringing it over. See README.md."""

from pinfold.sandbox.views.bringing import bring_over, changes
from pinfold.sandbox.views.place import discard, seen
from pinfold.sandbox.views.reports import Brought, Change, How, LeftOut

__all__ = ["Brought", "Change", "How", "LeftOut", "bring_over", "changes", "discard", "seen"]
