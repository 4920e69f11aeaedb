"""The history of a workspace's files: what each cell changed, and the way back and forth.

- `versions.py` the interface: `Versions` and what it reports
- `history.py` the tree of states, and what the workspace must be to be at one of them; pure
- `seeing.py` what the workspace holds now; `watch.py` (inotify) where to look
- `putting.py` makes it what it must be; `top.py` every access to it, never through a link
- `store.py` contents by their hash; `journal.py` what happened, for another process to go on; `entries.py` what a path can be
"""

from pinfold.sandbox.versions.entries import Why
from pinfold.sandbox.versions.versions import (
    ENTRY_CAP,
    FILE_CAP,
    TOTAL_CAP,
    WATCHES,
    Changes,
    Coverage,
    Kept,
    Missed,
    NotCovered,
    Restored,
    StateUnknown,
    Tally,
    Versions,
)

__all__ = [
    "ENTRY_CAP",
    "FILE_CAP",
    "TOTAL_CAP",
    "WATCHES",
    "Changes",
    "Coverage",
    "Kept",
    "Missed",
    "NotCovered",
    "Restored",
    "StateUnknown",
    "Tally",
    "Versions",
    "Why",
]
