"""The conversation: opens a session, sends what the user enters, shows its events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec.structs import replace
from rich.text import Text

from pinfold import __version__, events
from pinfold.app import (
    ConfigError,
    Link,
    LiveSession,
    OwnerGone,
    PictureMode,
    SessionStatus,
    SessionStore,
    background,
    forget_scratch,
    load_config,
    start_operator_log,
)
from pinfold.events import Delta, Entry, PinfoldError, SessionId
from pinfold.front.chat.commands.completions import list_arguments, list_commands
from pinfold.front.chat.commands.context import ChatContext
from pinfold.front.chat.commands.table import find_command, run_command
from pinfold.front.chat.dialogs import Approvals, render_request
from pinfold.front.chat.input_queue import InputQueue
from pinfold.front.chat.renderers.code import highlight_code
from pinfold.front.chat.renderers.event_renderer import EventRenderer
from pinfold.front.chat.renderers.transcript import Terminal, TerminalTranscript
from pinfold.front.chat.session_target import Past, SessionTarget, last_session_here, load_past, resolve_session
from pinfold.front.chat.status_line import Status
from pinfold.front.chat.turns import Turns
from pinfold.text import presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.app.clients import AttachedNotebook
    from pinfold.app.session import Mount
    from pinfold.front.flags import Flags

logger = logging.getLogger(__name__)
_BEAT_S = 0.04
_IDLE_S = 0.25
_BREATH_S = 0.008
"""How long events are rendered before the event loop may handle keys again."""
_CATCH_UP_S = 2.0


async def converse(input_queue: InputQueue, terminal: Terminal, given: Flags) -> int:
    """Run the chat until the user leaves, and return the exit code."""
    start_operator_log(given.get("log_level"))

    def log_error(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Log errors of background tasks; printing them would spoil the prompt."""
        logger.error("unexpected: %s", context.get("message"), exc_info=context.get("exception"))

    asyncio.get_running_loop().set_exception_handler(log_error)
    chat = Conversation(input_queue, terminal, given)
    name = await anyio.to_thread.run_sync(last_session_here, given) if given.get("last") else given["session"]
    return await chat.run(name)


class Conversation(ChatContext):
    _renderer: EventRenderer
    _target: SessionTarget
    _turns: Turns
    _approvals: Approvals

    def __init__(self, input_queue: InputQueue, terminal: Terminal, given: Flags) -> None:
        super().__init__(input_queue, TerminalTranscript(terminal))
        self._terminal = terminal
        self._given = given
        self.status = Status()
        self._next: tuple[SessionId | None] | None = None
        self._reopening: SessionTarget | None = None
        """Set to reopen this session with other options."""
        self._commands: asyncio.Queue[str] = asyncio.Queue()
        self._shown = 0
        """Sequence number of the last event that was rendered."""
        self._progressed = anyio.Event()
        self._pictures: PictureMode = "auto"
        self._notebook: AttachedNotebook | None = None
        """A notebook to show to the model with the next prompt."""

    async def run(self, name: str | None) -> int:
        self._write(f"Pinfold {__version__} · /help for help", "dim")
        loaded = await anyio.to_thread.run_sync(load_config)
        self._pictures = loaded.config.chat.pictures
        target, is_shown = await resolve_session(self._given, name, self), False
        before: SessionTarget | None = None
        while True:
            try:
                await self._run_session(target, is_shown=is_shown)
            except OwnerGone:
                if self._input_queue.leaving:
                    break
                self._write("The process that ran the session has ended; the session continues here.", "yellow")
                target, is_shown = replace(target, is_new=False), False
                continue
            except PinfoldError as error:
                if before is None:
                    raise
                self._write(str(error), "red")
                target, before = before, None
                continue
            if self._reopening is not None:
                before, target, is_shown = replace(target, is_new=False), self._reopening, True
                self._reopening = None
                continue
            if target.folder is None:
                forget_scratch(target.session)
            elif target.is_new and not self._turns.has_any:  # the session had no turn
                with contextlib.suppress(PinfoldError, OSError):
                    await anyio.to_thread.run_sync(SessionStore().remove, target.session)
            if self._next is None:
                break
            (name,) = self._next
            self._next = before = None
            target, is_shown = await resolve_session(self._given, name, self), False
        if target.folder is not None and self._turns.has_any:
            self._write(f"Continue with: pinfold -c   or: pinfold resume {target.session}", "dim")
        return 0

    # Called by commands

    async def say(self, text: str) -> None:
        turn = events.new_turn_id()
        notebook, self._notebook = self._notebook, None
        await self._run_turn(turn, events.Say(turn=turn, text=notebook.add_to_prompt(text) if notebook else text))

    async def switch(self, session: SessionId | None) -> None:
        self._next = (session,)
        self._input_queue.wake()

    async def reopen(self, *, data: Mapping[str, Path] | None = None, mounts: Sequence[Mount] | None = None) -> None:
        target = self._target
        if target.folder is None:
            raise ConfigError("an --ephemeral session cannot be reopened; start it with --mount or --data")
        if not isinstance(self.link, LiveSession):
            raise ConfigError("another process runs this session; end it there first")
        more = {name: given for name, given in (("data", data), ("mounts", mounts)) if given is not None}
        # The log holds the current model and mode; other flags stay as given.
        options = replace(target.options, model=None, mode=None, git_checkpoints=None, notices=(), **more)
        self._reopening = replace(target, options=options, is_new=False)
        self.progress("reopening the session")
        self._input_queue.wake()

    def leave(self) -> None:
        self._input_queue.leave()

    # One session

    async def _run_session(self, target: SessionTarget, *, is_shown: bool = False) -> None:
        """Run one session until the user leaves or switches it. `is_shown`: its past is already on the screen."""
        self.progress("opening the session")
        async with contextlib.AsyncExitStack() as stack:
            link = await stack.enter_async_context(target.open_link())
            status = await link.status()
            past = await load_past(target, status.seq)
            if is_shown:
                past.forget(len(past.entries))
                past.older = 0
            feed = await stack.enter_async_context(link.subscribe(status.seq))
            self._begin(target, link, status, past)
            await self._show_past(past)
            async with background() as tasks:
                tasks.start_soon(self._follow, feed)
                tasks.start_soon(self._beat)
                tasks.start_soon(self._turns.forward_interrupts)
                tasks.start_soon(self._run_queued_commands)
                # Load the highlighter before the first answer needs it.
                tasks.start_soon(anyio.to_thread.run_sync, highlight_code, "print(1)", "python")
                tasks.start_soon(self._approvals.serve)
                self._resume(status, link, past)
                if target.is_new and self._given.get("notebook"):
                    await self._run_safely(self._attach_notebook, str(self._given["notebook"]))
                await self._work()
                if self._next is None:
                    await self._turns.stop()
        self.transcript.live(None)

    def _begin(self, target: SessionTarget, link: Link, status: SessionStatus, past: Past) -> None:
        self.link, self.session, self._target = link, target.session, target
        self.workspace = Path(status.workspace)
        self.renderer = self._renderer = EventRenderer(
            self.transcript, link.blob, picture=self._pictures, displays=past.displays
        )
        self.status = past.status
        self.status.join(status)
        input_queue = self._input_queue
        self._turns = Turns(input_queue, link, status.turn)
        self._approvals = Approvals(input_queue, self.transcript, link.submit)
        input_queue.doing = lambda: "waiting for you" if len(self._approvals) else self._renderer.describe_activity()
        input_queue.status = self.status.line
        input_queue.at_once = self._queue_command
        self._terminal.set_completions(list_commands(self), partial(list_arguments, self), self.workspace)
        if status.no_model:
            self._write(status.no_model, "yellow")

    async def _show_past(self, past: Past) -> None:
        if past.older:
            self._write(f"({past.older:,} earlier turns are not shown)", "dim")
        for entry in past.entries:
            await self._renderer.render(entry)
            event = entry.event
            # Open questions are not written here: they are asked again.
            if isinstance(event, events.ApprovalRequested) and event.question and event.id not in past.asked:
                self.transcript.write(*render_request(event))
            await anyio.lowlevel.checkpoint()

    def _resume(self, status: SessionStatus, link: Link, past: Past) -> None:
        """Handle a last turn that has no end: another process runs it, or it was cut off."""
        if status.end != "open" or status.turn is None:
            return
        for event in past.asked.values():
            self._approvals.take(event)
        if isinstance(link, LiveSession):
            self._turns.was_cut_off = True
            self._write("The last turn was cut off; type `continue` to finish it.", "yellow")
        else:
            self._turns.mark_busy(status.turn)

    async def _work(self) -> None:
        while self._next is None and self._reopening is None:
            line = await self._input_queue.line()
            if line is None:
                return
            await self._run_safely(self._handle_line, line)

    async def _attach_notebook(self, path: str) -> None:
        """Attach the notebook at `path` and run its cells; the next prompt shows them to the model."""
        from pinfold.app.clients import AttachedNotebook

        notebook = await anyio.to_thread.run_sync(
            partial(AttachedNotebook, Path(path), run=not self._given["no_run"], say=self.tell)
        )
        await notebook.run_cells(self.link)
        self._notebook = notebook

    async def _run_safely(self, what: Callable[[str], Awaitable[None]], line: str) -> None:
        """Call `what(line)` and show its errors, so that the chat goes on."""
        try:
            await what(line)
        except OwnerGone:
            raise
        except PinfoldError as error:
            self._write(str(error), "red")
        except Exception as error:
            logger.exception("unexpected")
            self._write(f"unexpected error, please report it: {type(error).__name__}: {error}", "red")

    def _write(self, words: str, style: str) -> None:
        self.transcript.write(Text(presentable(words), style=style))

    def _queue_command(self, line: str) -> bool:
        """Queue the line and return True if it is a command that may run during a turn."""
        words = line.strip()
        known = find_command(words[1:].partition(" ")[0]) if words.startswith("/") else None
        if self._turns.current is None or known is None or known.at_rest:
            return False
        self._commands.put_nowait(words)
        return True

    async def _run_queued_commands(self) -> None:
        while True:
            await self._run_safely(self._run_command, await self._commands.get())

    async def _run_command(self, words: str) -> None:
        self.transcript.write("", Text(f"> {presentable_line(words)}", style="bold"))
        await run_command(self, words)

    async def _handle_line(self, line: str) -> None:
        words = line.strip()
        if words in ("exit", "quit"):
            self.leave()
        elif words.startswith("/"):
            await self._run_command(words)
            # Show the events of a command before the next line is handled.
            if isinstance(self.link, LiveSession):
                with anyio.move_on_after(_CATCH_UP_S):
                    while self._shown < self.link.log.seq:
                        await self._progressed.wait()
        elif words.startswith("!") and words.strip("! "):
            id_ = events.new_action_id()
            await self._run_turn(id_, events.Execute(id=id_, code=words))
        elif words == "continue" and self._turns.was_cut_off:
            status = await self.link.status()
            if status.turn is not None:
                await self._run_turn(status.turn, events.Continue())
        else:
            await self.say(line)

    async def _run_turn(
        self, turn: events.TurnId | events.ActionId, command: events.Say | events.Continue | events.Execute
    ) -> None:
        await self._turns.run(turn, command)
        self.status.join(await self.link.status())

    # Events

    async def _follow(self, feed: AsyncIterator[Entry | Delta]) -> None:
        """Render events, and yield regularly so that keys are handled."""
        breath = time.monotonic()
        async for item in feed:
            await self._show(item)
            if time.monotonic() - breath > _BREATH_S:
                await anyio.lowlevel.checkpoint()
                breath = time.monotonic()

    async def _show(self, item: Entry | Delta) -> None:
        if isinstance(item, Entry):
            self.status.take(item.event)
            if isinstance(item.event, events.UserSpoke):
                self._turns.take(item.event)
        try:
            await self._renderer.render(item)
        except Exception as error:  # an event that cannot be shown must not end the chat
            logger.exception("unexpected")
            self._write(f"an event could not be shown, please report it: {type(error).__name__}", "red")
        if isinstance(item, Entry):
            self._approvals.take(item.event)
            self._turns.take(item.event)
            self._shown = item.seq
            self._progressed.set()
            self._progressed = anyio.Event()
            self._input_queue.changed()

    async def _beat(self) -> None:
        """Redraw the live region a few times a second."""
        while True:
            await anyio.sleep(_BEAT_S if self._input_queue.is_busy else _IDLE_S)
            self._renderer.refresh()
