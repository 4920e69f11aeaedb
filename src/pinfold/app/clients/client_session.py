"""One session as a client of a Pinfold server uses it: cells, turns, undo, files, all logged and judged by policy."""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import aclosing, contextmanager
from time import monotonic
from typing import TypeAlias, cast

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from pinfold.app.clients.session_history import HistoryBuilder, SessionHistory
from pinfold.app.clients.submit import event_of, finish_turn, follow, rewind
from pinfold.app.errors import TurnError
from pinfold.app.session.approvals import Approve
from pinfold.app.session.build_session import find_result
from pinfold.app.session.live_session import LiveSession
from pinfold.engine import CommandRefused, OpenAction, Performed
from pinfold.events import (
    ActionFinished,
    ActionStarted,
    CallTool,
    Delta,
    DisplayRef,
    Event,
    Execute,
    Noticed,
    OutputDelta,
    Redo,
    Say,
    SessionRewound,
    TurnEnded,
    Undo,
    new_action_id,
    new_turn_id,
)
from pinfold.sandbox import Variable
from pinfold.text import cap_text

Displays: TypeAlias = tuple[Mapping[str, bytes], ...]
SHOWN = 100_000
"""Characters of each output stream of a cell that the client gets."""
KEPT = "blob:"
"""Prefix of the handle of an output that was too long to return."""


class CellResult(Struct, frozen=True, kw_only=True):
    end: ActionFinished
    cell: int | None
    """The cell's number; None if it did not start."""
    stdout: str
    stderr: str
    displays: Displays
    notices: tuple[str, ...]


class ClientSession:
    """A live session opened for a client."""

    def __init__(self, live: LiveSession, tasks: TaskGroup, *, title: str, client: str) -> None:
        """`tasks` are cancelled when the session ends."""
        self.id = live.session
        self.live = live
        self.tasks = tasks
        self.title = title
        self.client = client
        """The client that owns it; empty if every client may use it."""
        self.workspace = live.status_after(0).workspace
        self.let_go = anyio.Event()
        self.gone = anyio.Event()
        self.used = monotonic()
        self.busy = 0
        self._askers: dict[str, Approve] = {}
        self._history = HistoryBuilder(live.session)
        self._reading = anyio.Lock()

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        approve: Approve | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> CellResult:
        """Run one cell. Cancelling interrupts it and keeps the state."""
        execute = Execute(id=new_action_id(), code=code, timeout_s=timeout_s)
        streams: dict[str, list[str]] = {"stdout": [], "stderr": []}
        cell: int | None = None
        notices: list[str] = []
        with self.mark_in_use(), self.ask_client(execute.id, approve):
            async with aclosing(follow(self.live, execute, self.live.log.seq)) as feed:
                async for item in feed:
                    match event_of(item):
                        case OutputDelta(id=execute.id, stream=stream, text=text):
                            streams[stream].append(text)
                            if on_output:
                                on_output(text)
                        case ActionStarted(id=execute.id, cell=number, instead_of=earlier):
                            cell = number
                            if earlier is not None:  # drop what it wrote before it was rolled back
                                streams = {"stdout": [], "stderr": []}
                        case Noticed(text=text):
                            notices.append(text)
                        case ActionFinished(id=execute.id) as end:
                            return CellResult(
                                end=end,
                                cell=cell,
                                stdout=cap_text("".join(streams["stdout"]), SHOWN),
                                stderr=cap_text("".join(streams["stderr"]), SHOWN),
                                displays=self._read_displays(end.displays),
                                notices=tuple(notices),
                            )
                        case _:
                            pass
        raise TurnError("the session ended before the cell did")

    async def ask(
        self, prompt: str, *, approve: Approve | None = None, on_event: Callable[[Event | Delta], None] = lambda _: None
    ) -> tuple[TurnEnded, Displays]:
        """Run one turn; return its end and displays. Cancelling interrupts it. Raises TurnError without an answer."""
        say = Say(turn=new_turn_id(), text=prompt)
        if problem := self.live.status_after(0).no_model:
            raise TurnError(problem)
        with self.mark_in_use(), self.ask_client(say.turn, approve):
            end, shown = await finish_turn(
                follow(self.live, say, self.live.log.seq), say, lambda item: on_event(event_of(item))
            )
        return end, self._read_displays(shown)

    async def rewind(self, command: Undo | Redo) -> SessionRewound:
        """Raises CommandRefused."""
        with self.mark_in_use():
            return await rewind(self.live, command, self.live.log.seq)

    async def variables(self) -> tuple[Variable, ...]:
        with self.mark_in_use():
            return await self.live.variables()

    async def history(self) -> SessionHistory:
        """Return the history without outputs. Reads only the events added since the last call."""
        async with self._reading:
            await anyio.to_thread.run_sync(self._history.add_new, self.live)
            self._history.outputs.clear()
            return self._history.build(self.live.state)

    async def get(self, path: str, *, approve: Approve | None = None) -> bytes:
        """Return a workspace file or a stored output. Raises CommandRefused with the reason."""
        if path.startswith(KEPT):
            return self._read_blob(path.removeprefix(KEPT))
        done = await self._call_tool(CallTool(tool="get_file", args={"path": path}), approve)
        return base64.b64decode(cast(str, done.whole))

    async def put(
        self, path: str, *, content: str | None = None, encoded: str | None = None, approve: Approve | None = None
    ) -> str:
        """Write a workspace file; return a description of what was written. Raises CommandRefused with the reason."""
        given = {"content": content, "base64": encoded}
        args = {"path": path, **{name: text for name, text in given.items() if text is not None}}
        return (await self._call_tool(CallTool(tool="put_file", args=args), approve)).observation

    async def _call_tool(self, action: CallTool, approve: Approve | None) -> Performed:
        id_ = new_action_id()
        with self.mark_in_use(), self.ask_client(id_, approve):
            done = await self.live.act(id_, action)
        if done.outcome != "ok":
            raise CommandRefused(done.observation.removeprefix(f"{action.tool} failed: "))
        return done

    def _read_blob(self, handle: str) -> bytes:
        if (data := find_result(self.live.log.blobs, handle)) is None:
            raise CommandRefused(f"nothing is kept as {handle!r}; the end of a cut output names its handle")
        return data

    def _read_displays(self, shown: Iterable[DisplayRef]) -> Displays:
        get = self.live.log.blobs.get
        return tuple({mime: get(blob) for mime, blob in one.mime.items()} for one in shown)

    @contextmanager
    def mark_in_use(self) -> Generator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1
            self.used = monotonic()

    @contextmanager
    def ask_client(self, id_: str, approve: Approve | None) -> Generator[None]:
        """Send approvals of this action or turn, and of the calls it makes, to `approve` while the block runs."""
        if approve is None:
            yield
            return
        self._askers[id_] = approve
        try:
            with self.live.allow_asking():
                yield
        finally:
            self._askers.pop(id_, None)

    def find_approver(self, waiting: OpenAction) -> Approve | None:
        """Return the approver of the request that led to this action."""
        keys = (waiting.proposed.id, waiting.proposed.parent, waiting.proposed.turn)
        return next((self._askers[key] for key in keys if key in self._askers), None)
