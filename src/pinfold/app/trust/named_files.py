"""Files that a host command names and the agent could have written: shown with the command, and bound by hash.

Only the words of the command are examined. Files that a script reads in turn are protected by freezing the session.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from glob import iglob
from itertools import islice
from pathlib import Path

from msgspec import Struct

from pinfold.sandbox.guards.named_files import is_masked

MOST = 50
"""Maximum number of bound files; a command that names more is refused."""
_WORDS = 2_000
_STARTS = 20
"""Maximum number of start folders: the working folder, and folders that the command names."""
_LOOKED_AT = 20_000
_HASHED = 256 << 20
"""Largest file, in bytes, that is hashed; of a larger one, size and times are bound."""
_SHOWN = 16_000
"""Characters shown of all contents together."""
_PLAIN = r"[^\s'\"`;&|<>(){}$=,:]+"
_DEFAULTS = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "rake": ("Rakefile",),
    "cargo": ("Cargo.toml", "build.rs", ".cargo/config.toml"),
    "npm": ("package.json", ".npmrc"),
    "npx": ("package.json", ".npmrc"),
    "pnpm": ("package.json", ".npmrc"),
    "yarn": ("package.json", ".yarnrc.yml"),
    "bun": ("package.json", "bunfig.toml"),
    "docker": ("Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
    "podman": ("Containerfile", "Dockerfile", "compose.yaml", "docker-compose.yml"),
    "pytest": ("conftest.py", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"),
    "tox": ("tox.ini", "pyproject.toml"),
    "nox": ("noxfile.py",),
    "pip": ("pyproject.toml", "setup.py"),
    "uv": ("pyproject.toml", "uv.toml"),
    "pre-commit": (".pre-commit-config.yaml",),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle"),
    "mvn": ("pom.xml",),
    "cmake": ("CMakeLists.txt",),
    "ninja": ("build.ninja",),
    "vagrant": ("Vagrantfile",),
    "terraform": ("main.tf",),
    "ansible-playbook": ("ansible.cfg",),
}
"""Files that a program reads by default in the folder it starts in."""
_NO_FILE = "not a regular file, so its content is unknown"
_IN_A_FOLDER = ("__main__.py", "__init__.py")
"""What `python FOLDER` and `python -m PACKAGE` run."""


class NamedFile(Struct, frozen=True, kw_only=True):
    path: Path
    """The path as the command names it."""
    target: str
    """The resolved path if `path` goes through a link, else empty."""
    size: int
    digest: str
    text: str | None
    """The content, if it can be shown."""


def files_named(command: str, folder: Path, roots: Sequence[Path]) -> tuple[NamedFile, ...]:
    """Return existing files in `roots`, and targets of links from there; at most MOST + 1."""
    words = tuple(islice(_words(command), _WORDS))
    tops = tuple(root.resolve() for root in roots)
    starts = [folder, *(folder / word for word in words if os.path.isdir(folder / word))]  # noqa: PTH112 - it never raises
    found: dict[Path, NamedFile] = {}
    for path in islice(_candidates(words, starts[:_STARTS]), _LOOKED_AT):
        if len(found) > MOST:
            break
        lexical = Path(os.path.normpath(path))
        if lexical not in found and (file := _read(lexical, tops)):
            found[lexical] = file
    return tuple(found.values())


def describe_named_files(files: Iterable[NamedFile], folder: Path) -> Iterator[str]:
    """Yield lines for the user who decides. Only contents of files are indented."""
    left = _SHOWN
    for file in files:
        name = os.path.relpath(file.path, folder)
        link = f", a link to {file.target}" if file.target else ""
        head = f"Uses {name}{link}: {file.size:,} bytes, {file.digest}"
        if file.text is None:
            yield f"{head}; not shown here: read the file before you say yes"
        elif len(file.text) > left:
            yield f"{head}; too long to show here: read the file before you say yes"
        else:
            left -= len(file.text)
            yield f"{head}:"
            yield from (f"    {line}" for line in file.text.splitlines())


def _words(command: str) -> Iterator[str]:
    """Yield the words of a command, split both at all separators and as a shell does."""
    found = dict.fromkeys(re.findall(_PLAIN, command))
    with suppress(ValueError):  # an unclosed quote
        found |= dict.fromkeys(shlex.split(command, comments=False))
    for word in found:
        if word and "\0" not in word:
            yield os.path.expanduser(word)  # noqa: PTH111 - most words are no paths


def _candidates(words: Sequence[str], starts: Sequence[Path]) -> Iterator[Path]:
    programs = {word.rpartition("/")[2] for word in words}
    for start in starts:
        for word in words:
            yield start / word
            if set(word) & set("*?["):
                with suppress(ValueError, OSError, re.error):
                    yield from (Path(one) for one in islice(iglob(str(start / word)), MOST + 1))  # noqa: PTH207 - it takes whole paths
            if word.replace(".", "").isidentifier():  # for `python -m`
                module = start / word.replace(".", "/")
                yield from (module.with_name(f"{module.name}.py"), *(module / name for name in _IN_A_FOLDER))
        for program in sorted(programs & _DEFAULTS.keys()):
            yield from (start / name for name in _DEFAULTS[program])
        if start is not starts[0]:
            yield start / _IN_A_FOLDER[0]


def _read(path: Path, tops: Sequence[Path]) -> NamedFile | None:
    """Read a file; None if there is none, or the agent could neither have written it nor linked to it."""
    try:
        real = path.resolve(strict=True)
        parent = path.parent.resolve()
        if not any(one.is_relative_to(top) for one in (real, parent) for top in tops):
            return None
        fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, RuntimeError, ValueError):
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        if stat.S_ISDIR(status.st_mode):
            return None
        return NamedFile(path=path, target="", size=0, digest=_NO_FILE, text=None)
    text: str | None = None
    with os.fdopen(fd, "rb") as file:
        if status.st_size > _HASHED:
            digest = f"last changed {status.st_mtime_ns} {status.st_ctime_ns}"
        else:
            digest = f"sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
        file.seek(0)
        data = file.read(4 * _SHOWN + 1)
        # Masked files and link targets outside the roots must not get into the session's log.
        is_ours = any(real.is_relative_to(top) for top in tops) and not is_masked(real.name)
        with suppress(UnicodeDecodeError):
            text = None if b"\0" in data or not is_ours else data.decode()
    return NamedFile(
        path=path, target=str(real) if real != parent / path.name else "", size=status.st_size, digest=digest, text=text
    )
