"""A branch of a live session: a copy of its process that runs at the same time, in the same namespaces."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import cast

from pinfold.sandbox.contract import Limits, SandboxUnavailable, UndoRefused
from pinfold.sandbox.guards.guarded_paths import find_guarded_paths
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import GuestProcess, JailedProcess
from pinfold.sandbox.session.output import Output
from pinfold.sandbox.session.state_restore import wait_for_hello
from pinfold.sandbox.views.view_folder import FILES, IN_VIEW, save_start, scan_workspace

BRANCHES = "/branch"
MOST_BRANCHES = 8
"""Most branches with their own files at once."""

THREADS = "Threads that ran in the session ({}) do not run in a branch of it, and code that waits for them will hang."
NOT_KEPT = "there is no copy of that state"
NO_COPY = "the call must come from the cell itself, not from a thread, and no other call may be open"
MID_CELL_STATES = 1 << 30
"""State numbers from here on stand for states in the middle of a cell."""
READ_ONLY = "The workspace is read-only while a branch of the session is open."


class BranchView:
    """The files of a branch: the workspace, overlaid with the branch's changes, which are kept in memory.

    `folder` is a host folder; it is a view that `merge_view` accepts, as long as this object is open.
    """

    def __init__(self, folder: Path, workspace: Path, shown: str, number: int, most: int) -> None:
        """`shown`: where the session sees the workspace. Scans the workspace, so call it in a thread."""
        self.place = f"{BRANCHES}/{number}"
        self.folder = folder
        self._files = -1
        guards = find_guarded_paths(workspace.resolve(), self.place, steers=True)
        save_start(folder, scan_workspace(workspace.resolve()))
        self._request: dict[str, object] = {
            "place": self.place,
            "workspace": shown,
            "bytes": most,
            "masked": [(path, IN_VIEW, inode) for path, _, inode in guards.masked],
            "pinned": guards.pinned,
            "hidden": guards.hidden,
            "protected": sorted(guards.protected),
        }

    def to_request(self) -> dict[str, object]:
        return self._request

    def take(self, files: int) -> None:
        """Take the file descriptor of the folder that receives the branch's changes."""
        self._files = files
        if os.geteuid() == 0:
            owner = os.fstat(files)
            os.chown(self.folder, owner.st_uid, owner.st_gid)
        (self.folder / FILES).symlink_to(f"/proc/{os.getpid()}/fd/{files}")

    def close(self) -> None:
        if self._files >= 0:
            os.close(self._files)
            self._files = -1


class BranchProcess(GuestProcess):
    """The process of one branch. Other processes of the session do not belong to it."""

    def __init__(self, session: JailedProcess, pid: int, pidfd: int) -> None:
        """`pid` is its number in the session's namespace."""
        super().__init__(pidfd)
        self._session = session
        self.pid = pid

    def interrupt(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGINT)

    async def wait_for_interrupt(self) -> None:
        await self._session.wait_for_interrupt()

    def kill(self) -> None:
        self._session.signal_branch(self.pid, signal.SIGKILL)
        super().kill()


async def open_branch(
    guest: Guest, state: int, limits: Limits, view: BranchView | None = None
) -> tuple[Guest, tuple[str, ...]]:
    """Open a branch from the state after this cell, of which a copy is kept. Returns its guest and notices.

    A `state` of `MID_CELL_STATES` or more is that of the running cell, which waits for a call. Raises UndoRefused.
    """
    body = cast("JailedProcess", guest.body)
    is_now = state >= MID_CELL_STATES
    asked = {"cells": [state], "now": is_now, "view": view.to_request() if view else None}
    if is_now:
        guest.request_branch(state)
    with ExitStack() as on_failure:
        ours, theirs = socket.socketpair()
        (out, out_in), (err, err_in) = os.pipe(), os.pipe()
        on_failure.callback(ours.close)
        on_failure.callback(os.close, out)
        on_failure.callback(os.close, err)
        try:
            with theirs:
                answer, fds = await body.ask(b"branch", asked, theirs.fileno(), out_in, err_in)
        finally:
            os.close(out_in)
            os.close(err_in)
        if answer.get("cell") != state:
            raise UndoRefused(f"the session cannot branch: {answer.get('error', NO_COPY if is_now else NOT_KEPT)}")
        on_failure.callback(os.close, fds[0])
        if view:
            view.take(fds[1])
        on_failure.pop_all()
    outputs = Output("stdout", out, limits.output_bytes), Output("stderr", err, limits.output_bytes)
    fresh = Guest(BranchProcess(body, answer["pid"], fds[0]), ours, *outputs)
    async with AsyncExitStack() as on_failure:
        on_failure.push_async_callback(fresh.kill_and_wait, "it was given up")
        await wait_for_hello(fresh)
        on_failure.pop_all()
    threads = answer.get("threads")
    told = () if view else (READ_ONLY,)
    return fresh, (*told, THREADS.format(threads)) if threads else told


async def adopt_branch(guest: Guest, kept: Guest) -> Guest:
    """Let the branch's program replace that of `guest` in the session. Returns the session's new guest."""
    body, branch = cast("JailedProcess", guest.body), cast("BranchProcess", kept.body)
    guest.leave()
    kept.leave()
    await body.ask(b"adopt", {"pid": branch.pid})
    branch.release()
    guest.let_go()
    adopted = Guest(body, kept.channel, kept.stdout, kept.stderr, greeted=True)
    adopted.guard, adopted.copies = guest.guard, guest.copies
    return adopted


class BranchLauncher:
    """The launcher of a branch. It launches nothing: a branch that has ended cannot be started again."""

    def __init__(self, guest: Guest, view: BranchView | None = None) -> None:
        self._body = cast("BranchProcess", guest.body)
        self.view = view

    async def launch(self) -> Guest:
        raise SandboxUnavailable("the branch has ended, and its variables with it")

    async def sweep(self) -> None:
        """Do nothing; the session's init does it."""

    async def release(self) -> None:
        with suppress(SandboxUnavailable):  # the session may have ended as well
            await self._body.wait_for_interrupt()  # the init notices the end, and makes the workspace writable again
