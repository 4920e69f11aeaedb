"""Where Pinfold keeps things, by the XDG conventions, and which folders it may not be pointed at."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from pinfold.app.errors import ConfigError
from pinfold.sandbox.kernel.folders import hold_lock, remove_folder

_KEYS = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".password-store",
    ".terraform.d",
    ".vault-token",
    ".mozilla",
    ".thunderbird",
    ".config/chromium",
    ".config/gcloud",
    ".config/gh",
    ".config/google-chrome",
    ".config/op",
    ".config/rclone",
    ".local/share/keyrings",
    "Library/Keychains",
)
"""Below a home: keys, tokens and logged-in browsers. No session sees them, whoever asks."""
_LOOKED_AT = 2000
"""Names in a folder among which one that was mistyped is looked for."""
_scratches: dict[str, int] = {}
"""Locks on the scratch folders this process made; with them a cleanup tells them from leftovers."""


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The convention says to ignore relative paths.
    if value.startswith("/"):
        return Path(value) / "pinfold"
    home = os.environ.get("HOME")
    if home is not None and not home.startswith("/"):
        raise ConfigError(f"HOME is {home!r}, which is no folder; set HOME or {variable} to a whole path")
    try:
        return Path.home() / default / "pinfold"
    except RuntimeError as error:
        raise ConfigError(f"there is no home folder; set HOME or {variable}") from error


def config_dir() -> Path:
    return _xdg("XDG_CONFIG_HOME", ".config")


def data_dir() -> Path:
    return _xdg("XDG_DATA_HOME", ".local/share")


def state_dir() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    return _xdg("XDG_CACHE_HOME", ".cache")


def up_dir() -> Path:
    """Where `pinfold up` has its lock and its sockets."""
    return state_dir() / "up"


def warm_dir() -> Path:
    """Where the warm helper has its lock and its sockets."""
    return state_dir() / "warm"


def private_dir(path: Path) -> Path:
    """Make sure the folder is there, writable, and for its owner alone."""
    try:
        for folder in (*reversed(path.parents), path):  # `parents=True` would leave those open to others
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        if path.stat().st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"{path} cannot be used: {error.strerror}; {_suggest_fix(path, error.errno)}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{path} is not writable; {_suggest_fix(path)}")
    return path


def _suggest_fix(path: Path, code: int | None = None) -> str:
    """What to do about a folder of ours that cannot be used."""
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "free some space on that disk"
    own = {"CONFIG": config_dir, "DATA": data_dir, "STATE": state_dir, "CACHE": cache_dir}
    for name, place in own.items():
        if path.is_relative_to(place()):
            return f"make it writable for you, or set XDG_{name}_HOME to a folder that is"
    return "make it writable for you"


def workspace_at(path: Path) -> Path:
    """A folder the user named as workspace, or ConfigError."""
    try:
        folder = path.resolve(strict=True)
    except FileNotFoundError as error:
        hint = suggest_path(path) or "make it or name another"
        raise ConfigError(f"the workspace {path} does not exist; {hint}") from error
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"the workspace {path} cannot be used: {getattr(error, 'strerror', error)}; name another"
        ) from error
    if not folder.is_dir():
        raise ConfigError(f"the workspace {path} is not a folder; name the folder it is in")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise ConfigError(f"the workspace {path} is closed to you; name another, or: chmod u+rx {path}")
    if is_too_wide(folder):
        raise ConfigError(f"{folder} cannot be a workspace: it holds far more than one task; name a folder inside it")
    refuse_closed_folders(folder)
    return folder


def suggest_path(path: Path) -> str:
    """For a path that is not there: a question that names one beside it, if there is one much like it."""
    from difflib import get_close_matches

    try:
        names = [entry.name for entry in itertools.islice(path.absolute().parent.iterdir(), _LOOKED_AT)]
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else ""


def refuse_closed_folders(path: Path) -> None:
    """No session may see or change what steers it, nor see the user's keys."""
    for own in (config_dir().resolve(), data_dir().resolve(), state_dir().resolve()):
        if path.is_relative_to(own) or own.is_relative_to(path):
            raise ConfigError(f"{path} cannot be used: Pinfold's own files are in {own}; name another folder")
    for place in _key_places():
        if path.is_relative_to(place) or (place.is_relative_to(path) and place.exists()):
            raise ConfigError(f"{path} cannot be used: keys of yours are in {place}; name another folder")


def _key_places() -> Iterator[Path]:
    try:
        homes = {Path.home(), Path.home().resolve()}
    except RuntimeError:  # a user without a home
        return
    for home in homes:
        for name in _KEYS:
            yield home / name
            yield (home / name).resolve()


def is_too_wide(folder: Path) -> bool:
    try:
        return folder in (Path("/"), Path.home().resolve())
    except RuntimeError:  # a user without a home
        return folder == Path("/")


def scratch_of(session: str) -> Path:
    return cache_dir() / "scratch" / session


def scratch_folder(session: str) -> Path:
    """Made for this process; goes with `forget_scratch`, or a cleanup after its end."""
    scratch = private_dir(scratch_of(session))
    _scratches[session] = hold_lock(scratch)
    return scratch


def forget_scratch(session: str) -> None:
    remove_folder(scratch_of(session))
    if (lock := _scratches.pop(session, None)) is not None:
        os.close(lock)


def remove_unstarted(folder: Path) -> None:
    """Remove what was kept for a session that never began."""
    if not (folder / "log.sqlite").exists():
        remove_folder(folder)


def input_of(session: Path) -> Path:
    """Within a session's folder: what was piped in when it began."""
    return session / "input"


def current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError("the current folder is gone; change to one that exists") from error


def default_workspace(session: str) -> tuple[Path, str | None]:
    """The current folder; where that is too wide, a scratch folder and the words to say so."""
    here = current_folder()
    if not is_too_wide(here.resolve()):
        return workspace_at(here), None
    scratch = scratch_folder(session)
    return scratch, f"{here} is too wide to be a workspace; using {scratch}"
