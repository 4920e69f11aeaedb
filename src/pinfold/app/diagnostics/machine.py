"""This machine's side: versions, room on disks, who may read our folders, what was left behind."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pinfold._version import __version__
from pinfold.app.diagnostics.findings import CheckContext, Finding, fault, note
from pinfold.app.models.session_models import uv_path
from pinfold.app.paths import cache_dir, config_dir, data_dir, state_dir
from pinfold.app.storage.session_store import SessionStore, clean_up
from pinfold.sandbox.contract import MOST_GROWTH
from pinfold.text import join_names

_TOO_LITTLE = 200 << 20
_LITTLE = 2 << 30
"""An environment takes about 1 GB, a model as much."""
_UV_S = 5.0


def versions() -> Iterator[Finding]:
    yield Finding("versions", "pinfold", words=__version__)
    yield Finding("versions", "Python", words=f"{platform.python_version()} ({sys.executable})")
    yield Finding("versions", "kernel", words=f"{platform.system()} {platform.release()}")
    uv = uv_path()
    if uv is None:
        yield fault(
            "versions",
            "uv",
            "it is missing, and nothing can be installed without it",
            "install it beside Pinfold: pip install uv",
        )
        return
    try:
        done = subprocess.run([uv, "--version"], capture_output=True, text=True, timeout=_UV_S, check=True)
        yield Finding("versions", "uv", words=done.stdout.removeprefix("uv ").strip())
    except (OSError, subprocess.SubprocessError) as error:
        yield fault(
            "versions", "uv", f"{uv} does not run: {error}", "install it again: pip install --force-reinstall uv"
        )


def disks(around: CheckContext) -> Iterator[Finding]:
    seen: set[int] = set()
    for what, folder in (("data", data_dir()), ("temp", Path(tempfile.gettempdir()))):
        there = _nearest_existing(folder)
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(there).free
        room = f"{_size(free)} free at {there}"
        if free >= _LITTLE:
            yield Finding("folders", f"disk ({what})", words=room)
        else:
            yield Finding(
                "folders",
                f"disk ({what})",
                standing="fault" if free < _TOO_LITTLE else "note",
                cause=f"only {room}",
                fix="free some: pinfold sessions gc, pinfold cleanup, uv cache prune",
            )
    bound = around.config.limits.disk_mb
    most = bound << 20 if bound else min(MOST_GROWTH, shutil.disk_usage(around.workspace).free // 2)
    words = f"a session in this folder may make it grow by {most >> 20:,} MB ([limits] disk_mb)"
    yield Finding("folders", "disk (workspace)", words=words)
    if not (data_dir() / "sessions").is_dir():
        return
    sessions = SessionStore().sessions()
    size, most = sum(item.size for item in sessions), around.config.sessions.quota_gb * 1e9
    words = f"{len(sessions)}, {_size(size)} of {_size(most)}"
    over = size > most
    yield Finding(
        "folders",
        "sessions",
        standing="note" if over else "ok",
        words="" if over else words,
        cause=f"{words}, which is what they may" if over else "",
        fix="pinfold sessions gc removes the oldest" if over else "",
    )


def folders() -> Iterator[Finding]:
    for name, folder in (
        ("configuration", config_dir()),
        ("data", data_dir()),
        ("state", state_dir()),
        ("cache", cache_dir()),
    ):
        if wrong := _fault_of(folder):
            cause, fix = wrong
            yield fault("folders", name, cause, fix)
        else:
            there = str(folder) if folder.exists() else f"{folder}, made when it is needed"
            yield Finding("folders", name, words=there)
    yield from _open_files()


def _fault_of(folder: Path) -> tuple[str, str] | None:
    """Cause and fix, if it cannot be used, or others can use it."""
    elsewhere = f"set {_variable(folder)} to a folder that is"
    try:
        status = folder.stat()
    except FileNotFoundError:
        there = _nearest_existing(folder)
        if _is_writable(there):
            return None
        return f"{folder} cannot be made: {there} is not writable", f"make it writable, or {elsewhere}"
    except OSError as error:
        return f"{folder}: {error.strerror}", f"make it readable, or {elsewhere}"
    if status.st_uid != os.geteuid():
        return f"{folder} belongs to user {status.st_uid}", f"sudo chown -R {os.geteuid()} {folder}"
    if stat.S_IMODE(status.st_mode) & 0o077:
        return f"{folder} is open to other users", f"chmod 700 {folder}"
    if not _is_writable(folder):
        return f"{folder} is not writable", f"make it writable, or {elsewhere}"
    return None


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _open_files() -> Iterator[Finding]:
    """Secrets, trust and pins are for the user alone; what steers the agent may be written by the user alone."""
    try:
        inside = sorted(config_dir().iterdir())
    except OSError:
        return
    for path in inside:
        try:
            status = path.stat()
        except OSError:
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        wide, mode = (0o077, "600") if path.suffix == ".json" else (0o022, "go-w")
        if stat.S_IMODE(status.st_mode) & wide:
            yield fault("folders", path.name, f"{path} is open to other users of this machine", f"chmod {mode} {path}")


def leftovers() -> Iterator[Finding]:
    found = [f"{kind} {name}" for kind, name in clean_up(dry_run=True)]
    if not found:
        yield Finding("leftovers", "leftovers", words="nothing was left behind")
        return
    yield note(
        "leftovers",
        "leftovers",
        f"{len(found)} of a Pinfold that was killed: {join_names(found, 3)}",
        "pinfold cleanup",
    )


def _variable(folder: Path) -> str:
    own = {config_dir(): "CONFIG", data_dir(): "DATA", state_dir(): "STATE", cache_dir(): "CACHE"}
    return f"XDG_{own[folder]}_HOME"


def _nearest_existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
