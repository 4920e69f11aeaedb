"""Pinfold's folders by the XDG conventions, folders that may not be used as workspaces, and small private files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import os
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.events import decode_json
from pinfold.sandbox.kernel.folders import hold_lock, remove_folder

T = TypeVar("T")
_KEYS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".git-credentials"),
    *(".password-store", ".terraform.d", ".vault-token", ".mozilla", ".thunderbird", ".config/chromium"),
    *(".config/gcloud", ".config/gh", ".config/google-chrome", ".config/op", ".config/rclone"),
    *(".local/share/keyrings", "Library/Keychains"),
)
"""Paths below a home folder with keys, tokens and logged-in browsers. No session may see them."""
_LOOKED_AT = 2000
"""Maximum names in a folder to compare with a mistyped one."""
_scratches: dict[str, int] = {}
"""Locks on the scratch folders of this process, by which `pinfold cleanup` tells them from leftovers."""


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The convention says to ignore relative paths.
    if value.startswith("/"):
        return Path(value) / "pinfold"
    home = os.environ.get("HOME")
    if home is not None and not home.startswith("/"):
        raise ConfigError(f"HOME is {home!r}, which is not an absolute path; set HOME or {variable} to one")
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
    """Return the folder for the lock and sockets of `pinfold up`."""
    return state_dir() / "up"


def warm_dir() -> Path:
    """Return the folder for the lock and sockets of the warm helper."""
    return state_dir() / "warm"


def contents_dir(workspace: Path) -> Path | None:
    """Return where all sessions of a workspace store file contents; None for a scratch folder (one session only)."""
    if workspace.is_relative_to(cache_dir() / "scratch"):
        return None
    return data_dir() / "contents" / hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]


def private_dir(path: Path) -> Path:
    """Create the folder if needed; make sure it is writable and closed to other users."""
    try:
        for folder in (*reversed(path.parents), path):  # `parents=True` would make parents readable by others
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
    """Return what to do about one of Pinfold's folders that cannot be used."""
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "free some space on that disk"
    own = {"CONFIG": config_dir, "DATA": data_dir, "STATE": state_dir, "CACHE": cache_dir}
    for name, place in own.items():
        if path.is_relative_to(place()):
            return f"make it writable for you, or set XDG_{name}_HOME to a folder that is"
    return "make it writable for you"


def workspace_at(path: Path) -> Path:
    """Return the resolved folder that the user named as workspace. Raises ConfigError."""
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
        raise ConfigError(f"you may not read the workspace {path}; name another, or: chmod u+rx {path}")
    if is_too_wide(folder):
        raise ConfigError(f"{folder} cannot be a workspace: it holds far more than one task; name a folder inside it")
    refuse_closed_folders(folder)
    return folder


def suggest_path(path: Path) -> str:
    """Return a `did you mean` question with a similar name from the same folder, or an empty string."""
    from difflib import get_close_matches

    try:
        names = [entry.name for entry in itertools.islice(path.absolute().parent.iterdir(), _LOOKED_AT)]
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1)
    return f"did you mean {path.with_name(near[0])}?" if near else ""


def refuse_closed_folders(path: Path) -> None:
    """Raise ConfigError for paths to Pinfold's own files, which steer sessions, or to the user's keys."""
    for own in (config_dir().resolve(), data_dir().resolve(), state_dir().resolve()):
        if path.is_relative_to(own) or own.is_relative_to(path):
            raise ConfigError(f"{path} cannot be used: Pinfold's own files are in {own}; name another folder")
    keys = [home / name for home in _homes() for name in _KEYS]
    for place in (*keys, *map(Path.resolve, keys)):
        if path.is_relative_to(place) or (place.is_relative_to(path) and place.exists()):
            raise ConfigError(f"{path} cannot be used: your keys are in {place}; name another folder")


def _homes() -> set[Path]:
    """Return the user's home as given and resolved; empty if there is none."""
    with contextlib.suppress(RuntimeError):
        return {Path.home(), Path.home().resolve()}
    return set()


def is_too_wide(folder: Path) -> bool:
    return folder == Path("/") or folder in _homes()


def scratch_of(session: str) -> Path:
    return cache_dir() / "scratch" / session


def scratch_folder(session: str) -> Path:
    """Create and lock a scratch folder. `forget_scratch` removes it, or a cleanup after this process ends."""
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
    """Return where a session's folder holds the piped input."""
    return session / "input"


def current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError("the current folder is gone; change to one that exists") from error


def default_workspace(session: str) -> tuple[Path, str | None]:
    """Return the current folder; if it is too wide, a scratch folder and a notice about it."""
    here = current_folder()
    if not is_too_wide(here.resolve()):
        return workspace_at(here), None
    scratch = scratch_folder(session)
    return scratch, f"{here} holds far more than one task; using the empty folder {scratch} instead"


_LARGEST_PRIVATE = 4 << 20


@contextlib.contextmanager
def explain_errors(problem: str, advice: str = "") -> Generator[None]:
    """Turn an OSError into a ConfigError with the problem, the system's message and advice."""
    try:
        yield
    except OSError as error:
        raise ConfigError("; ".join(filter(None, (f"{problem}: {error.strerror}", advice)))) from error


def read_limited(path: Path, most: int, too_large: str) -> bytes:
    """Read a file of at most `most` bytes. Raises ConfigError; `too_large` is its message for a larger file."""
    with explain_errors(f"{path} cannot be read"), path.open("rb") as file:
        data = file.read(most + 1)  # do not trust its size: it may be a link to a device
    if len(data) > most:
        raise ConfigError(f"{path} {too_large}")
    return data


def read_store(path: Path, kind: type[T], fix: str) -> T:
    """Decode a private JSON file; an empty `kind` if it is missing. Raises ConfigError with the advice `fix`."""
    data = read_private(path)
    try:
        return kind() if data is None else decode_json(data, kind)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is damaged; {fix}") from error


def read_private(path: Path) -> bytes | None:
    """Read a private file; None if it is missing. Raises ConfigError if others could have read or written it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; it must be a regular file that you own") from error
    with os.fdopen(fd, "rb") as file:
        _refuse_shared(path, os.fstat(fd), 0o077, "600")
        _refuse_shared(path.parent, path.parent.stat(), 0o022, "700")
        data = file.read(_LARGEST_PRIVATE + 1)
    if len(data) > _LARGEST_PRIVATE:
        raise ConfigError(f"{path} is larger than anything Pinfold writes; move it away")
    return data


def write_private(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by its owner only. Raises ConfigError."""
    private_dir(path.parent)
    write_whole(path, data)


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically. Raises ConfigError."""
    with explain_errors(f"{path} cannot be written", "nothing is changed"):
        fd, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(fd, mode)
                os.fsync(fd)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def hold_file_lock(path: Path) -> Generator[None]:
    """Hold an exclusive lock on a file, so that reading and rewriting it is one step."""
    lock = private_dir(path.parent) / f".{path.name}.lock"
    with explain_errors(f"{lock} cannot be used"):
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _refuse_shared(path: Path, status: os.stat_result, wide: int, mode: str) -> None:
    if stat.S_IMODE(status.st_mode) & wide:
        raise ConfigError(f"{path} is open to other users of this machine; fix it: chmod {mode} {path}")
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path} belongs to another user; fix it: chown {os.geteuid()} {path}")
