"""Private views of a workspace: what a session with `Spec.view` changed, and merging it. See README.md."""

from pinfold.sandbox.views.merge import Change, How, LeftOut, MergeReport, merge_view
from pinfold.sandbox.views.view_folder import discard

__all__ = ["Change", "How", "LeftOut", "MergeReport", "discard", "merge_view"]
