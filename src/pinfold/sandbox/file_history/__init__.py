"""The history of a workspace's files: what each cell changed, and the way back and forth. See README.md."""

from pinfold.sandbox.file_history.entries import Why
from pinfold.sandbox.file_history.reports import Changes, Coverage, KeptVersion, Missed, NotCovered, Restored, Tally
from pinfold.sandbox.file_history.versions import ENTRY_CAP, FILE_CAP, TOTAL_CAP, WATCHES, StateUnknown, Versions

__all__ = [
    "ENTRY_CAP",
    "FILE_CAP",
    "TOTAL_CAP",
    "WATCHES",
    "Changes",
    "Coverage",
    "KeptVersion",
    "Missed",
    "NotCovered",
    "Restored",
    "StateUnknown",
    "Tally",
    "Versions",
    "Why",
]
