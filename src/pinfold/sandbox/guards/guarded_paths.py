"""Finds the files of a mount that a session must not read or change. Runs before the session starts; fails closed."""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from pinfold.sandbox.contract import DATASETS, SERVERS, SKILLS, Mount, SandboxUnavailable
from pinfold.sandbox.guards import named_files
from pinfold.sandbox.guards.contents import folders_above, is_fresh
from pinfold.sandbox.guards.gitdir import DATA, find_obeyed_paths, is_gitdir, usual_hooks
from pinfold.sandbox.guards.named_files import NAMES, PATTERNS, NamePatterns, is_masked
from pinfold.sandbox.guards.set_id_files import search_set_id
from pinfold.sandbox.kernel.inotify import FOLDERS
from pinfold.sandbox.kernel.safe_files import SET_ID, chmod, lstat

STEERING = (".mcp.json", "pinfold.toml", ".agents", "AGENTS.md", "CLAUDE.md")
"""Names at the top of the workspace whose content the agent would obey."""
_CHECKOUT = ("pinfold", "check", "scripts", "src", ".uv", ".venv", "pyproject.toml", "uv.lock")
"""What the commands of a Pinfold checkout run."""
_SYSTEM = ("/", "/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/usr", "/var")
_INSIDE = (*_SYSTEM[1:-1], "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin")
"""Folders from which nothing may be mounted: a session has its own, or must have none."""
_WIDE = ("/home", "/mnt", "/opt", "/srv", "/tmp")
_OWN_PLACES = (DATASETS, SERVERS, SKILLS)
_MOST = 2_000_000
"""Most entries of one mount; a folder with more is not accepted."""
_LONGEST = 3800
"""Most characters of a folder's path: below a longer one, some paths would exceed the kernel's PATH_MAX."""
_FEW = 64
Listings: TypeAlias = dict[str, tuple[tuple[int, int, int], list[os.DirEntry[str]], list[os.DirEntry[str]]]]
"""By folder, relative to the top: its stamp, its entries and the folders among them; valid while the stamp is the same.
"""
_LINKS = 10
"""Most links that are followed from one name."""


class GuardedPaths(Struct, frozen=True, kw_only=True):
    """What to guard, by the path the session sees. Masked files carry device and inode, so that no other is masked."""

    masked: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    pinned: list[str] = field(default_factory=list[str])
    """Git folders: writable, but mount points, so that none can be moved away. Mounted before `protected`."""
    protected: list[str] = field(default_factory=list[str])
    """Existing files and folders, no links; mounted read-only."""
    hidden: list[str] = field(default_factory=list[str])
    """Folders too deep to be searched; hidden as a whole."""
    kept: list[str] = field(default_factory=list[str])
    """Paths that the guard keeps as they were before a cell, or absent if they were absent."""
    told: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Files whose change is reported to the user. For the guard, as all fields below; relative to the mount."""
    environments: list[named_files.VirtualEnvironment] = []
    """Virtual environments, with what is obeyed in each."""
    folders: list[str] | None = None
    """Every folder except those of git's data; None if there are more than can be watched."""


def find_guarded_paths(
    source: Path, shown: str, *, steers: bool, on_listed: Callable[[Listings], None] | None = None
) -> GuardedPaths:
    """Return what to guard in the folder or file `source`, which the session sees at `shown`.

    `steers`: it is the workspace, whose instructions the agent would obey, or is writable. `on_listed` is called once
    every folder is listed, so that the file history need not list them again. Raises SandboxUnavailable.
    """
    top = str(source)
    if top in _SYSTEM:
        raise SandboxUnavailable(f"{source} belongs to the system; name a folder of your own")
    with search_set_id(top, lambda: Walk(top, steers=False, wants_set_id=True).set_id) as read_set_id:
        listings: Listings | None = {} if on_listed else None
        found = Walk(top, steers=steers, listings=listings)
        if on_listed and listings:
            on_listed(listings)
        set_id = [path for path in read_set_id() if not any(is_within(path, folder) for folder in found.too_deep)]
    environments = [named_files.read_environment(top, home) for home in found.environments]
    found.autorun |= {match.path: match.row for one in environments for match in one.matches(top)}
    kept = list(dict.fromkeys(path for gitdir in found.gitdirs for path in _find_gitdir_paths(gitdir, top)))
    kept += found.pointers
    if steers:
        kept += [path for name in STEERING for path in follow_links(f"{top}/{name}", top)]
        if f"{top}/.git" not in found.gitdirs and f"{top}/.git" not in found.pointers:
            kept.append(f"{top}/.git")
        through = [match.path for _, match in found.through_links if match.row.response == "put back"]
        kept += [path for name in (*found.paths_to_restore(), *through) for path in follow_links(f"{top}/{name}", top)]
    protected = [real for path in kept if (real := mountable(path, top))] + set_id
    if steers:
        protected += ours_within(top)
    cut = len(top)
    return GuardedPaths(
        masked=[(shown + path[cut:], device, inode) for path, device, inode in found.masked],
        pinned=[shown + path[cut:] for path in found.gitdirs],
        protected=sorted({shown + path[cut:] for path in protected}),
        hidden=[shown + path[cut:] for path in reduce_folders(found.too_deep)],
        kept=[shown + path[cut:] for path in dict.fromkeys(kept)],
        told={name: stamp_of(f"{top}/{name}") for name in found.paths_to_report()},
        environments=environments,
        folders=found.folders if len(found.folders) <= FOLDERS else None,
    )


def find_gitdir_guards(gitdir: str, top: str) -> GuardedPaths:
    """Return what to guard in a git folder below `top` that was made after the walk, by the paths on the host."""
    kept = list(_find_gitdir_paths(gitdir, top))
    protected = {real for path in kept if (real := mountable(path, top))}
    return GuardedPaths(pinned=[gitdir], protected=sorted(protected), kept=kept)


def why_not_mountable(mount: Mount) -> str | None:
    """Return a message for the user if the path belongs to the system, to Pinfold or to the session itself."""
    path = mount.path
    if str(path) in (*_SYSTEM, *_WIDE) or any(path.is_relative_to(folder) for folder in _INSIDE):
        return "it belongs to the system; name a folder of your own"
    if any(path.is_relative_to(place) for place in _OWN_PLACES):
        return "Pinfold uses that path inside the session"
    if mount.writable and any(path.is_relative_to(ours) for ours in _find_installation()):
        return "Pinfold's own program lies there and must not be changed from inside; mount it read-only"
    return None


def mountable(path: str, top: str) -> str | None:
    """Return the real path of `path` if it exists below `top` and may be read-only as a whole."""
    if not os.path.lexists(path) or (path.endswith("/.git") and not os.path.isfile(path)):
        return None  # a `.git` folder is pinned, under its own name
    if os.path.islink(path) and os.path.isdir(path):
        return None  # obeyed files in the folder are guarded under their own paths
    real = os.path.realpath(path)
    return real if real.startswith(f"{top}/") and os.path.lexists(real) else None


def _find_gitdir_paths(gitdir: str, top: str) -> Iterator[str]:
    parent, _, name = gitdir.rpartition("/")
    for path in (*find_obeyed_paths(gitdir), *usual_hooks(parent if name == ".git" else gitdir)):
        yield from follow_links(path, top)


def follow_links(path: str, top: str) -> Iterator[str]:
    """Yield each link on the way to the target of `path`, then the target, as far as they are below `top`."""
    for _ in range(_LINKS):
        if not path.startswith(f"{top}/"):
            return
        ways = [*(f"{top}/{folder}" for folder in folders_above(path[len(top) + 1 :])), path]
        link = next(filter(os.path.islink, ways), None)
        yield link or path
        if link is None:
            return
        target = os.path.join(os.path.dirname(link), os.readlink(link))
        path = os.path.normpath(target + path[len(link) :])


def reduce_folders(folders: set[str]) -> list[str]:
    """Return the folders, or if they are too many to mount each, fewer folders above them."""
    longest = _LONGEST
    while len(folders) > _FEW and longest > 1:
        longest //= 2
        folders = {folder if (end := folder.find("/", longest)) < 0 else folder[:end] for folder in folders}
    return sorted(folders)


def _list_folder(folder: str, opened: ExitStack) -> list[os.DirEntry[str]] | None:
    """List a folder. If it is closed to this user, open it until `opened` exits, because code in the session could too.

    None if it is closed and belongs to another user: then code cannot read it either.
    """
    try:
        with os.scandir(folder) as inside:
            entries = list(inside)
        if entries and os.geteuid() != 0:
            entries[0].stat(follow_symlinks=False)  # a folder may be listable but not searchable
        return entries
    except PermissionError:
        mode = _chmod(folder, None)
        if mode is None:
            return None
        opened.callback(_chmod, folder, mode)
    with os.scandir(folder) as inside:
        return list(inside)


def _chmod(folder: str, mode: int | None) -> int | None:
    """Set the mode and return the old one, or None if this is not permitted. Without a mode, let the owner read it."""
    with suppress(OSError):
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            was = stat.S_IMODE(os.fstat(fd).st_mode)
            chmod(fd, was | 0o500 if mode is None else mode)
            return was
        finally:
            os.close(fd)
    return None


class Walk:
    """Walks all names once and stats only files with a name of interest. Raises SandboxUnavailable on failure."""

    def __init__(
        self,
        top: str,
        *,
        steers: bool,
        is_last: bool = False,
        wants_set_id: bool = False,
        listings: Listings | None = None,
    ) -> None:
        """`steers`: note what a program would obey too. `is_last`: add unreadable folders to `closed`, do not raise."""
        self.masked: list[tuple[str, int, int]] = []
        self.gitdirs: dict[str, None] = {}
        """In order: a nested git folder comes after the one that holds it."""
        self.pointers: list[str] = []
        """`.git` files, which say where the git folder is."""
        self.set_id: list[str] = []
        self.too_deep: set[str] = set()
        self.closed: list[str] = []
        """Folders that could not be read."""
        self.autorun: dict[str, named_files.AutorunRule] = {}
        """What a program would obey, except git's own files, by path relative to the top."""
        self.through_links: list[tuple[str, named_files.Match]] = []
        """Links, each with what a program would obey at a path through it, whether that exists or not."""
        self.folders: list[str] = []
        """Folders that do not hold git's data, relative to the top; stops soon after the limit `FOLDERS`."""
        self._top = top
        self._steers = steers
        self._is_last = is_last
        self._names = _compile_patterns(named_files.TABLE)
        self._known: dict[str, bool] = {}
        """For each name so far: whether its path needs a closer check."""
        self._linked: set[tuple[int, int]] = set()
        self._seen: set[str] = set()
        self._wants_set_id = wants_set_id
        self._listings = listings
        if not os.path.isdir(top):
            self._look(top, top.rpartition("/")[2], os.lstat(top))
            return
        with ExitStack() as opened:
            self._walk(self._note, opened)
            if self._linked:  # find the other names of hard-linked secrets
                self._seen = {path for path, _, _ in self.masked}
                self._walk(self._other_names, opened)

    @property
    def environments(self) -> list[str]:
        """The folders of virtual environments, relative to the top."""
        return [path.rpartition("/")[0] for path, row in self.autorun.items() if row.pattern == "pyvenv.cfg"]

    def paths_to_restore(self) -> list[str]:
        homes = self.environments
        return [
            path
            for path, row in self.autorun.items()
            if row.response == "put back"
            and (row.only_in != "environment" or any(is_within(path, home) for home in homes))
        ]

    def paths_to_report(self) -> list[str]:
        through = ((link, match.row) for link, match in self.through_links)
        return [path for path, row in (*self.autorun.items(), *through) if row.response == "tell"]

    def _walk(self, look: Callable[[str, list[os.DirEntry[str]], bool], None], opened: ExitStack) -> None:
        """Call `look` with each folder, its entries, and True if its path makes everything in it secret."""
        waiting = [(self._top, False)]
        count = 0
        while waiting:
            folder, secret = waiting.pop()
            if len(folder) > _LONGEST:
                self.too_deep.add(folder)
                continue
            try:
                stamp = stamp_of_folder(os.stat(folder, follow_symlinks=False))
                entries = _list_folder(folder, opened)
                if entries is None:
                    self.closed.append(folder)
                    continue
                folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
                if self._listings is not None and not is_fresh(stamp[-1]):
                    self._listings[folder[len(self._top) + 1 :]] = stamp, entries, folders
                look(folder, entries, secret)
                passed = DATA if folder in self.gitdirs else ()
                waiting += [
                    (entry.path, secret or (PATTERNS.may_end(entry.name) and self._names_secret(entry.path)))
                    for entry in folders
                    if entry.name not in passed
                ]
            except OSError as error:
                if self._is_last:
                    self.closed.append(folder)
                    continue
                words = f"{error.filename or folder} cannot be searched for secrets: {error.strerror}"
                raise SandboxUnavailable(f"{words}; make it readable or choose another folder") from error
            count += len(entries)
            if count > _MOST:
                raise SandboxUnavailable(f"{self._top} holds more than {_MOST:,} files; choose a smaller folder")

    def _note(self, folder: str, entries: list[os.DirEntry[str]], secret: bool) -> None:
        known, wants_set_id = self._known, self._wants_set_id
        is_git = folder.endswith("/.git")
        if len(self.folders) <= FOLDERS:
            self.folders.append(folder[len(self._top) + 1 :])
        for entry in entries:
            name = entry.name
            # The same names occur again and again, so each is checked once.
            noted = known.get(name)
            if noted is None:
                noted = known[name] = self._names.may_end(name)
            if noted:
                is_git = is_git or (name == "HEAD" and is_gitdir(folder))
                if self._steers:
                    self._note_autorun(entry.path)
            if entry.is_file(follow_symlinks=False):
                if noted or secret:
                    self._look(entry.path, name, os.lstat(entry.path), secret=secret)
                elif wants_set_id and os.lstat(entry.path).st_mode & SET_ID:
                    self.set_id.append(entry.path)
            elif entry.is_symlink():
                self._look_at_link(entry.path, name, secret=secret)
            elif not entry.is_dir(follow_symlinks=False):
                self._look(entry.path, name, os.lstat(entry.path), secret=secret)
        if is_git:
            self.gitdirs[folder] = None

    def _note_autorun(self, path: str) -> None:
        found = named_files.match(path[len(self._top) + 1 :])
        if found and found.row.only_in != "git":
            self.autorun[found.path] = found.row

    def _names_secret(self, path: str) -> bool:
        """Check the path within the mount; for a file that is mounted alone, its name."""
        return is_masked(path[len(self._top) + 1 :] or path.rpartition("/")[2])

    def _look(self, path: str, name: str, status: os.stat_result, *, secret: bool = False) -> None:
        if secret or self._names_secret(path) or stat.S_ISSOCK(status.st_mode):
            self._mask(path, status)
        elif name == ".git":
            self.pointers.append(path)

    def _look_at_link(self, path: str, name: str, *, secret: bool) -> None:
        """Note a link. Its target is guarded under its own name, unless only the link's name shows it to be secret."""
        if self._steers:
            link = path[len(self._top) + 1 :]
            self.through_links += [(link, match) for match in named_files.match_link(link)]
        if name == ".git":
            self.pointers.append(path)
        elif secret or self._names_secret(path):
            target = os.path.realpath(path)
            if target.startswith(f"{self._top}/") and os.path.isfile(target):
                self._mask(target, os.lstat(target))

    def _mask(self, path: str, status: os.stat_result) -> None:
        self.masked.append((path, status.st_dev, status.st_ino))
        if status.st_nlink > 1:
            self._linked.add((status.st_dev, status.st_ino))

    def _other_names(self, _folder: str, entries: list[os.DirEntry[str]], _secret: bool) -> None:
        for entry in entries:
            if entry.path not in self._seen and entry.is_file(follow_symlinks=False):
                status = os.lstat(entry.path)
                if (status.st_dev, status.st_ino) in self._linked:
                    self.masked.append((entry.path, status.st_dev, status.st_ino))


@functools.lru_cache(maxsize=2)
def _compile_patterns(table: tuple[named_files.AutorunRule, ...]) -> NamePatterns:
    """Return the patterns of names whose path needs a closer check."""
    return NamePatterns([*NAMES, ".git", "HEAD", *(row.pattern.rstrip("/") for row in table)])


def is_within(path: str, folder: str) -> bool:
    """Return True if `path` is `folder` or lies in it. Both are relative to the same top, which is the empty path."""
    return not folder or path == folder or path.startswith(f"{folder}/")


def stamp_of_folder(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def stamp_of(path: str) -> tuple[int, int]:
    """Return inode and ctime, which differ after a change; for a folder, after a change of the names in it."""
    status = lstat(path)
    return (status.st_ino, status.st_ctime_ns) if status else (0, 0)


def ours_within(top: str) -> list[str]:
    """Return Pinfold's own files below `top`: code in the sandbox must never change what runs outside."""
    return [path for path in map(str, _find_installation()) if path.startswith(f"{top}/") and os.path.lexists(path)]


@functools.cache
def _find_installation() -> list[Path]:
    package = Path(__file__).resolve().parents[2]
    installed = [package, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    checkout = package.parents[1]
    if (checkout / "scripts" / "bootstrap.sh").exists():
        installed += [checkout / name for name in _CHECKOUT]
    return installed
