"""Private views of a workspace: what a session with `Spec.view` changed, and bringing it over. See README.md."""

from pinfold.sandbox.views.bringing import changes, merge_view
from pinfold.sandbox.views.place import discard, scan_workspace
from pinfold.sandbox.views.reports import Change, How, LeftOut, MergeReport

__all__ = ["Change", "How", "LeftOut", "MergeReport", "changes", "discard", "merge_view", "scan_workspace"]
