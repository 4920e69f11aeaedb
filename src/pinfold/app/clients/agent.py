"""`Agent`: Pinfold from Python. A thin interface to a live session, without behaviour of its own."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, aclosing
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import anyio
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.clients.agent_options import SessionPlan, keep_arguments, plan_session
from pinfold.app.clients.attachments import picture
from pinfold.app.clients.session_fork import fork
from pinfold.app.clients.submit import event_of, finish_turn, follow, is_end, rewind, stop
from pinfold.app.errors import ConfigError
from pinfold.app.ownership.owner import acquire_or_open
from pinfold.app.session.approvals import Approve, answer_approvals
from pinfold.app.session.environment import normalise_package_name
from pinfold.app.session.live_session import LiveSession
from pinfold.app.storage.session_store import SessionStore, read_session
from pinfold.app.tasks import LoopThread, background
from pinfold.engine import CommandRefused, Hook, Hooks, Model
from pinfold.events import (
    Configure,
    Delta,
    DisplayRef,
    Entry,
    Event,
    Interrupt,
    Mode,
    PinfoldError,
    Redo,
    Say,
    SessionId,
    SessionRewound,
    TurnId,
    Undo,
    Usage,
    UserSpoke,
    What,
    new_session_id,
    new_turn_id,
)
from pinfold.log import Damage
from pinfold.policy import Guards
from pinfold.sandbox import Display, Limits, Provider

_HOOKS_CATCH_UP_S = 10.0


class RunResult(Struct, frozen=True, kw_only=True):
    text: str
    usage: Usage
    cost: float | None
    displays: tuple[Display, ...]
    session_id: SessionId
    without: tuple[str, ...] = ()
    """Tools or models that were unavailable during the turn."""

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return what a notebook shows. Nothing that a model or its code wrote is run or loaded."""
        from pinfold.app.storage.exports.html import answer_html

        html = answer_html(self.text, [display.mime for display in self.displays])
        return {"text/plain": self.text, "text/html": html}


class Agent:
    """One session with a model: `async with Agent(...) as agent`, or `with` and `run_sync` in code without asyncio.

    If it opens and closes in different places, such as cells of a notebook, use `await agent.open()` and
    `await agent.close()`. Arguments that are not given come from the configuration. `tools` are granted to this agent.
    `approve` answers requests for approval; without it they are denied. `packages` are added to the environment the
    cells run in; if that has to be built first, opening takes a while and needs the network. Each of `mounts` is PATH
    (read-only) or PATH:rw. `git_checkpoints` commits the workspace's files to a side ref of its repository after each
    cell that changed files. `mcp` names MCP servers besides the user's own: a path to a file with `mcpServers`, or that
    table. `allow_hosts` may be reached without asking while the session has not read both private data and outside
    text; `flows` name hosts and tools (`SERVER.TOOL`) that it may send to whatever it has read. `api_key` is sent to
    the model's provider only. `tools_off` are names or patterns of tools to leave out. `limits` bound the sandbox;
    `output_bytes` and the like bound how much of a result the model sees. `guards` and `imports` (the only modules
    that may be imported) are guard rails for code.
    """

    def __init__(
        self,
        *,
        model: str | Model | None = None,
        workspace: str | PathLike[str] | None = None,
        tools: Iterable[Callable[..., object]] = (),
        mode: Mode | None = None,
        sandbox: str | Provider | None = None,
        data: Iterable[str | PathLike[str]] = (),
        mounts: Iterable[str | PathLike[str]] = (),
        packages: Iterable[str] = (),
        settings: Mapping[str, object] | None = None,
        approve: Approve | None = None,
        max_steps: int | None = None,
        allow_hosts: Iterable[str] = (),
        flows: Iterable[str] = (),
        api_key: str | None = None,
        tools_off: Iterable[str] = (),
        limits: Limits | None = None,
        output_bytes: int | None = None,
        output_lines: int | None = None,
        output_tokens: int | None = None,
        guards: Literal["off", "strict"] | None = None,
        imports: Iterable[str] | None = None,
        mcp: str | PathLike[str] | Mapping[str, object] | None = None,
        git_checkpoints: bool | None = None,
        ephemeral: bool = False,
        session: str | None = None,
    ) -> None:
        self._given = keep_arguments(locals())
        self._given["packages"] = tuple(map(normalise_package_name, self._given["packages"]))
        if self._given["packages"] and sandbox is not None and not isinstance(sandbox, str):
            raise ConfigError("`packages` cannot be added to a sandbox object of your own; install them in it")
        if ephemeral and session is not None:
            raise ConfigError("a session that is kept cannot be ephemeral; leave one of the two out")
        if model is not None and not isinstance(model, str) and not hasattr(model, "stream"):
            raise ConfigError(f"{model!r} is not a model: give a name, or an object with `name` and `stream(request)`")
        if api_key is not None and not isinstance(model, str):
            raise ConfigError("`api_key` goes with the name of a model: Agent(model=..., api_key=...)")
        self._new_id = new_session_id() if session is None else None
        self._hooks = Hooks()
        self._approve = approve
        self._stack = AsyncExitStack()
        self._live: LiveSession | None = None
        self._turn: TurnId | None = None
        """The running turn, if this agent began it."""
        self._holder: asyncio.Task[None] | None = None
        """Holds the session open between `open` and `close`, which may be called from different tasks."""
        self._opening, self._closing = asyncio.Lock(), asyncio.Event()
        self._thread: LoopThread | None = None

    @cached_property
    def _plan(self) -> SessionPlan:
        """Computed on first use, because it reads configuration and folders."""
        return plan_session(self._given, self._hooks, self._new_id)

    @property
    def session_id(self) -> SessionId:
        return self._new_id or self._plan.session

    def __repr__(self) -> str:
        model: str | Model | None = self._given["model"]
        name = model if model is None or isinstance(model, str) else model.name
        parts = (name, f"session {self._new_id or self._given['session']}", "open" if self._live else "not open")
        return f"<Agent {', '.join(filter(None, parts))}>"

    async def open(self) -> Self:
        """Open the session, as `async with` does; `close` may be called from another task. `run` opens it too."""
        async with self._opening:
            if self._live is None:
                opened = asyncio.get_running_loop().create_future()
                self._closing = asyncio.Event()
                self._holder = asyncio.create_task(self._hold_open(opened))
                try:
                    await asyncio.shield(opened)  # a caller that gives up must not cancel what the holder sets
                except PinfoldError as error:  # without the frames of the task that raised it
                    raise error.with_traceback(None) from None
        return self

    async def _hold_open(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self:
                opened.set_result(None)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def close(self) -> None:
        """End the session's process. The session is kept unless it is ephemeral."""
        if self._thread is not None and not self._thread.is_here:
            await asyncio.to_thread(self.close_sync)
            return
        holder, self._holder = self._holder, None
        if holder is not None:
            self._closing.set()
            await holder
        elif self._live is not None:
            await self.__aexit__(None, None, None)

    # Without asyncio

    def __enter__(self) -> Self:
        with ExitStack() as on_failure:
            on_failure.callback(self.close_sync)
            self._loop_thread().call(self.open)
            on_failure.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    def run_sync(self, prompt: str, *, images: Iterable[str | PathLike[str]] = ()) -> RunResult:
        """`run`, for code without asyncio. Ctrl-C interrupts the turn and keeps the session."""
        return self._loop_thread().call(partial(self.run, prompt, images=images))

    def undo_sync(self, to: int | None = None, what: What = "all") -> SessionRewound:
        return self._loop_thread().call(partial(self.undo, to, what))

    def redo_sync(self) -> SessionRewound:
        return self._loop_thread().call(self.redo)

    def fork_sync(self, title: str | None = None) -> Self:
        return self._loop_thread().call(partial(self.fork, title))

    def set_checkpoints_sync(self, on: bool) -> None:
        self._loop_thread().call(partial(self.set_checkpoints, on))

    def close_sync(self) -> None:
        """Close the session, as the end of `with` does. Called automatically when the program exits."""
        thread = self._thread
        if thread is None:
            if self._live is not None:
                raise ConfigError("this agent was opened in an event loop; use `await agent.close()`")
            return
        atexit.unregister(self.close_sync)
        try:
            thread.call(self.close)
        finally:
            self._thread = None
            thread.end()

    def _loop_thread(self) -> LoopThread:
        if self._thread is None:
            if self._live is not None:
                raise ConfigError("this agent was opened in an event loop; use `await agent.run(...)`")
            self._thread = LoopThread()
            atexit.register(self.close_sync)
        return self._thread

    async def __aenter__(self) -> Self:
        plan = self._plan
        if not plan.options.model and self._given["session"] is None:
            from pinfold.app.models.local_models import choose_model

            model = await choose_model()
            notices = (*plan.options.notices, model.why)
            plan = self._plan = replace(plan, options=replace(plan.options, model=model.name, notices=notices))
        async with AsyncExitStack() as stack:
            live = await stack.enter_async_context(acquire_or_open(plan.folder, plan.session, plan.options))
            if self._approve:
                tasks = await stack.enter_async_context(background())
                tasks.start_soon(partial(answer_approvals, live, lambda _: self._approve))
            self._live = live
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._live and self._turn:
            async with self._live.subscribe(self._live.log.seq) as feed:
                await stop(self._live, feed, self._turn)
        self._live = None
        return await self._stack.__aexit__(kind, error, trace)

    def set_guards(self, *, imports: Iterable[str] | None = None, decoded: bool = False) -> None:
        """Set the guard rails for code: allow only these imports; with `decoded`, refuse to run decoded text.

        They protect a model from mistakes. Protection from harmful code is the sandbox.
        """
        allowed = None if imports is None else frozenset(imports)
        self._require_open().set_guards(Guards(imports=allowed, decoded=decoded))

    async def set_checkpoints(self, on: bool) -> None:
        """Switch git checkpoints of the workspace's files on or off, from the next cell on."""
        await self._require_async().submit(Configure(checkpoints=on))

    def add_callback(self, hook: Hook) -> None:
        """Let `hook` watch events, judge actions or change requests; see `pinfold.hooks`."""
        self._hooks.add(hook)

    async def run(self, prompt: str, *, images: Iterable[str | PathLike[str]] = ()) -> RunResult:
        """Run one turn. `images` are files to show the model. Raises TurnError if the turn ends without an answer."""
        live, say = await self._prepare_turn(prompt, images)
        end, shown = await finish_turn(self._follow_turn(live, say), say)
        return RunResult(
            text=end.text,
            usage=end.usage,
            cost=end.cost,
            without=end.without,
            displays=tuple(map(self._display, shown)),
            session_id=self.session_id,
        )

    async def stream(self, prompt: str, *, images: Iterable[str | PathLike[str]] = ()) -> AsyncGenerator[Event | Delta]:
        """Run one turn and yield its events. Leaving early interrupts the turn."""
        live, say = await self._prepare_turn(prompt, images)
        async with aclosing(self._follow_turn(live, say)) as feed:
            async for item in feed:
                yield event_of(item)

    async def _prepare_turn(self, prompt: str, images: Iterable[str | PathLike[str]]) -> tuple[LiveSession, Say]:
        if self._live is None:
            await self.open()
        live = self._require_async()
        shown = tuple(picture(live.log.blobs, Path(path)) for path in images)
        return live, Say(turn=new_turn_id(), text=prompt, images=shown)

    async def _follow_turn(self, live: LiveSession, say: Say) -> AsyncGenerator[Entry | Delta]:
        """Yield the events from this turn's prompt on. Hooks see the end of the turn before the caller does."""
        self._turn, begun = say.turn, False
        try:
            async with aclosing(follow(live, say, live.log.seq)) as feed:
                async for item in feed:
                    begun = begun or (isinstance(spoke := event_of(item), UserSpoke) and spoke.turn == say.turn)
                    if is_end(item, say.turn):
                        with anyio.move_on_after(_HOOKS_CATCH_UP_S):
                            await live.wait_for_hooks(live.log.seq)
                    if begun:
                        yield item
        finally:
            self._turn = None

    async def interrupt(self) -> None:
        """Stop the running turn; the session stays as it is."""
        await self._require_async().submit(Interrupt())

    async def undo(self, to: int | None = None, what: What = "all") -> SessionRewound:
        """Undo the last cell, or all cells after cell `to`: variables and workspace files. Raises CommandRefused.

        Effects that could not be undone are in `effects`. The model learns of the undo with the next prompt.
        """
        return await self._rewind(Undo(to=to, what=what))

    async def redo(self) -> SessionRewound:
        """Redo what the last undo took back, if no cell has run since. Raises CommandRefused."""
        return await self._rewind(Redo())

    async def _rewind(self, command: Undo | Redo) -> SessionRewound:
        live = self._require_async()
        return await rewind(live, command, live.log.seq)

    async def fork(self, title: str | None = None) -> Self:
        """Return a second agent, not yet open, that continues from here in the same folder. Raises PinfoldError."""
        if self._plan.folder is None:
            raise ConfigError("an ephemeral session cannot be forked: nothing of it is kept")
        if self._turn is not None:
            raise CommandRefused("a turn is under way; wait for its end, then fork")
        session, _ = await fork(SessionStore(), self.session_id, title)
        given: dict[str, Any] = {**self._given, "session": session}
        return type(self)(**given)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the session by suffix: .ipynb, .html, .md, .py, .json, .jsonl; any other is a bundle for `load`."""
        from pinfold.app.storage.exports import form_for, save

        target = Path(path)
        if self._live:
            save(self._live.log, form_for(target), target, Damage(), force=True)
        elif folder := self._plan.folder:
            with read_session(folder, self.session_id) as (log, damage):
                save(log, form_for(target), target, damage, force=True)
        else:
            raise ConfigError("an ephemeral session is gone once it is closed; save it before")
        return target

    @classmethod
    def load(cls, path: str | PathLike[str], **arguments: Any) -> Self:
        """Return an agent that continues a saved session. `arguments` are those of Agent."""
        store = SessionStore()
        session, _ = store.import_session(Path(path))
        try:
            return cls(session=session, **arguments)
        except (PinfoldError, TypeError):
            store.remove(session)
            raise

    def _require_open(self) -> LiveSession:
        if self._live is None:
            raise ConfigError("open the agent first: async with Agent(...) as agent")
        return self._live

    def _require_async(self) -> LiveSession:
        live = self._require_open()
        if self._thread is not None and not self._thread.is_here:
            raise ConfigError("this agent was opened without asyncio; use `agent.run_sync(...)`")
        return live

    def _display(self, shown: DisplayRef) -> Display:
        blobs = self._require_async().log.blobs
        return Display(mime={mime: blobs.get(blob) for mime, blob in shown.mime.items()})
