"""Builds with a layer taken out, to show that a program would get through but for it. Only ever used inside the cage.

A layer is taken out of a copy of the guest by defining one of its functions again at the end of the file, or of the
host by putting another function in its place. The product has no switch for any of this.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.escape_suite.cage import refuse_outside
from bench.escape_suite.program import Level
from msgspec.structs import replace

from pinfold.sandbox import Provider
from pinfold.sandbox.guards.guarded_paths import GuardedPaths, find_guarded_paths
from pinfold.sandbox.providers import landlock, namespaces
from pinfold.sandbox.providers import launcher as _launcher
from pinfold.sandbox.providers.launcher import GUEST as GUEST_FOLDER
from pinfold.sandbox.providers.launcher import Launcher
from pinfold.sandbox.session import guest as _guest
from pinfold.sandbox.session import limits as _limits
from pinfold.sandbox.session import output as _output
from pinfold.sandbox.session.channel import LENGTHS, Reply, ReplyReader

_WITHOUT_FLAG = """
_whole_clone_{name} = clone
def clone(flags): return _whole_clone_{name}(flags & ~{flag})
"""

GUEST: dict[str, dict[str, str]] = {
    "filter": {"kernel/syscalls": "def seccomp(program): pass"},
    "landlock": {"kernel/syscalls": "def landlock_abi(): return 0"},
    "capabilities": {"kernel/syscalls": "def drop_capabilities(keep=()): pass"},
    "no-new-privileges": {
        "kernel/syscalls": "_prctl_all = prctl\ndef prctl(option, *values):\n    if option != PR_SET_NO_NEW_PRIVS: _prctl_all(option, *values)"
    },
    "closed-memory": {
        "kernel/syscalls": "_prctl_open = prctl\ndef prctl(option, *values): _prctl_open(option, *((1,) if option == PR_SET_DUMPABLE else values))"
    },
    "pid-namespace": {
        "kernel/syscalls": _WITHOUT_FLAG.format(name="pid", flag="CLONE_NEWPID")
        + "_mount_proc = mount\n"
        + "def mount(source, target, kind, flags, data=None):\n"
        + "    if kind == 'proc': source, kind, flags, data = '/proc', None, MS_BIND | MS_REC, None\n"
        + "    _mount_proc(source, target, kind, flags, data)\n"
    },
    "net-namespace": {
        "kernel/syscalls": _WITHOUT_FLAG.format(name="net", flag="CLONE_NEWNET") + "def loopback_up(): pass\n"
    },
    "ipc-namespace": {"kernel/syscalls": _WITHOUT_FLAG.format(name="ipc", flag="CLONE_NEWIPC")},
    "uts-namespace": {
        "kernel/syscalls": _WITHOUT_FLAG.format(name="uts", flag="CLONE_NEWUTS") + "def set_hostname(name): pass\n"
    },
    "user-id": {"startup/launcher": "if maps_up_to(FIRST_ID + SESSION_IDS):\n    FIRST_ID, SESSION_IDS = -1, 1\n"},
    "memory-bound": {
        "kernel/processes": "def memory_of_all(enough): return 0",
        "kernel/groups": "def usable_places(): return {}",
    },
    "watch-bound": {"kernel/processes": "def bound_watches(most): pass"},
    "limits": {"kernel/syscalls": "import resource\nresource.setrlimit = lambda *_: None\n"},
    "descriptors": {
        "kernel/syscalls": """
def close_all_but(*keep): pass
_close_any = os.close
def _close(fd):
    try:
        paper = "memfd" in os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        paper = False
    if not paper: _close_any(fd)
os.close = _close
"""
    },
    "environment": {
        "kernel/syscalls": """
try:
    _items = open(f"/proc/{os.getppid()}/environ").read().split(chr(0))
except OSError:
    _items = []
os.environ.update(item.split("=", 1) for item in _items if "=" in item)
_execve = os.execve
os.execve = lambda path, arguments, environment: _execve(path, arguments, {**os.environ, **environment})
os.environ.clear = lambda: None
"""
    },
    "read-only": {
        "kernel/syscalls": """
_set_all = set_mount_attributes
def set_mount_attributes(tree, attributes, **others): _set_all(tree, attributes & ~ATTR_RDONLY, **others)
_mount_ro = mount
def mount(source, target, kind, flags, data=None):
    # A remount must name what may not be taken off again.
    if not flags & MS_REMOUNT: _mount_ro(source, target, kind, flags & ~MS_RDONLY, data)
"""
    },
    "sizes": {
        "kernel/syscalls": """
_mount_sized = mount
def mount(source, target, kind, flags, data=None):
    _mount_sized(source, target, kind, flags, "mode=1777" if kind == "tmpfs" and "1777" in (data or "") else data)
"""
    },
    "hidden-processes": {
        "kernel/syscalls": """
_mount_hidden = mount
def mount(source, target, kind, flags, data=None):
    _mount_hidden(source, target, kind, flags, None if kind == "proc" else data)
"""
    },
    "protection": {
        "startup/init": "_guard_all = guard\ndef guard(request): _guard_all({**request, 'pinned': [], 'protected': []})"
    },
    "own-root": {
        "kernel/syscalls": """
def _merge(old, new, device):
    for name in os.listdir(old):
        before, after = os.path.join(old, name), os.path.join(new, name)
        if before == "/tmp" or os.path.islink(before): continue
        if not os.path.lexists(after):
            if os.path.isdir(before): os.mkdir(after)
            else: os.close(os.open(after, os.O_CREAT | os.O_WRONLY, 0o666))
            mount(before, after, None, MS_BIND | MS_REC)
        elif os.path.isdir(after) and os.stat(after).st_dev == device:
            _merge(before, after, device)
_pivot_alone = pivot_to
def pivot_to(folder):
    _merge("/", folder, os.stat(folder).st_dev)
    _pivot_alone(folder)
"""
    },
}


def _no_masks() -> None:
    def unmasked(source: Path, shown: str, **given: Any) -> GuardedPaths:
        return replace(find_guarded_paths(source, shown, **given), masked=[])

    namespaces.find_guarded_paths = unmasked
    _no_keeper()  # it would mask what a program gives a new name, sooner or later


def _no_protection() -> None:
    def unprotected(source: Path, shown: str, **given: Any) -> GuardedPaths:
        return replace(find_guarded_paths(source, shown, **given), protected=[])

    namespaces.find_guarded_paths = unprotected


def _no_keeper() -> None:
    def none(*_: object) -> None:
        pass

    namespaces.Guests._make_guard = none  # noqa: SLF001 # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
    landlock._make_guards = none  # noqa: SLF001 # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]


class Credulous(ReplyReader):
    """Takes the first frame for the answer, whatever it is an answer to, and keeps the rest for later."""

    def feed(self, data: bytes) -> Reply | None:
        self._buffer += data
        if self._id is None or len(self._buffer) < LENGTHS.size:
            return None
        header, body = LENGTHS.unpack_from(self._buffer)
        end = LENGTHS.size + header + body
        if len(self._buffer) < end:
            return None
        start = LENGTHS.size + header
        text = bytes(self._buffer[start:end]).decode("utf-8", "replace")
        del self._buffer[:end]
        self._id = None
        status = "hello" if "hello" in self._statuses else "ok"
        return Reply(status=status, body=text.encode(), value=text)


def _credulous() -> None:
    _guest.ReplyReader = Credulous


class Counting(_guest.Guest):
    """Numbers its requests one after the other, as anybody would guess."""

    _last = 0

    def _open(
        self,
        request_id: int,
        statuses: frozenset[_guest.GuestStatus],
        reply_bytes: int,
        on_call: _guest.OnGuestCall | None = None,
        on_piece: _guest.OnPiece | None = None,
    ) -> None:
        if request_id:
            self._last += 1
            self._id = self._last
        super()._open(self._last, statuses, reply_bytes, on_call, on_piece)


def _count_on() -> None:
    _launcher.Guest = Counting


def _patient() -> None:
    def never(self: object, grace_s: float) -> None:
        pass

    _limits.Deadline.now = never


def _boundless() -> None:
    whole = _output.Output.__init__

    def init(self: _output.Output, stream: _output.Stream, fd: int, cap: int) -> None:
        whole(self, stream, fd, cap * 1000)

    _output.Output.__init__ = init


HOST: dict[str, Callable[[], None]] = {
    "masks": _no_masks,
    "protection": _no_protection,
    "keeper": _no_keeper,
    "checked-replies": _credulous,
    "secret-numbers": _count_on,
    "deadline": _patient,
    "bounded-output": _boundless,
}
LAYERS = tuple(dict.fromkeys((*GUEST, *HOST)))


class Unproven(namespaces.Namespaces):
    """A weakened build would not be handed out; that check is the product's, and is what we go around."""

    async def prove(self, launcher: Launcher) -> None:
        launcher.proven = True


class UnprovenLandlock(landlock.Landlock):
    async def _prove(self, owner: tuple[int, int]) -> None:
        pass


def weakened(layers: Iterable[str], python: Path, folder: Path, level: Level = "namespaces") -> Provider:
    """The provider with these layers taken out, for the rest of this process; none is the product itself."""
    refuse_outside()
    wanted = sorted(layers, key=LAYERS.index)
    if not wanted:
        return landlock.Landlock(python) if level == "landlock" else namespaces.Namespaces(python)
    for layer in wanted:
        if layer in HOST:
            HOST[layer]()
    guest = _without([layer for layer in wanted if layer in GUEST], folder)
    return (UnprovenLandlock if level == "landlock" else Unproven)(python, guest=guest)


def _without(layers: list[str], folder: Path) -> Path:
    """A copy of the guest."""
    copy = folder / "guest"
    shutil.copytree(GUEST_FOLDER, copy)
    for layer in layers:
        for module, code in GUEST[layer].items():
            with (copy / f"{module}.py").open("a", encoding="utf-8") as file:
                file.write(f"\n\n{code}\n")
    return copy
