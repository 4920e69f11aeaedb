"""Stands between the host and the zygotes: trusted, small, and imports nobody's code but the standard library's.

The host sends what a session may see; the launcher opens those mounts, has the zygote fork the session, gives it its
user ids, and lets it go. The zygote has seen foreign code and is given no power for any of this.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

from .kernel import (
    ATTR_IDMAP,
    ATTR_NODEV,
    ATTR_NOSUID,
    ATTR_RDONLY,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    clone,
    close_all_but,
    detached,
    drop_capabilities,
    prctl,
    set_mount_attributes,
    unshare,
)
from .lifeline import tie_to
from .requests import Request, read_request
from .root import Root, begin_with_devices, private_mounts

INNER_ID = 1000
ZYGOTE_ID = 200_000
SESSION_IDS = 60_000
MESSAGE_BYTES = 1 << 16


class ZygoteGone(Exception):
    pass


class Launcher:
    def __init__(self, host: socket.socket, settings: Request) -> None:
        self._host = host
        self._settings = settings
        self._is_root = os.geteuid() == 0 and _maps_up_to(ZYGOTE_ID + SESSION_IDS)
        self._count = 0

    def serve(self) -> None:
        self._enter()
        zygote = self._start_zygote()
        self._host.send(zygote.recv(MESSAGE_BYTES) or b'{"error": "the zygote did not start"}')
        while True:
            message, fds, _, _ = socket.recv_fds(self._host, MESSAGE_BYTES, 8)
            if not message:
                return
            try:
                pid, pidfd = self._spawn(zygote, read_request(fds[0]), fds)
                socket.send_fds(self._host, [json.dumps({"pid": pid}).encode()], [pidfd])
                os.close(pidfd)
            except OSError as error:
                self._say(f"{error.filename or 'spawn'}: {error.strerror}")
            except ZygoteGone as error:
                self._say(str(error))
                return  # the host starts another launcher
            finally:
                for fd in fds:
                    os.close(fd)

    def _say(self, error: str) -> None:
        self._host.send(json.dumps({"error": error}).encode())

    def _enter(self) -> None:
        """A mount namespace of our own; without root, inside a user namespace where we may use it."""
        if not self._is_root:
            uid, gid = os.geteuid(), os.getegid()
            unshare(CLONE_NEWUSER)
            _write_map("self", uid, uid, gid, gid, privileged=False)
        private_mounts()

    def _start_zygote(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = clone(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | signal.SIGCHLD)
        if pid == 0:
            try:
                self._become_zygote(theirs)
            except BaseException as error:  # must not fall back into the launcher's loop
                theirs.send(json.dumps({"error": f"the zygote could not be confined: {error}"}).encode())
            os._exit(1)
        theirs.close()
        return ours

    def _become_zygote(self, channel: socket.socket) -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        root = Root()
        for path in self._settings["read_only"]:
            root.take(path)
        begin_with_devices(root, 16 << 20)
        for path, text in self._settings["files"].items():
            root.write(path, text)
        root.processes()
        root.finish()
        fd = channel.fileno()
        close_all_but(fd)
        os.set_inheritable(fd, True)
        if self._is_root:
            os.setgroups([])
            os.setresgid(ZYGOTE_ID, ZYGOTE_ID, ZYGOTE_ID)
            os.setresuid(ZYGOTE_ID, ZYGOTE_ID, ZYGOTE_ID)
        drop_capabilities()
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        # Again: a change of user ids clears it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        python = self._settings["python"]
        program = [python, "-I", os.path.join(os.path.dirname(__file__), "__main__.py"), "zygote", str(fd)]
        os.execve(python, program, self._settings["environment"])  # noqa: S606 - no shell wanted

    def _spawn(self, zygote: socket.socket, request: Request, fds: list[int]) -> tuple[int, int]:
        self._count += 1
        outer_id = ZYGOTE_ID + 1 + self._count % SESSION_IDS if self._is_root else os.geteuid()
        trees = [self._tree(item, outer_id) for item in request["mounts"]]
        gate, let_go = os.pipe()
        try:
            socket.send_fds(zygote, [b"spawn"], [fds[0], gate, *fds[1:], *trees])
            answer, received, _, _ = socket.recv_fds(zygote, MESSAGE_BYTES, 1)
            if not received:
                raise ZygoteGone(f"the zygote is gone (it answered {answer!r})")
            pid = _pid_of(received[0])
            _write_map(str(pid), INNER_ID, outer_id, INNER_ID, outer_id, privileged=self._is_root)
            os.write(let_go, b"1")
            return pid, received[0]
        finally:
            for fd in (gate, let_go, *trees):
                os.close(fd)

    def _tree(self, item: Request, outer_id: int) -> int:
        path = item["source"]
        tree = detached(path, recursive=True)
        attributes = ATTR_NOSUID | ATTR_NODEV | (0 if item["writable"] else ATTR_RDONLY)
        set_mount_attributes(tree, attributes, recursive=True)
        if self._is_root:
            owner = os.stat(path)
            userns = _mapped_namespace(owner.st_uid, owner.st_gid, outer_id)
            try:
                set_mount_attributes(tree, ATTR_IDMAP, userns=userns)
            except OSError:
                # Not every file system can; data that all may read is still of use.
                if item["writable"]:
                    raise
            finally:
                os.close(userns)
        return tree


def _maps_up_to(number: int) -> bool:
    """Whether these ids exist here: inside another container, root may be the only one."""
    with open("/proc/self/uid_map", encoding="ascii") as table:
        return any(
            int(first) <= number < int(first) + int(count) for first, _, count in map(str.split, table)
        )


def _mapped_namespace(uid: int, gid: int, outer: int) -> int:
    """A user namespace that is only a table: what `uid` owns on disk, `outer` owns in the mount."""
    ready, made = os.pipe()
    done, finished = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(finished)
        unshare(CLONE_NEWUSER)
        os.write(made, b"1")
        os.read(done, 1)
        os._exit(0)
    try:
        os.close(made)
        os.read(ready, 1)
        _write_map(str(child), uid, outer, gid, outer, privileged=True)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (ready, done, finished):
            os.close(fd)
        os.waitpid(child, 0)


def _write_map(process: str, uid: int, outer_uid: int, gid: int, outer_gid: int, *, privileged: bool) -> None:
    if not privileged:
        _write(f"/proc/{process}/setgroups", "deny")
    _write(f"/proc/{process}/uid_map", f"{uid} {outer_uid} 1")
    _write(f"/proc/{process}/gid_map", f"{gid} {outer_gid} 1")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _pid_of(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("Pid:"))


def main(arguments: list[str]) -> None:
    fd, parent = int(arguments[0]), int(arguments[1])
    tie_to(parent)
    os.set_inheritable(fd, False)
    host = socket.socket(fileno=fd)
    settings = json.loads(host.recv(1 << 20))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        Launcher(host, settings).serve()
    except OSError as error:
        host.send(json.dumps({"error": f"{error.filename or 'launcher'}: {error.strerror}"}).encode())
        sys.exit(1)
