"""Finds what in a git folder would make the user's git run something or use other files. Runs no git itself."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from pinfold.sandbox.guards.contents import Content, FileContent, FolderContent
from pinfold.sandbox.kernel.safe_files import entries_of, read_plain, read_text

_NAMES = "config config.worktree hooks commondir gitdir objects/info/alternates objects/info/http-alternates remotes branches"
NAMES = tuple(_NAMES.split())
"""Paths in a git folder that git obeys. The rest is data, as long as no link in it leads git to write elsewhere."""
REBASE = "rebase-merge/git-rebase-todo"
_EXEC = r"(?m)^[ \t]*(?:x|exec)\b.*"
DATA = frozenset({"objects", "refs", "logs"})
"""Folders that are not searched: a branch may be called `x.pem`."""
WRITTEN = ("", "refs", "logs")
"""Folders in which git writes through links unchecked: a linked `logs/HEAD` could be the user's shell profile."""
_CONFIG_BYTES = 1 << 20
_NAMED = 200
"""Most files from the config of one repository that are guarded."""
_INDEX_BYTES = 1 << 20
_DEPTH = 4
"""How deep includes are followed."""
_PLAIN_KEYS = r"""(?ix)
    core\.(repositoryformatversion|filemode|bare|logallrefupdates|symlinks|ignorecase|precomposeunicode|autocrlf|eol)
    | extensions\.(objectformat|refstorage) | user\.(name|email) | init\.defaultbranch | pull\.(rebase|ff) | push\.default
    | branch\..*\.(remote|merge|rebase|pushremote) | remote\..*\.(url|fetch|tagopt) | submodule\..*\.(url|active)
    """
_HEADER = r'\[([A-Za-z0-9-]+)(?: "([^"\\]*)")?\]'
_SETTING = r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*+([^\"'\\;#`$!|]*)"
_WHERE_TO = r"remote\..*\.url|branch\..*\.(remote|pushremote)|push\.default"
"""Settings that say where a push goes."""
_DATA_KEYS = frozenset({"remote", "merge", "url", "pushurl", "fetch", "name", "email", "template", "worktree"})
_LOOKS_LIKE_A_PATH = r"(?!-)(?!.*//)[\w.~@+-]*/[\w./@+-]*[\w@+-]|[\w@+-]+\.(sh|bash|py|pl|rb|js|mjs|cjs|ts|lua)"
"""Matches a program that need not exist yet, but would be run as soon as it does."""
_HOOKS_PATH = r"(?im)^[^#;\n]*\bhookspath\s*=\s*(.+)$"


def is_gitdir(folder: str, there: Callable[[str], bool] = os.path.lexists) -> bool:
    """Return True if git would accept the folder as a git folder: a repository's, bare or not, or a worktree's."""
    whole = there(f"{folder}/objects") and there(f"{folder}/refs")
    return there(f"{folder}/HEAD") and (whole or there(f"{folder}/commondir"))


def find_obeyed_paths(gitdir: str) -> Iterator[str]:
    """Yield every path that git obeys for `gitdir`, existing or not: those in it and those that its config names."""
    for name in NAMES:
        yield f"{gitdir}/{name}"
    folder, _, last = gitdir.rpartition("/")
    top = folder if last == ".git" else gitdir
    for config in ("config", "config.worktree"):
        yield from _find_named_paths(f"{gitdir}/{config}", top, _DEPTH)


def usual_hooks(top: str) -> Iterator[str]:
    """Yield where the user's own git config puts hooks; relative paths are resolved against `top`."""
    home = os.path.expanduser("~")
    xdg = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for config in (f"{home}/.gitconfig", f"{xdg}/git/config", "/etc/gitconfig"):
        yield from _hooks_paths(read_text(config, _CONFIG_BYTES), top)


def rebase_commands(gitdir: str) -> frozenset[str]:
    """Return the lines of an unfinished rebase that run a command when it is continued."""
    return frozenset(re.findall(_EXEC, read_text(f"{gitdir}/{REBASE}", _CONFIG_BYTES)))


def read_tracked_paths(gitdir: str) -> list[str]:
    """Return the paths in the index; empty if it is missing, large or of an unknown version."""
    data = read_plain(f"{gitdir}/index", _INDEX_BYTES + 1) or b""
    if len(data) > _INDEX_BYTES or data[:8] not in (b"DIRC\0\0\0\2", b"DIRC\0\0\0\3"):
        return []
    found: list[str] = []
    at = 12
    for _ in range(int.from_bytes(data[8:12], "big")):
        start = at + (64 if data[at + 60 : at + 61] >= b"\x40" and data[7] == 3 else 62)
        end = data.find(b"\0", start)
        if end < 0:
            break
        found.append(os.fsdecode(data[start:end]))
        at += (end - at) // 8 * 8 + 8
    return found


def is_plain_config(text: str) -> bool:
    """Return True if nothing in a config can make git run or read anything. What is not understood counts as unsafe."""
    return _has_known_characters(text) and all(is_plain for _, _, is_plain in _lines(text))


def plain_part(text: str) -> str:
    """Return a config without the lines that are not plain."""
    if not _has_known_characters(text):
        return ""
    return "".join(f"{line}\n" for line, _, is_plain in _lines(text.rstrip("\n")) if is_plain)


def pushes_elsewhere(was: str, now: str, *, may_add: bool) -> bool:
    """Return True if the new config, which is plain, could send a push to another place than the old one.

    `may_add`: the new config may set what the old one does not.
    """
    before, after = _destinations(was), _destinations(now)
    remotes = {key.removeprefix("remote.").removesuffix(".url") for key in before if key.startswith("remote.")}
    for key, values in after.items():
        is_second = key.startswith("remote.") and bool(remotes) and key != "remote.origin.url"
        is_to_known = key.startswith("branch.") and values[-1] in {*remotes, "."}
        is_new = key not in before and (may_add or is_second or is_to_known)
        if values != before.get(key) and not is_new:
            return True
    return False


def _destinations(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for _, (key, value), _ in _lines(text):
        if re.fullmatch(_WHERE_TO, key):
            found.setdefault(key, []).append(value)
    return found


def _has_known_characters(text: str) -> bool:
    """Return False if git might split the text into other lines than `_lines` does."""
    return not re.search(r"[^\t\n -\uffff]|\x7f", text)


def _lines(text: str) -> Iterator[tuple[str, tuple[str, str], bool]]:
    """Yield each line, the setting in it if there is one, and whether the line is plain."""
    section = ""
    for line in text.split("\n"):
        if not line.strip() or re.fullmatch(r"\s*[#;][^\\]*", line):
            yield line, ("", ""), True
        elif header := re.fullmatch(_HEADER, line.strip()):
            section = header[1].lower() + (f".{header[2]}" if header[2] is not None else "")
            yield line, ("", ""), True
        else:
            setting = re.fullmatch(_SETTING, line)
            key, value = (f"{section}.{setting[1].lower()}", setting[2].strip()) if setting else ("", "")
            is_plain = re.fullmatch(_PLAIN_KEYS, key) and not value.startswith("-") and "::" not in value
            yield line, (key, value), bool(is_plain)


def _find_named_paths(config: str, top: str, depth: int) -> Iterator[str]:
    """Yield hooks folders, includes and programs: every word of a value that names a file or looks like a path."""
    text = read_text(config, _CONFIG_BYTES)
    yield from _hooks_paths(text, top)
    folder = os.path.dirname(config)
    found = 0
    for line in text.splitlines():
        key, _, value = re.sub(r"^\s*\[.*\]", "", line).partition("=")
        if key.strip().lower() in _DATA_KEYS or found > _NAMED:
            continue
        for word in re.split(r"[\s\"'!;=]+", value or key):
            included = key.strip().lower() == "path"
            path = _join_path(folder if included else top, word)
            is_meant = included or re.fullmatch(_LOOKS_LIKE_A_PATH, word)
            if word and (is_meant or _is_file(path)) and not path.startswith(f"{folder}/refs/"):
                found += 1
                yield path
                if included and depth:
                    yield from _find_named_paths(path, top, depth - 1)


def _hooks_paths(text: str, top: str) -> Iterator[str]:
    for value in re.findall(_HOOKS_PATH, text):
        path = _join_path(top, value.strip().strip('"'))
        if path != top:
            yield path
            if path.endswith("/.husky/_"):
                yield path.removesuffix("/_")  # husky's hooks run the files in there


def _join_path(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


_LINK_FOLDERS = 2000
"""Most folders of one git folder that are searched for links."""
_POINTER_BYTES = 4096


def is_plain(path: str, was: Content, now: Content, *, may_add_remotes: bool = True) -> bool:
    """Return True if the new content is harmless: git runs nothing because of it and pushes to where it did."""
    name = path.rpartition("/")[2]
    if name == "config" and isinstance(now, FileContent) and now.data is not None:
        text = now.data.decode("utf-8", "replace")
        before = was.data.decode("utf-8", "replace") if isinstance(was, FileContent) and was.data else None
        return is_plain_config(text) and (before is None or not pushes_elsewhere(before, text, may_add=may_add_remotes))
    if name == "hooks" and isinstance(now, FolderContent):
        return all(key.endswith(".sample") and isinstance(it, FileContent) for key, it in now.entries.items())
    return name in {"branches", "remotes"} and isinstance(now, FolderContent) and not now.entries


def strip_unsafe(path: str, now: Content) -> Content:
    """Return the content of a path in a git folder that a session made, without the parts that are not plain."""
    if is_plain(path, None, now):
        return now
    if path.rpartition("/")[2] == "config" and isinstance(now, FileContent) and now.data is not None:
        return replace(now, data=plain_part(now.data.decode("utf-8", "replace")).encode())
    return None


def is_pointer_within(top: str, path: str, now: Content, is_guarded: Callable[[str], bool]) -> bool:
    """Return True if a file that points to a git folder, as worktrees and submodules have, points to a guarded one."""
    if not isinstance(now, FileContent) or now.data is None or len(now.data) > _POINTER_BYTES:
        return False
    folder, _, name = path.rpartition("/")
    if name == "gitdir":
        return True  # the way back to a worktree: git trusts only the worktree's own pointer
    text = now.data.decode("utf-8", "replace").removeprefix("gitdir: ").removesuffix("\n")
    if "\n" in text or "\0" in text:
        return False
    target = os.path.realpath(os.path.join(top, folder, text))
    return target.startswith(f"{top}/") and is_guarded(target[len(top) + 1 :])


def links_in(top: str, gitdir: str) -> list[str]:
    return [
        f"{folder}/{entry.name}"
        for folder in find_written_folders(top, gitdir)
        for entry in entries_of(f"{top}/{folder}")
        if entry.is_symlink()
    ]


def find_written_folders(top: str, gitdir: str) -> list[str]:
    """Return the folders in which git writes through links."""
    found = [gitdir]
    waiting = [f"{gitdir}/{name}" for name in WRITTEN if name]
    while waiting and len(found) < _LINK_FOLDERS:
        folder = waiting.pop()
        if os.path.isdir(f"{top}/{folder}") and not os.path.islink(f"{top}/{folder}"):
            found.append(folder)
            waiting += [
                f"{folder}/{entry.name}"
                for entry in entries_of(f"{top}/{folder}")
                if entry.is_dir(follow_symlinks=False)
            ]
    return found
