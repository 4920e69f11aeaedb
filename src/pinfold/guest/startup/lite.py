"""The launcher of lite sessions, for systems that refuse user namespaces. Trusted, unconfined, standard library only.

It starts one zygote for one workspace, confined by Landlock and a system call filter before it imports anything, and
has it fork sessions. It outlives the host just long enough to leave nothing behind: no process, group or folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress

from ..kernel import syscalls
from ..kernel.groups import Group, Groups, make_groups
from ..kernel.landlock import restrict_zygote
from ..kernel.processes import children, parent_of, pid_of, put, reap, send_signal
from .messages import MESSAGE_BYTES, Events, Request, describe_error, read_request, send_answer, serve_host
from .session import OOM_SCORE
from .zygote_handle import PIPE_BYTES, exec_zygote

SWEEP_S = 0.05
GRACE_S = 0.5
"""Time for sessions to end by themselves after they see the launcher stop."""
GIVE_UP_S = 10.0
ANSWER_S = 60.0
"""Time limit for an answer of the zygote, which imports libraries before the first one."""


class Lite:
    def __init__(self, host: socket.socket, settings: Request) -> None:
        self._host = host
        self._settings = settings
        self._groups: Groups | None = None
        self._events = Events()
        self._alive = True
        self._zygote_pid = 0
        self._count = 0
        self._lifeline, self._alive_while_open = os.pipe()

    def serve(self) -> None:
        """Serve until the host is gone."""
        try:
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
            self._groups = make_groups()
            self._make_folder()
            channel = self._start_zygote()
            self._host.send(channel.recv(MESSAGE_BYTES) or b'{"error": "the zygote did not start"}')
            self._events.watch(channel.fileno(), self._stop)  # the zygote sends nothing unasked, so it has ended
            self._events.watch(self._host.fileno(), lambda: self._handle_message(channel))
            self._events.watch(os.pidfd_open(self._settings["host"]), self._stop)
            while self._alive:
                self._events.handle_next(self._poll_timeout())
        finally:
            self._end()

    def _poll_timeout(self) -> float:
        return SWEEP_S if self._groups is not None and not self._groups.sweep() else -1

    # --- the zygote

    def _start_zygote(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        home = self._folder("zygote")
        self._zygote_pid = os.fork()
        if self._zygote_pid == 0:
            try:
                self._become_zygote(theirs, home)
            except BaseException as error:  # must not fall back into the launcher's loop
                theirs.send(json.dumps({"error": describe_error(error, "zygote")}).encode())
            os._exit(1)
        theirs.close()
        os.close(self._lifeline)
        ours.settimeout(ANSWER_S)
        return ours

    def _become_zygote(self, channel: socket.socket, home: str) -> None:
        settings = self._settings
        os.setsid()
        put("/proc/self/oom_score_adj", OOM_SCORE)
        paper = os.memfd_create("settings", 0)
        words = {**settings, "lifeline": self._lifeline}
        os.write(paper, json.dumps(words).encode())
        syscalls.close_all_but(channel.fileno(), paper, self._lifeline)
        for fd in (channel.fileno(), self._lifeline):
            os.set_inheritable(fd, True)
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if os.geteuid() == 0:
            uid, gid = settings["owner"]
            with suppress(PermissionError):  # in some containers the kernel forbids this, and the groups stay
                os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which would clear it
        os.chdir(settings["workspace"])
        restrict_zygote(settings)
        syscalls.seccomp(bytes.fromhex(settings["zygote_filter"]))
        environment = {**settings["environment"], "HOME": home, "TMPDIR": home}
        exec_zygote(settings["python"], environment, paper, channel.fileno())

    # --- sessions

    def _handle_message(self, zygote: socket.socket) -> None:
        try:
            message, fds, _, _ = socket.recv_fds(self._host, MESSAGE_BYTES, 8)
        except OSError:
            message, fds = b"", []
        if not message:
            self._stop()
            return
        paper, reply = fds
        try:
            answer, ends = self._start_session(zygote, paper)
        except TimeoutError:
            self._stop()  # a late answer would be taken for that of the next request
            answer, ends = {"error": "the zygote does not answer"}, []
        except OSError as error:
            answer, ends = {"error": describe_error(error, "the session")}, []
        send_answer(reply, answer, ends)
        for fd in (paper, *ends):
            os.close(fd)

    def _start_session(self, zygote: socket.socket, paper: int) -> tuple[Request, list[int]]:
        """Start a session. Return the answer, and the host's ends of its sockets and pipes."""
        self._count += 1
        folder = self._folder(f"session-{self._count}")
        request = read_request(paper)
        request["folder"] = folder
        sheet = os.memfd_create("request", os.MFD_CLOEXEC)
        os.write(sheet, json.dumps(request).encode())
        channel = [end.detach() for end in socket.socketpair()]
        control = [end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
        stdout, stderr, gate = os.pipe(), os.pipe(), os.pipe()
        with suppress(OSError):  # where the kernel refuses, the small pipe works too
            fcntl.fcntl(stdout[0], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        inside = [sheet, gate[0], channel[1], stdout[1], stderr[1], control[1]]
        outside = [channel[0], control[0], stdout[0], stderr[0]]
        group: Group | None = None
        try:
            socket.send_fds(zygote, [b"spawn"], inside)
            message, received, _, _ = socket.recv_fds(zygote, MESSAGE_BYTES, 1)
            if not received:
                return {"error": json.loads(message or b"{}").get("error", "the zygote is gone")}, []
            pidfd = received[0]
            pid = pid_of(pidfd)
            if parent_of(pid) != self._zygote_pid:  # the zygote has run third-party code, so it is not trusted
                os.close(pidfd)
                return {"error": "the zygote gave a process that is not its own"}, []
            if self._groups is not None:
                with suppress(OSError):  # without a group the session's init watches its memory
                    group = self._groups.make(f"s{pid}", [pid])
                    group.limit_memory(request["memory"])
                    with socket.socket(fileno=os.dup(control[0])) as init:
                        group.send_accounts(init)
            os.write(gate[1], b"1")
            self._events.watch(pidfd, lambda: self._on_session_exit(pidfd, folder, group))
            ends, outside = [*outside, os.dup(pidfd)], []
        finally:
            for fd in (*inside, gate[1], *outside):
                os.close(fd)
        return {"folder": folder}, ends

    def _on_session_exit(self, pidfd: int, folder: str, group: Group | None) -> None:
        """Clean up after a session's init has ended, normally as the session's last process."""
        self._events.unwatch(pidfd)
        os.close(pidfd)
        self._end_orphans()
        _remove(folder)
        if self._groups is not None and group is not None:
            self._groups.remove(group)

    def _end_orphans(self) -> None:
        """End all children except the zygote: they were left behind by an init that did not end properly."""
        while orphans := [pid for pid in children() if pid != self._zygote_pid]:
            for pid in orphans:
                send_signal(pid, signal.SIGKILL)
                reap(pid)

    def _make_folder(self) -> None:
        """Make the private folder. If it is root's, others may pass through it, but only the owner reads what is in it.

        It is locked while the launcher runs, from before it has its final name, so that `pinfold cleanup` recognises
        folders that were left behind.
        """
        place, word = self._settings["temporary"], os.urandom(4).hex()
        unlocked, path = os.path.join(place, f".pinfold-{word}"), os.path.join(place, f"pinfold-lite.{word}")
        os.mkdir(unlocked, 0o700)
        lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.rename(unlocked, path)
        os.chmod(path, 0o711 if os.geteuid() == 0 else 0o700)
        self._settings["folder"] = path

    def _folder(self, name: str) -> str:
        path = os.path.join(self._settings["folder"], name)
        os.mkdir(path, 0o700)
        if os.geteuid() == 0:
            os.chown(path, *self._settings["owner"])
        return path

    # --- the end

    def _stop(self) -> None:
        self._alive = False

    def _end(self) -> None:
        os.close(self._alive_while_open)
        if self._zygote_pid:
            send_signal(self._zygote_pid, signal.SIGKILL)
        began = time.monotonic()
        while time.monotonic() < began + GIVE_UP_S:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = children()
            if not left:
                break
            for pid in left if time.monotonic() > began + GRACE_S else ():
                send_signal(pid, signal.SIGKILL)
            time.sleep(0.002)
        if self._groups is not None:
            self._groups.close()
        if "folder" in self._settings:
            _remove(self._settings["folder"])


def _remove(folder: str) -> None:
    """Remove a folder, after every process that could write to it has ended."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # a program made it deeper than Python can follow
        subprocess.run(["/bin/rm", "-rf", "--", folder], check=False)


def main(arguments: list[str]) -> None:
    serve_host(int(arguments[0]), "lite", lambda host, settings: Lite(host, settings).serve())
