"""A program: saves the variables that cells leave behind, each in a fork of its process, or restores them in another.

`PYTHON -I trip.py GUEST save|restore FOLDER`, with `[[name, cell, check], ...]` as JSON on stdin. Prints one JSON line
a name: the entries of `save`, or the labels of `restore` with what went wrong in `check`. Standard library only.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

SAVING_S = 30.0
CAP_BYTES = 1 << 30


def guest(name: str) -> Any:
    return importlib.import_module(f"_pinfold_guest.{name}")


def new_session() -> dict[str, Any]:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main.__dict__


def run(code: str, namespace: dict[str, Any]) -> str:
    try:
        exec(compile(code, "<cell 1>", "exec", dont_inherit=True), namespace)
    except BaseException:  # noqa: BLE001 - told to whoever asked
        return traceback.format_exc()
    return ""


def save(folder: Path, cell: str) -> dict[str, object]:
    namespace = new_session()
    error = run(cell, namespace)
    child = os.fork()
    if child == 0:
        os._exit(save_here(folder, namespace))
    waiting = select.poll()
    waiting.register(os.pidfd_open(child))
    if not waiting.poll(SAVING_S * 1000):
        os.kill(child, signal.SIGKILL)
        error += "saving did not end"
    status = os.waitpid(child, 0)[1]
    if status:
        error += f"saving ended with status {status}"
        return {"entries": [], "error": error}
    return {"entries": json.loads((folder / "entries.json").read_text(encoding="utf-8")), "error": error}


def save_here(folder: Path, namespace: dict[str, Any]) -> int:
    def write(digest: str, pieces: list[Any]) -> None:
        (folder / digest).write_bytes(b"".join(map(bytes, pieces)))

    try:
        entries = guest("saving").save(
            namespace, (), write, cap_bytes=CAP_BYTES, each_bytes=CAP_BYTES, seconds=3
        )
        text = json.dumps([entry.row() for entry in entries])
        (folder / "entries.json").write_text(text, encoding="utf-8")
    except BaseException:  # noqa: BLE001 - told to whoever asked
        traceback.print_exc()
        return 1
    return 0


def restore(folder: Path, check: str) -> dict[str, object]:
    namespace = new_session()
    rows = json.loads((folder / "entries.json").read_text(encoding="utf-8"))
    entries = [guest("entries").Entry.of_row(row) for row in rows]

    def read(digest: str) -> bytes:
        return (folder / digest).read_bytes()

    labels = guest("restoring").restore(namespace, entries, read)
    return {"labels": [label.row() for label in labels], "error": run(check, namespace)}


def main() -> None:
    package = ModuleType("_pinfold_guest")
    package.__path__ = [sys.argv[1]]
    sys.modules[package.__name__] = package
    guest("saving")
    for name, cell, check in json.load(sys.stdin):
        folder = Path(sys.argv[3], name)
        folder.mkdir(exist_ok=True)
        told = save(folder, cell) if sys.argv[2] == "save" else restore(folder, check)
        print(json.dumps({"name": name, **told}), flush=True)


if __name__ == "__main__":
    main()
