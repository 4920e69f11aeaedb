"""The checks of `pinfold doctor` on this machine: configuration, folders, versions, disks, leftovers, sandboxes."""

from __future__ import annotations

import difflib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias, cast

import msgspec

from pinfold._version import __version__
from pinfold.app.config.layers import Loaded, load_config
from pinfold.app.config.schema import NAMED, Config
from pinfold.app.config.settings import all_keys, config_file
from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import uv_path
from pinfold.app.ownership.cleanup import clean_up
from pinfold.app.ownership.warm_helper import running_helper
from pinfold.app.paths import cache_dir, config_dir, data_dir, state_dir
from pinfold.app.session.environment import environment_status
from pinfold.app.storage.session_store import SessionStore
from pinfold.app.trust.project_files import instructions, read_project_files
from pinfold.app.trust.workspace_trust import trust_status
from pinfold.events import PinfoldError
from pinfold.sandbox import is_built_in
from pinfold.sandbox.contract import MOST_GROWTH
from pinfold.sandbox.providers.doctor import Report, SandboxCheck
from pinfold.text import join_names

Section: TypeAlias = Literal[
    "versions", "configuration", "sandboxes", "models", "MCP servers", "databases", "folders", "leftovers"
]
Standing: TypeAlias = Literal["ok", "note", "fault"]
"""`note`: could be better, or an optional part is missing. `fault`: a wanted part does not work."""


class Finding(msgspec.Struct, frozen=True):
    what: str
    standing: Standing = "ok"
    words: str = ""
    """Description, if it works."""
    cause: str = ""
    """Why it does not work, or not fully."""
    fix: str = ""
    """What the user can do about it."""


def fault(what: str, cause: str, fix: str = "") -> Finding:
    return Finding(what, standing="fault", cause=cause, fix=fix)


def note(what: str, cause: str, fix: str = "") -> Finding:
    return Finding(what, standing="note", cause=cause, fix=fix)


def explained_fault(what: str, error: Exception, fix: str = "") -> Finding:
    """Return a fault for an error, whose message gives the fix after its last semicolon; else `fix` is used."""
    cause, _, advice = str(error).rpartition("; ")
    return fault(what, cause or advice, advice if cause else fix)


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """The input of all checks."""

    workspace: Path
    loaded: Loaded
    """The configuration; the defaults if it does not load."""
    limit_s: float
    """Time limit for each thing that is started or asked."""

    @property
    def config(self) -> Config:
        return self.loaded.config


_OTHERS = ("PINFOLD_DEBUG", "PINFOLD_TEST_DATA_PYTHON", "PINFOLD_SITE")
"""Variables that are not configuration keys."""


def configuration(workspace: Path) -> tuple[Loaded, list[Finding]]:
    """Load the configuration, or the defaults if it is broken, with findings."""
    try:
        loaded = load_config(workspace)
    except ConfigError as error:
        found = explained_fault("settings", error)
        if "config.toml" in str(error):
            cause = str(error).removesuffix("; fix it: pinfold config edit")
            found = fault("settings", cause, "pinfold config edit")
        return Loaded(config=Config(), origins={}), [found]
    path = config_file()
    words = f"{path}" if path.exists() else f"the defaults; to change them, create {path}"
    return loaded, [Finding("settings", words=words), *_variables(loaded)]


def _variables(loaded: Loaded) -> Iterator[Finding]:
    """Report variables that look like a setting but are none."""
    known = {f"PINFOLD_{key.replace('.', '_')}".upper() for key in all_keys()}
    tables = tuple(
        f"PINFOLD_{section}_{name.replace('-', '_')}_".upper()
        for section in NAMED
        for name in getattr(loaded.config, section)
    )
    for name in sorted(os.environ):
        if not name.startswith("PINFOLD_") or name in known or name in _OTHERS or name.startswith(tables):
            continue
        near = difflib.get_close_matches(name, known, n=1)
        yield note(name, "this variable sets nothing", f"did you mean {near[0]}?" if near else f"unset {name}")


def folder(context: CheckContext) -> Iterator[Finding]:
    """Check whether the project files of this folder are trusted."""
    found = read_project_files(context.workspace)
    what, names = "this folder", [*(file.name for file in found.files), *found.odd]
    if not names:
        yield Finding(what, words="No project instructions found")
    elif trust_status(found).trusted:
        yield Finding(what, words=f"is trusted: {join_names(names, 4)}")
    elif found.odd:
        odd = [f"{name}: {why}" for name, why in found.odd.items()]
        yield note(what, join_names(odd, 2), "change or remove it")
    else:
        cause = context.loaded.notice.partition("; see")[0] or "it is not trusted"
        yield note(what, cause, f"look at it, and allow it: pinfold trust {found.workspace}")
    _, notices = instructions(found.workspace, context.loaded.obeyed)
    yield from (note("instructions", notice) for notice in notices)


_TOO_LITTLE = 200 << 20
_LITTLE = 2 << 30
"""An environment takes about 1 GB, and so does a model."""
_UV_S = 5.0
_FEATURES = {
    "user_namespaces": "user namespaces",
    "mounts": "mounts",
    "seccomp": "seccomp",
    "idmapped_mounts": "idmapped mounts",
    "views": "private views",
}


def versions() -> Iterator[Finding]:
    yield Finding("pinfold", words=__version__)
    yield Finding("Python", words=f"{platform.python_version()} ({sys.executable})")
    yield Finding("kernel", words=f"{platform.system()} {platform.release()}")
    uv = uv_path()
    if uv is None:
        cause = "it is missing, and nothing can be installed without it"
        yield fault("uv", cause, "install it beside Pinfold: pip install uv")
        return
    try:
        done = subprocess.run([uv, "--version"], capture_output=True, text=True, timeout=_UV_S, check=True)
        yield Finding("uv", words=done.stdout.removeprefix("uv ").strip())
    except (OSError, subprocess.SubprocessError) as error:
        yield fault("uv", f"{uv} does not run: {error}", "install it again: pip install --force-reinstall uv")


def disks(context: CheckContext) -> Iterator[Finding]:
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
            yield Finding(f"disk ({what})", words=room)
        else:
            found = fault if free < _TOO_LITTLE else note
            yield found(
                f"disk ({what})", f"only {room}", "free some: pinfold sessions gc, pinfold cleanup, uv cache prune"
            )
    bound = context.config.limits.disk_mb
    most = bound << 20 if bound else min(MOST_GROWTH, shutil.disk_usage(context.workspace).free // 2)
    words = f"a session in this folder may make it grow by {most >> 20:,} MB ([limits] disk_mb)"
    yield Finding("disk (workspace)", words=words)
    if not (data_dir() / "sessions").is_dir():
        return
    sessions = SessionStore().sessions()
    size, most = sum(item.size for item in sessions), context.config.sessions.quota_gb * 1e9
    words = f"{len(sessions)}, {_size(size)} of {_size(most)}"
    if size > most:
        yield note("sessions", f"{words}: over the quota", "pinfold sessions gc removes the oldest")
    else:
        yield Finding("sessions", words=words)


def folders() -> Iterator[Finding]:
    own = {"CONFIG": config_dir(), "DATA": data_dir(), "STATE": state_dir(), "CACHE": cache_dir()}
    for variable, folder in own.items():
        name = "configuration" if variable == "CONFIG" else variable.lower()
        if wrong := _fault_of(folder, f"set XDG_{variable}_HOME to a folder that is"):
            yield fault(name, *wrong)
        else:
            there = str(folder) if folder.exists() else f"{folder}, made when it is needed"
            yield Finding(name, words=there)
    yield from _open_files()


def _fault_of(folder: Path, elsewhere: str) -> tuple[str, str] | None:
    """Return cause and fix if the folder cannot be used or is open to other users."""
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
    if status.st_mode & 0o077:
        return f"{folder} is open to other users", f"chmod 700 {folder}"
    if not _is_writable(folder):
        return f"{folder} is not writable", f"make it writable, or {elsewhere}"
    return None


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _open_files() -> Iterator[Finding]:
    """Report files open to others: .json (secrets, trust, pins) must be private, the rest writable only by the user."""
    try:
        inside = sorted(config_dir().iterdir())
    except OSError:
        return
    for path in inside:
        wide, mode = (0o077, "600") if path.suffix == ".json" else (0o022, "go-w")
        with suppress(OSError):
            if path.is_file() and path.stat().st_mode & wide:
                yield fault(path.name, f"{path} is open to other users of this machine", f"chmod {mode} {path}")


def leftovers() -> Iterator[Finding]:
    found = [f"{kind} {name}" for kind, name in clean_up(dry_run=True)]
    if found:
        cause = f"{len(found)} left by a Pinfold that was killed: {join_names(found, 3)}"
        yield note("leftovers", cause, "pinfold cleanup")
    else:
        yield Finding("leftovers", words="nothing was left behind")


def _nearest_existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def cells_python(context: CheckContext) -> tuple[Path | None, list[Finding]]:
    """Return the Python that runs cells, None if the configured one is not usable, with findings."""
    sandbox = context.config.sandbox
    what = "environment"
    try:
        status = environment_status(sandbox.packages, sandbox.python)
    except PinfoldError as error:
        fix = "name one that works: pinfold config set sandbox.python PATH, or --unset it"
        return None, [fault(what, str(error), fix)]
    if sandbox.python:
        return status.used, [Finding(what, words=f"cells run in {status.used}")]
    if status.environment is None:
        cause = "the data environment is not built: cells have no pandas and the like"
        return status.used, [note(what, cause, "pinfold env build")]
    return status.used, [Finding(what, words=f"cells run in {status.folder}")]


def warm_helper(context: CheckContext) -> Finding:
    """Report whether a warm helper runs, and how to switch it off."""
    if context.config.sandbox.warm == "off":
        words = "switched off ([sandbox] warm)"
    elif helper := running_helper():
        words = (
            f"process {helper.pid} with {helper.mb} MB; it ends after 15 idle minutes; end it now: pinfold up --stop"
        )
    else:
        words = 'not running; the next exec, run or chat starts one, unless [sandbox] warm is "off"'
    return Finding("warm helper", words=words)


def report_findings(report: Report, asked: tuple[str, ...]) -> Iterator[Finding]:
    works = any(checked.status == "proven" for checked in report.sandboxes)
    for checked in report.sandboxes:
        yield _sandbox_finding(checked, is_wanted=checked.name in asked or not works)
    if report.auto:
        taken = next((one for one in report.sandboxes if one.name == report.auto), None)
        level = f" ({taken.level} isolation)" if taken else ""
        yield Finding("auto", words=f"takes {report.auto}{level}")
    yield Finding("kernel", words="; ".join(_describe_kernel(report.kernel)))


def _sandbox_finding(checked: SandboxCheck, *, is_wanted: bool) -> Finding:
    cause, fix = checked.cause or "", checked.fix or ""
    match checked.status:
        case "proven":
            return Finding(checked.name, words=_describe_proof(checked))
        case "unsafe":
            cause, fix = "it works, but isolates nothing", "leave --sandbox out, and auto takes the strongest"
        case "refused" if not is_wanted and is_built_in(checked.name):
            # Not a fault while another sandbox works. But one from a plugin was installed to be used.
            return note(checked.name, cause, fix)
        case "leaky" | "refused":
            pass
    return fault(checked.name, cause, fix)


def _describe_proof(checked: SandboxCheck) -> str:
    words = [f"{checked.level.capitalize()} isolation verified"]
    if checked.first_result_ms:
        words.append(f"starts in {checked.first_result_ms / 1000:.1f} s")
    if python := checked.environment.get("python"):
        missing = cast("list[str]", checked.environment["missing"])
        lacks = f"without {join_names(missing, 3)}" if missing else "with the data libraries"
        words.append(f"Python {python} {lacks}")
    return "; ".join(words)


def _describe_kernel(kernel: Mapping[str, object]) -> Iterator[str]:
    where = f" in {kernel['container']}" if kernel["container"] else ""
    yield f"{kernel['system']}{where}, as {'root' if kernel['root'] else 'an ordinary user'}"
    lacks = [words for key, words in _FEATURES.items() if not kernel[key]]
    yield f"without {', '.join(lacks)}" if lacks else "namespaces, mounts, seccomp work"
    yield f"Landlock ABI {kernel['landlock_abi']}" if kernel["landlock_abi"] else "no Landlock"
    yield f"memory of a session: {kernel['memory']}"
