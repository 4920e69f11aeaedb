"""Where one experiment lives: private folders, a workspace with its ledger, a script for the model.

The ledger is the outside witness of effects: every cell of the script adds one line of its own to it, so
a cell that ran twice is seen whatever the log claims.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT = "Do the work."
_CELL = """\
import os, time
ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(ledger, b"{token}\\n")
os.fsync(ledger)
os.close(ledger)
time.sleep({takes_s})
print("{token} " * {words})
"""
_KEPT = ("log.sqlite", "log.sqlite-wal", "head")


def cell(token: str, *, takes_s: float = 0.01, words: int = 1) -> dict[str, Any]:
    """A call whose effect is one line in the ledger."""
    return {"tool": "python", "args": {"code": _CELL.format(token=token, takes_s=takes_s, words=words)}}


WORK: list[dict[str, Any]] = [
    {"text": "First.", "calls": [cell("t1"), cell("t2")], "delay_s": 0.005},
    {"text": "Then.", "calls": [{"tool": "no_such_tool"}, cell("t3"), cell("t4")], "delay_s": 0.005},
    # So many words that the whole of it becomes a blob.
    {"calls": [cell("t5", words=6000)], "delay_s": 0.005},
    {"text": "Last.", "calls": [cell("t6")], "delay_s": 0.005},
    {"text": "Done.", "usage": {"input_tokens": 3, "output_tokens": 1}},
]
SHORT: list[dict[str, Any]] = [{"text": "One.", "calls": [cell("t1", takes_s=0, words=6000)]}, {"text": "Done."}]
TALK: list[dict[str, Any]] = [{"text": "Done."}]


@dataclass(frozen=True, slots=True)
class Place:
    root: Path
    data: Path
    workspace: Path

    @property
    def script(self) -> Path:
        return self.root / "script.jsonl"

    @property
    def complaints(self) -> Path:
        """What the last process said on stderr."""
        return self.root / "stderr"

    @property
    def sessions(self) -> Path:
        return self.data / "pinfold" / "sessions"

    def environment(self) -> dict[str, str]:
        return {
            "XDG_DATA_HOME": str(self.data),
            # Its own Python, so that nothing is said of an environment that is not built.
            "PINFOLD_SANDBOX_PYTHON": sys.executable,
            # A helper would write into these folders while they are removed.
            "PINFOLD_SANDBOX_WARM": "off",
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
        }

    def session_folder(self) -> Path | None:
        """The newest session's folder."""
        if not self.sessions.is_dir():
            return None
        folders = sorted(self.sessions.glob("s_*"), key=lambda path: path.stat().st_ctime_ns)
        return folders[-1] if folders else None

    def ledger(self) -> Counter[str]:
        path = self.workspace / "ledger"
        return Counter(path.read_text(encoding="utf-8").split()) if path.exists() else Counter()

    def run(self) -> list[str]:
        return ["run", "--json", *self._how(), PROMPT]

    def resume(self, session: str, prompt: str | None = None) -> list[str]:
        """As a user would: a session that knows itself needs no flags, one that holds nothing yet does."""
        if prompt is None:
            return ["resume", session, "--json"]
        return ["resume", session, "--json", *self._how(), prompt]

    def _how(self) -> list[str]:
        return [
            *("--model", f"scripted:{self.script}"),
            *("--sandbox", "unsafe-local"),
            *("--workspace", str(self.workspace)),
        ]


def new_place(root: Path, script: list[dict[str, Any]], *, data: Path | None = None) -> Place:
    """Folders for one experiment; `data` may be elsewhere, say on a disk that is about to be full."""
    place = Place(root=root, data=data or root / "data", workspace=root / "workspace")
    place.workspace.mkdir(parents=True)
    place.script.write_text("".join(json.dumps(line) + "\n" for line in script), encoding="utf-8")
    return place


def copy_store(folder: Path, target: Path) -> Path:
    """The store's files as they lie, to be looked at without disturbing them."""
    target.mkdir(parents=True)
    for name in _KEPT:
        if (folder / name).exists():
            shutil.copyfile(folder / name, target / name)
    return target
