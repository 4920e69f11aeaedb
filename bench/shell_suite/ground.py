"""A workspace to try shell strings on, and what of it can be told to have changed."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import shutil
import sqlite3
import subprocess
import tarfile
import zipfile
from bz2 import compress
from pathlib import Path

TEXTS = {
    "README.md": "one\ntwo TODO\nthree\n",
    "app.log": "a error\nb ok\nc error\n" * 20,
    "setup.py": "# nothing\n",
    "Makefile": "all:\n\ttouch made\nclean:\n\trm -rf data\n",
    "src/main.py": "import sys\nfrom os import path\n\n\ndef main():\n    print(path, sys)  # TODO\n",
    "src/util.py": "def helper():\n    return 1\n",
    "src/writes.py": "open('by_python', 'w')\n",
    "src/writes.sh": "#!/bin/sh\ntouch by_shell\n",
    "data/sales.csv": "name,amount\na,3\nb,4\n",
    "data/a.txt": "x\ny\n",
    "data/b.txt": "y\nz\n",
    "data/config.json": '{"items": [{"name": "a"}]}\n',
}
GIT = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")


def make(workspace: Path) -> None:
    for name, text in TEXTS.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (workspace / "src/writes.sh").chmod(0o755)
    (workspace / "empty").mkdir()
    log = b"a\nb\nc\n"
    (workspace / "data/log.gz").write_bytes(gzip.compress(log))
    (workspace / "data/log.xz").write_bytes(lzma.compress(log))
    (workspace / "data/log.bz2").write_bytes(compress(log))
    with tarfile.open(workspace / "data/pack.tar.gz", "w:gz") as pack:
        pack.addfile(tarfile.TarInfo("packed"), io.BytesIO())
    with zipfile.ZipFile(workspace / "data/pack.zip", "w") as pack:
        pack.writestr("packed", "x")
    database = sqlite3.connect(workspace / "data/app.db")
    database.executescript("create table t(a); insert into t values (1), (2);")
    database.close()
    if shutil.which("git"):
        for number in range(2):
            (workspace / "app.log").write_text(TEXTS["app.log"] + f"{number}\n", "utf-8")
            for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", f"change {number}"]):
                subprocess.run(["git", *GIT, *words], cwd=workspace, check=True)
    if os.geteuid() == 0:
        workspace.chmod(0o755)


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """Names, kinds, modes, owners, times, attributes, contents. Not when it was last read."""
    found: dict[str, tuple[object, ...]] = {}
    for root, folders, files in os.walk(folder):
        for path in (root, *(os.path.join(root, name) for name in (*folders, *files))):  # noqa: PTH118 - a thousand times over
            found.setdefault(path, _of_one(path))
    return found


def _of_one(path: str) -> tuple[object, ...]:
    now = os.lstat(path)
    mode = now.st_mode
    content = ""
    if mode & 0o170000 == 0o100000:
        content = hashlib.blake2b(Path(path).read_bytes()).hexdigest()
    elif mode & 0o170000 == 0o120000:
        content = os.readlink(path)  # noqa: PTH115
    try:
        attributes = tuple(
            (name, os.getxattr(path, name, follow_symlinks=False)) for name in os.listxattr(path, follow_symlinks=False)
        )
    except OSError:
        attributes = ()
    return (
        mode,
        now.st_uid,
        now.st_gid,
        now.st_nlink,
        now.st_ino,
        now.st_mtime_ns,
        now.st_ctime_ns,
        content,
        attributes,
    )


def difference(before: dict[str, tuple[object, ...]], after: dict[str, tuple[object, ...]]) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
