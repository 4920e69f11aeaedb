"""Tests what the kernel lets an ordinary program do here, and finds control groups that launchers left. Prints JSON."""

from __future__ import annotations

import errno
import json
import os
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress

from ..kernel import syscalls
from ..kernel.groups import leftovers, remove_tree, usable_places
from .mounts import Owners, enter_user_namespace, isolate_mounts, try_view

ALLOW_ALL = struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)
OTHER_ID = 1000


def main(arguments: list[str]) -> None:
    """Arguments: none, to test the kernel; `list` or `remove`, for control groups of launchers that are gone."""
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(_sweep(removes=arguments == ["remove"]) if arguments else features()))


def _sweep(*, removes: bool) -> list[str]:
    found: list[str] = []
    with suppress(OSError):
        found = sorted(leftovers())
    if removes:
        for folder in found:
            remove_tree(folder)
        found = [folder for folder in found if not os.path.exists(folder)]
    return found


def features() -> dict[str, object]:
    places: dict[str, tuple[int, str]] = {}
    with suppress(OSError):
        places = usable_places()
    return {
        "landlock_abi": syscalls.landlock_abi(),
        "user_namespaces": try_in_child(_make_user_namespace),
        "mounts": try_in_child(_make_mounts),
        "seccomp": try_in_child(_filter),
        "idmapped_mounts": try_in_child(_idmap),
        "views": try_in_child(try_view),
        "cgroup": {name: version for name, (version, _) in places.items()},
    }


def try_in_child(attempt: Callable[[], None]) -> str:
    """Run `attempt` in a process of its own. Return "" if it works, else the error's name."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            attempt()
        except OSError as error:
            os.write(writer, errno.errorcode.get(error.errno or 0, str(error)).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode()[:200])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = file.read().decode()
    _, status = os.waitpid(child, 0)
    return said or ("" if status == 0 else f"ended by signal {status}")


def _make_user_namespace() -> None:
    pid = syscalls.clone(syscalls.CLONE_NEWUSER | signal.SIGCHLD)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _make_mounts() -> None:
    if os.geteuid() != 0:
        enter_user_namespace(os.geteuid(), os.getegid())
    syscalls.unshare(syscalls.CLONE_NEWNS)
    isolate_mounts()


def _filter() -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.seccomp(ALLOW_ALL)


def _idmap() -> None:
    """Only root needs this. The result holds for /usr; other file systems may differ."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    isolate_mounts()
    tree = syscalls.clone_mount("/usr", recursive=False)
    syscalls.set_mount_attributes(tree, syscalls.ATTR_IDMAP, userns=Owners().take(0, 0, OTHER_ID))
