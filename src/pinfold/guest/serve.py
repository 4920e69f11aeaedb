"""The guest's loop: it answers each request with one reply of the same id. Cells are run by `cells.runner`."""

from __future__ import annotations

import os
import signal
import sys
from json import dumps, loads

from . import agents, servers
from .calls import Calls, set_current
from .cells.bindings import is_trivial
from .cells.import_hooks import take_loss_counts
from .cells.interrupts import Interrupts, Quiet
from .cells.inventory import inventory
from .cells.mime_bundle import BACKEND
from .cells.runner import Engine
from .cells.streams import Streams
from .cells.tracebacks import Site
from .frames import LOST_CHANNEL, Channel, Header
from .tool_calls.programs import Programs
from .toolbox.files import Files, Refused

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

    from .cells.table_pages import Pages
    from .saved.saver import State
    from .snapshots.copies import Snapshots

PROTOCOL = 1
PR_SET_PDEATHSIG = 1
HELLO: Header = {"id": 0, "status": "hello", "protocol": PROTOCOL}
LATE = ("interrupt", "answer", "nested", "stop", "branch")
"""Messages to a running cell; after its end they are ignored."""


class Server:
    """Serves requests. All but the workspace is set up on creation; `serve` takes the current folder for it."""

    def __init__(self, channel_fd: int, copies: Snapshots | None = None) -> None:
        self._copies = copies
        self._adopted = copies
        """Takes snapshots in a branch once the host has adopted it as the session."""
        self._channel = Channel(channel_fd)
        sys.argv[:] = [""]
        sys.path.insert(0, "")
        # For matplotlib here and in child processes: no window can be opened.
        os.environ["MPLBACKEND"] = BACKEND
        interrupts = Interrupts(self._channel.has_input)
        interrupts.begin()
        self._engine = Engine(interrupts, Streams())
        self._calls = Calls(self._channel, interrupts)
        self._engine.finish = self._calls.finish
        self._calls.fork = self._leave_branch
        self._interrupts = interrupts
        set_current(self._calls)
        servers.install()
        agents.install()
        self._only_binds = False
        """True if the last cell only bound names, so it can be run again."""
        self._lost: set[str] = set()
        """Variables that could not be restored."""
        self._pages: Pages | None = None
        self._given = -1
        """The file descriptor the host sent last, for the request that follows."""

    def serve(self) -> None:
        """Serve cells in this process and its current folder until the host closes the channel."""
        self._channel.send(HELLO)
        spawning = sys.modules.get("multiprocessing.process")
        if spawning is not None:  # the zygote imported it, so it has recorded the zygote's folder
            vars(spawning)["ORIGINAL_DIR"] = os.getcwd()
        folder = os.environ.get("PINFOLD_SITE")
        self._site = Site(folder) if folder else None
        if self._site is not None:
            self._calls.after = self._site.refresh
        self._files = Files(os.getcwd())
        self._programs = self._calls.programs = Programs(self._files.root, self._channel)
        self._import_path = tuple(sys.path)
        while self.serve_one():
            pass

    def serve_one(self) -> bool:
        self._engine.idle(self._channel.wait)
        try:
            request = self._channel.receive()
        except OSError:
            os._exit(LOST_CHANNEL)
        if request is None:
            return False
        header, body = request
        if header["op"] == "run":
            self._run(header, body)
        elif header["op"] not in LATE:
            self._answer(header, body)
        if header["op"] == "copy":
            self._leave_copy(header["cell"])
        elif header["op"] == "receive":
            self._given = self._channel.receive_fd()
        return True

    def _run(self, header: Header, body: bytes) -> None:
        if self._site is not None:
            self._site.refresh()
        if self._pages is not None:
            self._pages.forget()
        begun = (lambda: self._calls.open(header["id"])) if "calls" in header else None
        source = body.decode("utf-8", "surrogatepass")
        cell: Any = header.get("cell")
        result = self._engine.run(source, begun, cell)
        agents.store()
        reply: Header = {
            "id": header["id"],
            "status": result.status,
            "value": None if result.value is None else len(result.value),
            "error": None if result.error is None else len(result.error),
            "interrupted": result.interrupted,
        }
        body = (result.value or b"") + (result.error or b"")
        body = b"".join([body, *(data for one in result.displays for data in one.values())])
        self._only_binds = result.only_binds
        leaves_copy = cell is not None and self._copies is not None
        more = {
            "again": leaves_copy and self._only_binds,
            "out_of_memory": result.out_of_memory,
            "missing": result.missing,
            "lost": take_loss_counts(),
            "displays": [[(mime, len(data)) for mime, data in one.items()] for one in result.displays],
        }
        self._calls.reply(reply | {name: told for name, told in more.items() if told}, body)
        if leaves_copy and not self._only_binds:
            self._leave_copy(cell)

    def _leave_copy(self, cell: Any) -> None:
        """Leave a snapshot. Runs in idle time: the host already has its answer."""
        copies = self._copies
        if copies is None:
            return
        try:
            with self._programs.starting:
                woken = copies.leave_snapshot(cell, self._channel.fd, self._engine.namespace)
        except OSError:  # no file descriptors are left: there is no snapshot of this state
            return
        if woken is None:
            return
        is_only_saved, (channel, *streams) = woken
        if is_only_saved:
            from .saved.saver import save_and_end

            save_and_end(self._state(), channel)
        self._take_over(channel, streams)

    def _leave_branch(self, cell: int, quiet: Quiet) -> None:
        """Leave a copy in the middle of a cell. Once woken, it serves a branch and never continues the cell."""
        if self._copies is None:
            return
        with self._programs.starting:
            woken = self._copies.leave_snapshot(cell, self._channel.fd, self._engine.namespace)
        if woken is None:
            return
        try:
            self._interrupts.begin()
            quiet.unblock()
            channel, *streams = woken[1]
            self._calls.begin_anew()
            self._take_over(channel, streams)
            while self.serve_one():
                pass
        finally:
            os._exit(0)

    def _take_over(self, channel: int, streams: list[int]) -> None:
        """Serve on `channel`. A branch gets `streams`: stdout, stderr and the root of its file view, if it has one."""
        self._channel.use(channel)
        self._engine.take_over()
        if streams:
            for view in streams[2:]:
                os.fchdir(view)
                os.close(view)
                self._files = Files(os.getcwd())
                self._programs = self._calls.programs = Programs(self._files.root, self._channel)
            self._engine.branch_off(*streams[:2])
            self._adopted, self._copies = self._copies, None  # until it is adopted
        self._channel.send(HELLO)

    def _answer(self, header: Header, body: bytes) -> None:
        status, answer = "ok", b""
        try:
            match header["op"]:
                case "variables" | "page" as op:
                    answer = self._page(loads(body)) if op == "page" else self._list()
                case "put":
                    self._files.put(str(header["path"]), body)
                case "get":
                    answer = self._files.get(str(header["path"]), int(str(header["limit"])))
                case "command":
                    answer = self._command(header, body)
                case "adopted":
                    self._copies = self._adopted
                case "copy" | "receive" | "idle":
                    pass  # answered only to tell the host that the copy of the last state was left
                case "prepare":  # before a module of the program's could shadow one that is needed; no-op from a zygote
                    from .saved import deserialization, saver

                    _ = deserialization, saver
                case "save":
                    self._save(anyway=bool(header["anyway"]))
                case "restore":
                    answer = dumps(self._restore(loads(body))).encode()
                case "replay":
                    self._replay(loads(body))
                case unknown:
                    status, answer = "refused", f"the guest does not know {unknown!r}".encode()
        except Refused as refused:
            status, answer = "refused", str(refused).encode("utf-8", "backslashreplace")
        self._channel.send({"id": header["id"], "status": status}, answer)

    def _list(self) -> bytes:
        return dumps(inventory(self._engine.namespace, self._engine.origins.cell_of)).encode()

    def _page(self, query: dict[str, Any]) -> bytes:
        from .cells.table_pages import Pages

        self._pages = self._pages or Pages()
        self._interrupts.begin()
        try:
            try:
                self._interrupts.arm_cell()
                return dumps(self._pages.page(self._engine.namespace, query), allow_nan=False).encode()
            finally:
                self._interrupts.disarm()
        except KeyboardInterrupt:
            raise Refused("this took too long and was stopped; ask for less: one column, or no filter") from None
        except Refused:
            raise
        except Exception as error:  # the value changes meanwhile, or its own library fails on it
            self._pages.forget()
            raise Refused(f"it cannot be shown: {type(error).__name__}: {str(error)[:200]}") from None

    def _command(self, header: Header, body: bytes) -> bytes:
        if self._site is not None:
            self._site.refresh()

        def tell(stream: str, data: bytes) -> None:
            told = {"id": header["id"], "status": "output", "command": 0, "stream": stream}
            try:
                self._channel.send(told, data)
            except BaseException:  # a signal handler of the program has cut the frame
                os._exit(LOST_CHANNEL)

        head = int(str(header["head"]))
        wanted = tell if header["tell"] else None
        return self._programs.run(loads(body[:head]), body[head:], self._channel.has_input, wanted)[0]

    def _save(self, *, anyway: bool) -> None:
        """Save the state in a forked process, where no snapshots are taken."""
        given = self._given
        if self._only_binds and not anyway:
            os.close(given)
            raise Refused("it can be run again")
        from .saved.saver import leave_saver

        with self._programs.starting:
            leave_saver(self._state(), given, self._channel.fd)

    def _state(self) -> State:
        from .saved.saver import State

        engine = self._engine
        return State(engine.namespace, engine.origins.cells, engine.flags, self._import_path)

    def _restore(self, told: Any) -> list[dict[str, object]]:
        from .saved.deserialization import restore_session

        try:
            labels = restore_session(self._engine.namespace, told, self._given)
            self._lost = {str(label["name"]) for label in labels if label["status"] == "lost"}
            self._engine.adopt(told["cells"], told["around"]["flags"], told["sources"])
        except Exception as error:  # the program may have forged what it saved
            raise Refused(f"the saved state is damaged: {type(error).__name__}: {error}") from error
        return labels

    def _replay(self, cells: list[tuple[int, str]]) -> None:
        for cell, source in cells:
            if not is_trivial(source):
                raise Refused(f"cell {cell} cannot be run again")
            result = self._engine.run(source, None, cell)
            # A cell that failed before fails again, harmlessly; one that names a lost variable was not truly run again.
            if result.interrupted or (result.error is not None and any(name in source for name in self._lost)):
                raise Refused(f"cell {cell} could not be run again")
            self._only_binds = True


def exit_with_parent(parent_pid: int) -> None:
    """End this process with its parent (0: any parent). Linux only; elsewhere the closed channel ends it later."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    # The parent may have died before the request took effect.
    if parent_pid and os.getppid() != parent_pid:
        os._exit(0)


def main(arguments: list[str]) -> None:
    channel_fd, parent_pid = (int(argument) for argument in arguments)
    exit_with_parent(parent_pid)
    Server(channel_fd).serve()
