"""System calls that Python 3.11 has no function for, on Linux x86_64 and aarch64. Contains no policy.

Uses PyDLL, which holds the interpreter's lock during a raw `clone`, because the child has only this thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_PARENT = 0x8000
CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x200000, 0x1000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
"""All the namespaces of a session except the user namespace."""
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 0x100000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
PR_SET_CHILD_SUBREAPER = 36
_PR_SET_SECCOMP = 22
_PR_GET_TID_ADDRESS = 40
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

# Rights of Landlock for files.
READ = 0b1101
"""Execute, read file, read folder."""
FILE = 0b111 | 1 << 14 | 1 << 15
"""The rights that apply to a file: execute, write, read, truncate, ioctl."""
FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
ABSTRACT_SOCKETS, SIGNALS = 1, 2
"""Landlock scopes: abstract sockets and processes outside the domain are out of reach."""
TCP = 0b11
"""Bind and connect."""

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE = 1
_RESOLVE_NO_SYMLINKS = 4
_MOVE_MOUNT_F_EMPTY_PATH = 4
_LISTENER = 8
_X86 = os.uname().machine == "x86_64"
_CLONE = 56 if _X86 else 220
_PIVOT_ROOT = 155 if _X86 else 41
_SECCOMP = 317 if _X86 else 277
_CAPSET = 126 if _X86 else 91
# These numbers are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _CLOSE_RANGE, _OPENAT2, _MOUNT_SETATTR = 428, 429, 436, 437, 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _thread_id_address() -> int:
    """Return where libc keeps the main thread's id, or 0 if unknown: a raw clone must update it as fork does."""
    place = ctypes.c_void_p()
    known = _libc.prctl(ctypes.c_int(_PR_GET_TID_ADDRESS), ctypes.byref(place), *[ctypes.c_ulong(0)] * 3) == 0
    return place.value or 0 if known else 0


def _check_result(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


_number_at = _thread_id_address()


def _call(number: int, what: str, *arguments: int | bytes | None) -> int:
    """Pass buffers that the kernel only reads as bytes: a ctypes type for each buffer would delay session starts."""
    widened = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return _check_result(_libc.syscall(ctypes.c_long(number), *widened), what)


def fork() -> int:
    """As `os.fork`, without Python's at-fork handlers. Only for a process with one thread that holds no lock."""
    return _check_result(_libc.fork(), "fork")


def clone(flags: int) -> int:
    """As fork, into new namespaces. No at-fork handlers run: the child must not use threads of the parent."""
    if not _number_at:
        return _call(_CLONE, "clone", flags, 0, 0, 0, 0)
    flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID
    rest = (_number_at, 0) if _X86 else (0, _number_at)
    return _call(_CLONE, "clone", flags, 0, 0, *rest)


def unshare(flags: int) -> None:
    _check_result(_libc.unshare(ctypes.c_int(flags)), "unshare")


def prctl(option: int, *values: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    _check_result(_libc.prctl(ctypes.c_int(option), *padded), f"prctl {option}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _check_result(result, f"mount {source or kind} on {target}")


def pivot_to(folder: str) -> None:
    """Make `folder`, a mount, the root of every process here. `leave_old_root` then unmounts the old root."""
    os.chdir(folder)
    _call(_PIVOT_ROOT, f"pivot_root {folder}", b".", b".")


def leave_old_root() -> None:
    """Unmount the old root, which covers the new one and is still the current folder."""
    _check_result(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "umount the old root")
    os.chdir("/")


def unmount(target: str) -> None:
    """Unmount lazily: hidden at once, freed when no longer used."""
    _check_result(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def clone_mount(path: str, *, recursive: bool) -> int:
    """Return a descriptor of a detached copy of the mount at `path`."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    return _call(_OPEN_TREE, f"open_tree {path}", _AT_FDCWD, os.fsencode(path), flags)


def attach(tree: int, target: str) -> None:
    _call(_MOVE_MOUNT, f"move_mount to {target}", tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)


def open_without_links(path: str) -> int:
    """Open a path only as a location (`O_PATH`). Raises OSError if any part of it is a link."""
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    return _call(_OPENAT2, path, _AT_FDCWD, os.fsencode(path), how, 24)


def set_mount_attributes(
    tree: int, attributes: int, *, cleared: int = 0, userns: int = 0, recursive: bool = False
) -> None:
    packed = struct.pack("=QQQQ", attributes, cleared, 0, userns)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _call(_MOUNT_SETATTR, "mount_setattr", tree, b"", flags, packed, 32)


def close_all_but(*keep: int) -> None:
    """Close every descriptor from 3 on except these."""
    first = 3
    for fd in (*sorted(keep), 1 << 31):
        if fd > first:
            _call(_CLOSE_RANGE, "close_range", first, fd - 1, 0)
        first = max(first, fd + 1)


def loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0x49)  # up, running, loopback
        fcntl.ioctl(any_socket, 0x8914, request)


def set_hostname(name: bytes) -> None:
    _check_result(_libc.sethostname(name, ctypes.c_size_t(len(name))), "sethostname")


def drop_capabilities() -> None:
    """Remove all capabilities from every set, permanently."""
    limit_capabilities(())
    set_capabilities(())


def limit_capabilities(keep: tuple[int, ...]) -> None:
    """Prevent programs started from here on from getting any capabilities but these."""
    for capability in range(64):
        if capability not in keep and _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break  # no such capability, or no right to drop it
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def set_capabilities(keep: tuple[int, ...], held: tuple[int, ...] = ()) -> None:
    """Set this process's capabilities to `keep`. It can later enable those in `held` too, but no others."""
    header = struct.pack("=II", 0x20080522, 0)
    kept = sum(1 << capability for capability in keep)
    may = kept | sum(1 << capability for capability in held)
    sets = struct.pack("=6I", kept & 0xFFFFFFFF, may & 0xFFFFFFFF, 0, kept >> 32, may >> 32, 0)
    _call(_CAPSET, "capset", header, sets)


def seccomp(program: bytes, *, listen: bool = False) -> int:
    """Install a system call filter for this thread and all it starts. Needs `prctl(PR_SET_NO_NEW_PRIVS, 1)` first.

    With `listen`, return a descriptor on which the filter's notifications arrive.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(buffer))
    return _call(_SECCOMP, "seccomp", 1, _LISTENER if listen else 0, filter_)


def add_filter(program: bytes) -> None:
    """Add a filter for this thread and all it starts, by a system call that the session's own filter permits."""
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("=H6xQ", len(program) // 8, ctypes.addressof(buffer)))
    prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(filter_))


def landlock_abi() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    try:
        return _call(_LANDLOCK_CREATE, "landlock", None, 0, 1)
    except OSError:
        return 0


class Landlock:
    """A set of Landlock rules, in force from `restrict` on. Leaves out what the ABI does not support."""

    def __init__(self, abi: int, rights: int = -1, *, scoped: int = 0, network: int = 0) -> None:
        """`rights`: file accesses to refuse unless allowed. `network`: network accesses to refuse."""
        self.everything = rights & ((1 << FS_BITS.get(abi, 16)) - 1)
        scoped, network = scoped if abi >= 6 else 0, network if abi >= 4 else 0
        attributes = struct.pack("=QQQ", self.everything, network, scoped)
        self._ruleset = _call(_LANDLOCK_CREATE, "landlock_create_ruleset", attributes, 24 if scoped else 16, 0)

    def allow(self, access: int, paths: Iterable[str]) -> None:
        """Allow these accesses at and below the paths, as far as they exist."""
        for path in filter(os.path.exists, paths):
            allowed = access & self.everything & (-1 if os.path.isdir(path) else FILE)
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", allowed, parent)
                _call(_LANDLOCK_ADD, f"landlock_add_rule {path}", self._ruleset, 1, rule, 0)
            finally:
                os.close(parent)

    def restrict(self) -> None:
        """Apply the rules to this thread and all it starts, permanently."""
        _call(_LANDLOCK_RESTRICT, "landlock_restrict_self", self._ruleset, 0)
        os.close(self._ruleset)
