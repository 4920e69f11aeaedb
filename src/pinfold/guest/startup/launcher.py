"""The launcher, between hosts and the zygote: trusted, small, and imports only the standard library.

A session begins as a seed: forked from the zygote, confined, waiting for its workspace. When a host asks, the launcher
opens the mounts, sends them to a seed, and passes the seed's sockets to the host. Seeds are kept ready for hosts that
open sessions often. The zygote has imported third-party code, so it gets no privileges for any of this.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections import deque
from contextlib import suppress

from ..kernel.groups import Groups, descendants, make_groups
from ..kernel.processes import OF_ALL, bound_watches, pid_of
from ..kernel.syscalls import CLONE_NEWNS, unshare
from .messages import MESSAGE_BYTES, Events, Request, describe_error, read_request, send_answer, serve_host
from .mounts import Owners, enter_user_namespace, maps_up_to, open_tree, try_view, write_map
from .probe import try_in_child
from .zygote_handle import FIRST_ID, INNER_ID, LONE_SESSIONS, SpareSession, Zygote

SESSION_IDS = 60_000
BUSY_POOL = 2
"""Seeds to keep once hosts have asked more than `LONE_SESSIONS` times, because they will probably ask again."""
REFILL_AFTER_S, REFILL_EMPTY_AFTER_S = 0.05, 0.001
"""Idle time before seeds are made, so that the session just handed out goes first; and if no seed is left."""
GROUP_AFTER_S = 0.2
"""Idle time before a session made on demand gets a control group: moving it blocks every process start and end."""
RETRY_AFTER_S = 1.0
"""Pause after a seed could not be made, if no host waits for one."""
SWEEP_S = 0.05


class Launcher:
    def __init__(self, host: socket.socket, settings: Request) -> None:
        self._settings: Request = settings
        self._is_root = os.geteuid() == 0 and maps_up_to(FIRST_ID + SESSION_IDS)
        self._uid = os.geteuid()
        self._owners = Owners() if self._is_root else None
        self._groups: Groups | None = None
        self._events = Events()
        self._host = host
        self._alive = True
        self._count = 0
        self._asked = 0
        self._pool_size: int | None = settings["pool"]
        self._pool: deque[SpareSession] = deque()
        self._wanted: deque[tuple[Request, list[int]]] = deque()
        """Requests that wait for a seed, each with the descriptors of its file and of its reply socket."""
        self._zygotes: list[Zygote] = []
        """All zygotes, including old ones whose last session has not ended."""
        self._warming: list[int] = []
        """Reply sockets of hosts that wait for the pool to be full."""
        self._ungrouped: deque[SpareSession] = deque()
        """Sessions handed out without a control group: moving a process takes the kernel ten milliseconds and more."""
        self._next: Zygote | None = None
        self._quiet_at = 0.0

    def serve(self) -> None:
        """Serve until the host is gone. Leaves no process and no control group behind."""
        try:
            self._enter_namespaces()
            self._zygote = self._new_zygote()
            views = try_in_child(try_view) == ""  # runs while the zygote imports
            hello = json.loads(self._zygote.hello())
            self._host.send(json.dumps({**hello, "views": views}).encode())
            self._events.watch(self._host.fileno(), lambda: self._handle_message(self._host, owner=True))
            self._events.watch(os.pidfd_open(self._settings["host"]), self._end)
            while self._alive:
                self._events.handle_next(self._poll_timeout())
                self._maintain()
        finally:
            for zygote in self._zygotes:
                zygote.kill()
            if self._groups is not None:
                self._groups.close()

    def _enter_namespaces(self) -> None:
        """Without root, enter a user namespace with privileges over a copy of the mounts. Root needs none."""
        self._groups = make_groups()
        if not self._is_root:
            enter_user_namespace(os.geteuid(), os.getegid())
            unshare(CLONE_NEWNS)
            with suppress(OSError):  # if /proc/sys is read-only, each session still has its own limit
                bound_watches(OF_ALL)

    def _new_zygote(self) -> Zygote:
        zygote = Zygote(self._settings, drop_to=FIRST_ID if self._is_root else None)
        self._zygotes.append(zygote)
        self._events.watch(zygote.fileno(), lambda: self._on_zygote(zygote))
        return zygote

    # --- hosts

    def _handle_message(self, peer: socket.socket, *, owner: bool) -> None:
        """Handle a message of a host. When the owner disconnects, the launcher ends."""
        try:
            message, fds, _, _ = socket.recv_fds(peer, MESSAGE_BYTES, 8)
        except OSError:
            message, fds = b"", []
        if not message:
            self._events.unwatch(peer.fileno())
            peer.close()
            if owner:
                self._end()
            return
        try:
            self._handle_request(json.loads(message), fds, owner=owner)
        except (OSError, ValueError, KeyError, TypeError):  # not a valid request; other hosts must not be affected
            for fd in fds:
                os.close(fd)

    def _handle_request(self, request: Request, fds: list[int], *, owner: bool) -> None:
        if request["op"] == "open":
            paper, reply = fds
            wanted = read_request(paper)
            self._asked += 1
            self._wanted.append((wanted, [paper, reply]))
            self._assign_sessions()
        elif request["op"] == "warm":
            unused, reply = fds
            os.close(unused)
            self._warming.append(reply)
        elif request["op"] == "listen" and owner:
            (listening,) = fds
            listener = socket.socket(fileno=listening)
            hello = json.dumps({"proven": request["proven"]}).encode()
            self._events.watch(listener.fileno(), lambda: self._accept(listener, hello))

    def _accept(self, listener: socket.socket, hello: bytes) -> None:
        try:
            peer, _ = listener.accept()
        except OSError:
            return  # the peer is gone already
        uid = struct.unpack("iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        with suppress(OSError):
            if uid == self._uid:
                peer.send(hello)
                self._events.watch(peer.fileno(), lambda: self._handle_message(peer, owner=False))
                return
        peer.close()

    def _assign_sessions(self) -> None:
        """Hand ready seeds to waiting requests, and start the missing ones."""
        while self._wanted and self._pool:
            request, fds = self._wanted.popleft()
            self._hand_out(self._pool.popleft(), request, fds)
        while len(self._wanted) > self._zygote.unborn:
            self._start_spare(ahead=False)

    def _hand_out(self, seed: SpareSession, request: Request, fds: list[int]) -> None:
        paper, reply = fds
        trees: list[int] = []
        try:
            for item in (*request["mounts"], *request["view"]):
                tree = open_tree(item, seed.outer, self._owners)
                trees.append(tree)
            if seed.group is not None:
                seed.group.limit_memory(request["memory"])
            socket.send_fds(seed.control, [b"begin"], [paper, *trees])
        except OSError as error:
            self._pool.appendleft(seed)
            send_answer(reply, {"error": describe_error(error, "the session")})
        except (KeyError, TypeError, ValueError) as error:
            self._pool.appendleft(seed)
            send_answer(reply, {"error": f"the request is invalid: {error!r}"})
        else:
            send_answer(reply, {}, seed.ends())
            self._events.unwatch(seed.gate.fileno())
            seed.close()
            self._quiet_at = time.monotonic() + (REFILL_AFTER_S if self._pool else REFILL_EMPTY_AFTER_S)
            if seed.group is None and self._groups is not None:
                self._ungrouped.append(seed)
        finally:
            for fd in (paper, *trees):
                os.close(fd)

    # --- seeds

    def _start_spare(self, *, ahead: bool) -> None:
        """Ask the zygote for a seed. `ahead`: no host waits for it."""
        outer = FIRST_ID + 1 + self._count % SESSION_IDS if self._is_root else self._uid
        seed = SpareSession(self._zygote, outer)
        self._count += 1
        try:
            seed.start(ahead=ahead)
        except OSError:
            return  # the zygote is gone; the event loop will see its socket close
        self._zygote.unborn_seeds.append(seed)

    def _on_zygote(self, zygote: Zygote) -> None:
        answer, received = zygote.answer()
        if not answer:
            self._on_zygote_exit(zygote)
        elif zygote is self._next:
            self._replace_zygote(zygote, json.loads(answer))
        elif not received:
            self._discard(zygote.unborn_seeds.popleft())
            self._refuse(json.loads(answer).get("error", "the zygote gave no session"))
            self._quiet_at = time.monotonic() + RETRY_AFTER_S
        else:
            self._on_started(zygote.unborn_seeds.popleft(), received[0])

    def _replace_zygote(self, zygote: Zygote, hello: Request) -> None:
        """Switch to the next zygote, which is up. Sessions of the old one continue in its process namespace."""
        self._next = None
        if hello:
            self._zygote.sessions = 0  # an error: keep the old zygote for another round
            self._drop(zygote)
            return
        old, self._zygote = self._zygote, zygote
        if old.is_idle:
            self._drop(old)

    def _drop(self, zygote: Zygote) -> None:
        self._events.unwatch(zygote.fileno())
        self._zygotes.remove(zygote)
        zygote.close()

    def _on_started(self, seed: SpareSession, pidfd: int) -> None:
        seed.pidfd = pidfd
        try:
            pid = pid_of(pidfd)
            write_map(str(pid), (INNER_ID, INNER_ID), (seed.outer, seed.outer), privileged=self._is_root)
            if self._groups is not None and seed.is_ahead and not self._wanted:
                # It has no child yet, so all it starts are in its group, and its init need not watch memory.
                seed.group = self._groups.make(f"s{pid}", [pid])
                seed.group.limit_memory(self._settings["memory"])
                seed.group.send_accounts(seed.control)
            if self._owners is not None and seed.is_ahead:
                self._owners.prepare(seed.outer)
            seed.gate.send(b"1")
        except OSError as error:
            self._discard(seed)
            os.close(pidfd)
            self._refuse(describe_error(error, "spawn"))
            self._quiet_at = time.monotonic() + RETRY_AFTER_S
            return
        seed.zygote.live += 1
        self._events.watch(pidfd, lambda: self._on_session_exit(seed))
        self._events.watch(seed.gate.fileno(), lambda: self._close_gate(seed))
        self._pool.append(seed)
        self._assign_sessions()

    def _discard(self, seed: SpareSession) -> None:
        """Drop a seed that could not be started."""
        seed.close()
        if self._owners is not None:
            self._owners.forget(seed.outer)

    def _close_gate(self, seed: SpareSession) -> None:
        self._events.unwatch(seed.gate.fileno())
        seed.gate.close()

    def _group_late(self, seed: SpareSession) -> None:
        """Group a session for its share of the processor. Its init still watches memory: some process may be missed."""
        if self._groups is not None and seed.pidfd != -1:
            with suppress(OSError):
                pid = pid_of(seed.pidfd)
                seed.group = self._groups.make(f"s{pid}", [pid, *descendants(pid)])

    def _on_session_exit(self, seed: SpareSession) -> None:
        """Clean up after a session that has ended."""
        self._events.unwatch(seed.pidfd)
        os.close(seed.pidfd)
        seed.pidfd = -1
        if seed in self._pool:
            self._pool.remove(seed)
            self._events.unwatch(seed.gate.fileno())
            seed.close()
        if self._owners is not None:
            self._owners.forget(seed.outer)
        if self._groups is not None and seed.group is not None:
            self._groups.remove(seed.group)
        seed.zygote.live -= 1
        if seed.zygote in self._zygotes and seed.zygote is not self._zygote and seed.zygote.is_idle:
            self._drop(seed.zygote)

    def _on_zygote_exit(self, zygote: Zygote) -> None:
        self._drop(zygote)
        if zygote is self._next:
            self._next = None
            self._zygote.sessions = 0
        elif zygote is self._zygote:
            while self._wanted:
                self._refuse("the zygote is gone")
            self._end()  # the host starts another launcher

    def _refuse(self, why: str) -> None:
        """Send the error to the request that waits longest, and to all hosts that wait for the pool."""
        waiting = [[reply] for reply in self._warming]
        self._warming.clear()
        if self._wanted:
            waiting.append(self._wanted.popleft()[1])
        for *papers, reply in waiting:
            send_answer(reply, {"error": why})
            for fd in papers:
                os.close(fd)

    # --- idle work

    @property
    def _lacking(self) -> int:
        size = self._pool_size if self._pool_size is not None else BUSY_POOL if self._asked > LONE_SESSIONS else 0
        return size - len(self._pool) - self._zygote.unborn

    def _poll_timeout(self) -> float:
        if self._groups is not None and not self._groups.sweep():
            return SWEEP_S
        has_work = self._lacking > 0 or self._ungrouped
        return max(0.0, self._tend_at - time.monotonic()) if has_work and not self._is_starting else -1

    @property
    def _is_starting(self) -> bool:
        """True while a seed is starting. Only one starts at a time, because it keeps a processor busy."""
        return bool(self._zygote.unborn) or not all(seed.is_ready for seed in self._pool)

    @property
    def _tend_at(self) -> float:
        return self._quiet_at if self._lacking > 0 else self._quiet_at + GROUP_AFTER_S

    def _maintain(self) -> None:
        # Not only when idle: a launcher that is always busy needs this most.
        if self._zygote.sessions >= self._settings["recycle_after"] and self._next is None:
            self._settings = {**self._settings, "warm": "now"}  # no session waits for its imports
            self._next = self._new_zygote()
        if self._wanted or time.monotonic() < self._quiet_at or self._is_starting:
            return
        while self._warming and self._lacking <= 0:
            send_answer(self._warming.pop(), {})
        if self._lacking > 0:
            self._start_spare(ahead=True)
        elif self._ungrouped and time.monotonic() >= self._tend_at:
            self._group_late(self._ungrouped.popleft())

    def _end(self) -> None:
        self._alive = False


def main(arguments: list[str]) -> None:
    serve_host(int(arguments[0]), "launcher", lambda host, settings: Launcher(host, settings).serve())
