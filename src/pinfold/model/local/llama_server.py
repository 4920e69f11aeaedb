"""Runs llama.cpp for as long as it has users. A separate program: it imports nothing from Pinfold.

It reads its settings as JSON from stdin, forks a detached child, and exits. The child holds `server.lock` as long as it
lives, and writes its address and key to `server.json`. Each user holds `users.lock`, shared. The kernel releases a lock
when its holder ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

LOOK_AGAIN_S = 0.5
LOG_BYTES = 1 << 20
LOG_KEPT = 1 << 18
_CACHE_MB = 512
"""Cache for prompts evicted from the context by other conversations."""
_TRIES = 20
_TRY_AGAIN_S = 0.05


def main() -> None:
    settings = json.load(sys.stdin)
    begun, ours = os.pipe()
    if os.fork():
        os.close(ours)
        os.read(begun, 1)  # until the child has the lock and its stdin is closed, or the child has ended
        os._exit(0)
    os.close(begun)
    os.umask(0o077)
    folder = Path(settings["folder"])
    if _acquire_lock(folder / "server.lock") is None:
        os._exit(0)  # another server runs already
    (folder / "server.json").unlink(missing_ok=True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # stdin belongs to the starting process
    os.close(nothing)
    os.close(ours)
    server = _start_server(settings)
    new = folder / "server.json.new"
    said = {"pid": os.getpid(), "url": server.listening_address, "key": settings["key"]}
    new.write_text(json.dumps(said), encoding="utf-8")
    new.rename(folder / "server.json")
    _serve_while_wanted(folder, Path(settings["log"]), settings["linger_s"])
    os._exit(0)  # llama.cpp has nothing to save


def _acquire_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # A process that only tests the lock holds it for a moment.
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            time.sleep(_TRY_AGAIN_S)
    return None


def _start_server(settings: dict[str, Any]) -> Any:
    if settings["runtime"]:
        sys.path.insert(0, settings["runtime"])
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    settings["key"] = secrets.token_urlsafe(24)
    params.api_keys = [settings["key"]]
    params.ui = False
    params.cors_origins = ""
    params.n_ctx = settings["context"]
    # Two requests at once finish a little sooner in total, but each waits longer on average and they share the context.
    params.n_parallel = 1
    params.kv_unified = True  # one conversation may use all of the context
    params.cache_ram_mib = _CACHE_MB
    params.sleep_idle_seconds = max(1, round(settings["idle_s"]))
    params.use_jinja = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    if settings["pooling"] != "off":
        params.embedding = True
    if settings["pooling"] == "mean":
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return xllamacpp.Server(params)


def _serve_while_wanted(folder: Path, log: Path, linger_s: float) -> None:
    users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    wanted_at = time.monotonic()
    while True:
        time.sleep(LOOK_AGAIN_S)
        _limit_log(log)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wanted_at = time.monotonic()
            continue
        if time.monotonic() - wanted_at >= linger_s:
            # This process keeps the lock until it ends, so new users must wait.
            (folder / "server.json").unlink(missing_ok=True)
            return
        fcntl.flock(users, fcntl.LOCK_UN)


def _limit_log(path: Path) -> None:
    """Keep only the end of the log. All writers append, so truncating it is safe."""
    with suppress(OSError):
        size = os.fstat(2).st_size
        if size > LOG_BYTES:
            with path.open("rb") as file:
                file.seek(size - LOG_KEPT)
                kept = file.read().partition(b"\n")[2]
            os.ftruncate(2, 0)
            os.write(2, kept)


if __name__ == "__main__":
    main()
