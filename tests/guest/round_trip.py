"""A program: saves the variables that cells leave behind, each in a fork of its process, or restores them in another.

`PYTHON -I round_trip.py GUEST save FOLDER` or `restore FOLDER SUBFOLDER`, with `[[name, cell, check], ...]` as JSON on stdin.
Prints one JSON line a name: the entries that were saved, or the labels of what was restored and what went wrong in the
check. What is restored is also saved again, in the subfolder `again`. Or `saves LIMITS`, with a list of cells on stdin.
Standard library only.
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

SAVING_S = 120
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
    return save_all(folder, namespace, error)


def save_all(folder: Path, namespace: dict[str, Any], error: str) -> dict[str, object]:
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
        entries = guest("saved.serialization").save(
            namespace, (), write, cap_bytes=CAP_BYTES, each_bytes=CAP_BYTES, seconds=float(os.environ["SECONDS"])
        )
        text = json.dumps([entry.row() for entry in entries])
        (folder / "entries.json").write_text(text, encoding="utf-8")
    except BaseException:  # noqa: BLE001 - told to whoever asked
        traceback.print_exc()
        return 1
    return 0


def restore(folder: Path, check: str) -> dict[str, object]:
    """And save it again, before the check changes it."""
    namespace = new_session()
    rows = json.loads((folder / "entries.json").read_text(encoding="utf-8"))
    entries = [guest("saved.deserialization").Entry(**row) for row in rows]

    def read(digest: str) -> bytes:
        return (folder / digest).read_bytes()

    labels = guest("saved.deserialization").restore(namespace, entries, read, seconds=float(os.environ["SECONDS"]))
    again = Path(folder, "again")
    again.mkdir(exist_ok=True)
    saved = save_all(again, namespace, "")
    return {"labels": [label._asdict() for label in labels], "again": saved["error"], "error": run(check, namespace)}


def saves(limits: dict[str, Any], cells: list[str]) -> None:
    """After each cell of one session. Prints what was written, by digest, and the entries by name."""
    session, known = new_session(), set[str]()
    save, encode, written, told = (
        guest("saved.serialization").save,
        json.JSONEncoder().encode,
        dict[str, int](),
        list[str](),
    )

    def write(digest: str, pieces: list[Any]) -> None:
        written[digest] = sum(map(len, pieces))

    for cell in cells:
        error = run(cell, session)
        reader, writer = os.pipe()
        if os.fork() == 0:
            entries = save(session, known, write, tell=told.append, **limits)
            rows = {entry.name: entry.row() for entry in entries}
            row = {"error": error, "written": written, "entries": rows, "told": told}
            os.write(writer, encode(row).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            line = pipe.read()
        print(line, flush=True)
        known.update(json.JSONDecoder().decode(line)["written"])


def load(folder: str) -> None:
    package = ModuleType("_pinfold_guest")
    package.__path__ = [folder]
    sys.modules[package.__name__] = package
    guest("saved.serialization")


def main() -> None:
    load(sys.argv[1])
    if sys.argv[2] == "saves":
        saves(json.loads(sys.argv[3]), json.load(sys.stdin))
        return
    for name, cell, check in json.load(sys.stdin):
        folder = Path(sys.argv[3], name)
        folder.mkdir(exist_ok=True)
        told = save(folder, cell) if sys.argv[2] == "save" else restore(folder / sys.argv[4], check)
        print(json.dumps({"name": name, **told}), flush=True)


if __name__ == "__main__":
    main()
