"""Files that a command for this machine names and the agent could have written: shown with it, and bound by hash.

Reads words, not programs: what a script in turn reads is kept from changing by freezing the session, not by this list.
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
"""Files that are bound; a command that names more is refused."""
_WORDS = 2_000
_STARTS = 20
"""Folders among the words in which the others are looked for."""
_LOOKED_AT = 20_000
_HASHED = 256 << 20
"""Bytes; of a larger file, its size and times are bound."""
_SHOWN = 16_000
"""Characters of their contents, together."""
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
"""What a program reads by itself in the folder it starts in."""
_NO_FILE = "no regular file, so its content is unknown"
_IN_A_FOLDER = ("__main__.py", "__init__.py")
"""What `python FOLDER` and `python -m PACKAGE` run."""


class NamedFile(Struct, frozen=True, kw_only=True):
    path: Path
    """As the command leads to it."""
    target: str
    """Where its links lead; empty where it is none."""
    size: int
    digest: str
    text: str | None
    """Its content, where that can be shown."""


def files_named(command: str, folder: Path, roots: Sequence[Path]) -> tuple[NamedFile, ...]:
    """Those that are there and lie in `roots`, or are links from there; at most one more than MOST."""
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
    """In lines for who decides. What is a file's is indented, what is ours is not."""
    left = _SHOWN
    for file in files:
        name = os.path.relpath(file.path, folder)
        link = f", a link to {file.target}" if file.target else ""
        head = f"Uses {name}{link}: {file.size:,} bytes, {file.digest}"
        if file.text is None:
            yield f"{head}; not shown: read it before you say yes, unless you know it"
        elif len(file.text) > left:
            yield f"{head}; too long to be shown here: read the file before you say yes"
        else:
            left -= len(file.text)
            yield f"{head}:"
            yield from (f"    {line}" for line in file.text.splitlines())


def _words(command: str) -> Iterator[str]:
    """As a shell would split them, and once more at all that separates words."""
    found = dict.fromkeys(re.findall(_PLAIN, command))
    with suppress(ValueError):  # a quote that is never closed
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
            if word.replace(".", "").isidentifier():  # of `python -m`
                module = start / word.replace(".", "/")
                yield from (module.with_name(f"{module.name}.py"), *(module / name for name in _IN_A_FOLDER))
        for program in sorted(programs & _DEFAULTS.keys()):
            yield from (start / name for name in _DEFAULTS[program])
        if start is not starts[0]:
            yield start / _IN_A_FOLDER[0]


def _read(path: Path, tops: Sequence[Path]) -> NamedFile | None:
    """None for what is no file, or is none the agent could have written or led elsewhere."""
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
        # What a link leads to elsewhere, or is hidden from the session, is no business of the session's log.
        is_ours = any(real.is_relative_to(top) for top in tops) and not is_masked(real.name)
        with suppress(UnicodeDecodeError):
            text = None if b"\0" in data or not is_ours else data.decode()
    return NamedFile(
        path=path, target=str(real) if real != parent / path.name else "", size=status.st_size, digest=digest, text=text
    )
