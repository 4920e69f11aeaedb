"""What a host that was killed left behind, as far as the sandbox made it: processes, control groups, temporary folders."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pinfold.sandbox.guests import end_marked
from pinfold.sandbox.kernel.folders import find_abandoned, in_use, remove_folder
from pinfold.sandbox.kernel.processes import strays
from pinfold.sandbox.providers.launcher import GUEST

__all__ = ["in_use", "remove_folder", "sweep_leftovers"]
_SWEEP_S = 30.0


def sweep_leftovers(*, dry_run: bool) -> Iterator[tuple[str, str]]:
    """End and remove it, or only name it; yields the kind and the name of each."""
    for stray in strays():
        if stray.end(dry_run=dry_run):
            yield "process", f"{stray.pid} ({stray.program})"
    folders = find_abandoned()
    for folder in folders:
        yield from (("process", str(pid)) for pid in end_marked(folder, dry_run=dry_run))
    for group in _groups("list" if dry_run else "remove"):
        yield "control group", group
    for folder in folders:
        if dry_run or _remove_abandoned(folder):
            yield "folder", str(folder)


def _groups(what: str) -> list[str]:
    if sys.platform != "linux":
        return []
    program = [sys.executable, "-I", str(GUEST / "__main__.py"), "sweep", what]
    try:
        done = subprocess.run(program, capture_output=True, timeout=_SWEEP_S, check=True, cwd="/")
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _remove_abandoned(folder: Path) -> bool:
    # Only a folder that carried a lock is known to be ours with all that is in it.
    if "." in folder.name.lstrip("."):
        return remove_folder(folder)
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
