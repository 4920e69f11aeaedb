"""The running `pinfold serve` of this user, as other commands find it. Of several, the first one."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from pinfold.app.paths import private_dir, read_private, state_dir, write_private
from pinfold.app.storage.session_store import claim, end_holder, holder_of
from pinfold.events import decode_json

_ENDING_S = 30.0


class RunningServer(Struct, frozen=True, kw_only=True):
    pid: int
    url: str
    token_file: str
    began: float


def _folder() -> Path:
    return private_dir(private_dir(state_dir()) / "serve")


@contextmanager
def record_server(url: str, token_file: Path) -> Generator[None]:
    """Others find it meanwhile, unless another one is on record."""
    claimed = claim(_folder())
    if claimed is None:
        yield
        return
    record = RunningServer(pid=os.getpid(), url=url, token_file=str(token_file), began=time.time())
    write_private(_folder() / "server.json", msgspec.json.encode(record))
    try:
        yield
    finally:
        (_folder() / "server.json").unlink(missing_ok=True)
        claimed.release()


def running_server() -> RunningServer | None:
    if holder_of(_folder()) is None:
        return None
    data = read_private(_folder() / "server.json")
    return decode_json(data, RunningServer) if data else None


def stop_server() -> bool:
    """End it and wait until it has closed its sessions; False if none runs."""
    return end_holder(_folder(), "pinfold serve", _ENDING_S)
