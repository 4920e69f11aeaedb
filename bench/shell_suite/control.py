"""Run inside a sandbox: runs every string of cases.json in a copy of the workspace, free to write, and tells which changed it."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PLACE, MADE = Path("/tmp/case"), Path("/tmp/template")


def fresh() -> None:
    subprocess.run(["rm", "-rf", str(PLACE)], check=False)
    subprocess.run(["cp", "-a", str(MADE), str(PLACE)], check=True)


def seen() -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for root, folders, files in os.walk(PLACE):
        for name in (".", *folders, *files):
            path = f"{root}/{name}"
            now = os.lstat(path)
            attributes = tuple(os.listxattr(path, follow_symlinks=False))
            found[path] = now.st_mode, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns, attributes
    return found


def main() -> None:
    workspace, cases = Path.cwd(), json.loads(Path("cases.json").read_text())
    shutil.copytree(workspace, MADE, symlinks=True)
    fresh()
    before = seen()
    changed: list[str] = []
    for command in cases:
        with suppress(subprocess.TimeoutExpired, ValueError):
            subprocess.run(
                # A shell in between: some end their parent.
                ["/bin/sh", "-c", '/bin/bash -c "$1"; wait', "sh", command],
                cwd=PLACE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=3,
                start_new_session=True,
                check=False,
            )
        if "late" in command:
            subprocess.run(["sleep", "0.4"], check=False)
        if seen() != before:
            changed.append(command)
            fresh()
            before = seen()
    print(json.dumps(changed), file=sys.stdout)


main()
