"""`untrusted.json`: which files hold others' words, and which sessions may be writing such files. No session can see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.paths import data_dir
from pinfold.app.private_files import read_private, write_private

WHOLE = "*"
"""In place of a digest: a folder, whatever is in it."""
_LARGEST = 2 << 20
"""Bytes of the file. A session chooses names and numbers of files: beyond this, a folder stands for what is in it."""


class Mark(Struct, frozen=True, kw_only=True):
    digest: str
    size: int = 0
    seen: tuple[int, int] = (0, 0)
    """Number and time of change when it had that digest: as long as both are so, it is not read again."""
    session: str = ""
    at: str = ""


class Writing(Struct, frozen=True, kw_only=True):
    """A session that is untrusted and may write to these folders."""

    folders: tuple[str, ...]
    since_ns: int
    opened_ns: int = 0
    pid: int
    started: str


class Store(Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    files: dict[str, Mark] = {}
    """By whole path."""
    folders: dict[str, tuple[int, int]] = {}
    """Folders of sessions that left any: device and number, by which a folder is known under another name."""
    ways: dict[str, tuple[int, int]] = {}
    """The same of the folders around them, and between them and what is marked."""
    writing: dict[str, Writing] = {}


def store_path() -> Path:
    return data_dir() / "untrusted.json"


def load() -> Store:
    """Raises ConfigError."""
    data = read_private(store_path())
    try:
        return Store() if data is None else msgspec.convert(json.loads(data), Store)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{store_path()} is damaged or of a newer Pinfold; it says which files hold others' words: "
            "move it away to go on without"
        ) from error


def save(store: Store) -> None:
    """Raises ConfigError."""
    store = _drop_needless(store)
    data = _encode_store(store)
    while len(data) > _LARGEST and (coarser := _coarsen(store)) is not None:
        store, data = coarser, _encode_store(coarser)
    write_private(store_path(), data)


def _encode_store(store: Store) -> bytes:
    # Names of files need not be UTF-8. The standard library's JSON keeps them; msgspec's refuses them.
    return json.dumps(msgspec.to_builtins(store), separators=(",", ":")).encode()


def _drop_needless(store: Store) -> Store:
    """Folders that lead to no mark any more are forgotten."""
    needed = {str(one) for path in store.files for one in (Path(path), *Path(path).parents)}
    needed |= {str(one) for path in store.folders.keys() & needed for one in Path(path).parents}
    return replace(
        store,
        folders={path: number for path, number in store.folders.items() if path in needed},
        ways={path: number for path, number in store.ways.items() if path in needed},
    )


def _coarsen(store: Store) -> Store | None:
    """With one mark on the folder whose marks take the most room; None where there is no such folder any more."""
    sizes = {
        top: sum(len(path) for path in (*store.files, *store.ways) if path.startswith(f"{top}/"))
        for top in store.folders
    }
    top = max(sizes, key=lambda one: sizes[one], default="")
    if not sizes.get(top):
        return None
    marks = [mark for path, mark in store.files.items() if path == top or path.startswith(f"{top}/")]
    last = max(marks, key=lambda mark: mark.at, default=Mark(digest=WHOLE))
    files = {path: mark for path, mark in store.files.items() if not path.startswith(f"{top}/")}
    files[top] = replace(last, digest=WHOLE, size=0, seen=(store.folders[top][1], 0))
    ways = {path: number for path, number in store.ways.items() if not path.startswith(f"{top}/")}
    return replace(store, files=files, ways=ways)
