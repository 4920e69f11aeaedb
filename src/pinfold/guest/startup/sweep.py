"""Names the control groups of launchers that are gone, and removes them if told to. Prints a JSON list."""

from __future__ import annotations

import json
import os
import sys

from ..kernel.groups import leftovers, remove_tree


def main(arguments: list[str]) -> None:
    """Arguments: `list` or `remove`."""
    try:
        found = sorted(leftovers())
    except OSError:
        found = []
    if arguments == ["remove"]:
        for folder in found:
            remove_tree(folder)
        found = [folder for folder in found if not os.path.exists(folder)]
    sys.stdout.write(json.dumps(found))
