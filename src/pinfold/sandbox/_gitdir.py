"""What in a git folder makes git run something, or look elsewhere, when the user runs it later. Runs no git itself."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

NAMES = (
    "config",
    "config.worktree",
    "hooks",
    "commondir",
    "gitdir",
    "objects/info/alternates",
    "objects/info/http-alternates",
    "remotes",
    "branches",
)
"""Obeyed, not only read. The rest of a git folder is data, as long as no link in it leads git to write elsewhere."""
WRITTEN = ("", "refs", "logs")
"""Where git writes through a link without looking: a linked `logs/HEAD` could be the user's shell profile."""
_CONFIG_BYTES = 1 << 20
_NAMED = 200
"""Files that the config of one repository may name."""
_DEPTH = 4
"""Of includes."""
_PLAIN_KEYS = r"""(?ix)
    core\.(repositoryformatversion|filemode|bare|logallrefupdates|symlinks|ignorecase|precomposeunicode|autocrlf|eol)
    | extensions\.(objectformat|refstorage) | user\.(name|email) | init\.defaultbranch | pull\.(rebase|ff) | push\.default
    | branch\..*\.(remote|merge|rebase|pushremote) | remote\..*\.(url|fetch|tagopt) | submodule\..*\.(url|active)
    """
_HEADER = r'\[([A-Za-z0-9-]+)(?: "([^"\\]*)")?\]'
_SETTING = r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^\"'\\;#`$!|]*)"
_DATA_KEYS = frozenset(
    {"remote", "merge", "url", "pushurl", "fetch", "name", "email", "template", "worktree"}
)
_HOOKS_PATH = r"(?im)^[^#;\n]*\bhookspath\s*=\s*(.+)$"


def is_gitdir(folder: str) -> bool:
    """Whether git would take it for its own: a repository, bare or not, or what a worktree has of one."""
    there = os.path.lexists
    whole = there(f"{folder}/objects") and there(f"{folder}/refs")
    return there(f"{folder}/HEAD") and (whole or there(f"{folder}/commondir"))


def obeyed(gitdir: str) -> Iterator[str]:
    """Every path git obeys when it is run for `gitdir`, there or not: in it, and what its config names."""
    for name in NAMES:
        yield f"{gitdir}/{name}"
    top = _worktree(gitdir)
    for config in ("config", "config.worktree"):
        yield from _named(f"{gitdir}/{config}", top, _DEPTH)


def usual_hooks(top: str) -> Iterator[str]:
    """Where the user's own config puts the hooks of every repository, as seen from this one."""
    home = os.path.expanduser("~")  # noqa: PTH111 - no Path on the fast path
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for config in (f"{home}/.gitconfig", f"{xdg}/git/config", "/etc/gitconfig"):
        yield from _hooks_paths(_text(config), top)


def is_plain_config(text: str) -> bool:
    """Whether nothing in a config can make git run or read anything. What is not understood is not plain."""
    if re.search(r"[^\t\n -\uffff]|\x7f", text):
        return False  # git and we might not see the same lines
    section = ""
    for line in text.split("\n"):
        if not line.strip() or re.fullmatch(r"\s*[#;][^\\]*", line):
            continue
        if header := re.fullmatch(_HEADER, line.strip()):
            section = header[1] + (f".{header[2]}" if header[2] is not None else "")
            continue
        setting = re.fullmatch(_SETTING, line)
        if setting is None or not re.fullmatch(_PLAIN_KEYS, f"{section}.{setting[1]}"):
            return False
        if setting[2].startswith("-") or "::" in setting[2]:
            return False
    return True


def _worktree(gitdir: str) -> str:
    folder, _, name = gitdir.rpartition("/")
    return folder if name == ".git" else gitdir


def _named(config: str, top: str, depth: int) -> Iterator[str]:
    """Hooks folders, includes and programs: whatever a value names that is there."""
    text = _text(config)
    yield from _hooks_paths(text, top)
    folder = os.path.dirname(config)  # noqa: PTH120
    found = 0
    for line in text.splitlines():
        key, _, value = re.sub(r"^\s*\[.*\]", "", line).partition("=")
        if key.strip().lower() in _DATA_KEYS or found > _NAMED:
            continue
        for word in re.split(r"[\s\"'!;=]+", value or key):
            included = key.strip().lower() == "path"
            path = _joined(folder if included else top, word)
            if word and _is_file(path) and not path.startswith(f"{folder}/refs/"):
                found += 1
                yield path
                if included and depth:
                    yield from _named(path, top, depth - 1)


def _hooks_paths(text: str, top: str) -> Iterator[str]:
    for value in re.findall(_HOOKS_PATH, text):
        path = _joined(top, value.strip().strip('"'))
        if path != top:
            yield path


def _joined(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))  # noqa: PTH111, PTH118


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except (OSError, ValueError):
        return False


def _text(path: str) -> str:
    """Empty for what is no plain file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        return file.read(_CONFIG_BYTES).decode("utf-8", "replace")
