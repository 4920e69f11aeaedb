"""The conversation: opens a session, says what was entered, follows what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
from msgspec.structs import replace
from rich.text import Text

from pinfold import __version__
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
from pinfold.events import (
    ActionFinished,
    ActionId,
    ApprovalRequested,
    BlobId,
    Continue,
    Delta,
    Entry,
    Execute,
    Interrupt,
    PinfoldError,
    Say,
    SessionId,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    UserSpoke,
    new_action_id,
    new_turn_id,
)
from pinfold.front.chat.approvals import Approvals, render_request
from pinfold.front.chat.commands import COMMANDS, arguments, list_commands, run_command
from pinfold.front.chat.downloads import UserLeft
from pinfold.front.chat.input_queue import ChoiceQuestion, InputQueue, KeyQuestion, WordsQuestion
from pinfold.front.chat.renderers.event_renderer import EventRenderer
from pinfold.front.chat.renderers.transcript import Surface, TerminalTranscript
from pinfold.front.chat.session_target import Past, SessionTarget, last_session_here, load_past, resolve_session
from pinfold.front.chat.status import Status
from pinfold.text import presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.app.clients.notebooks import AttachedNotebook
    from pinfold.app.session.options import Mount

logger = logging.getLogger(__name__)
_BEAT_S = 0.04
_IDLE_S = 0.25
_BREATH_S = 0.008
"""How long events are told before keys are looked at again."""
_STOP_S = 10.0
_CATCH_UP_S = 2.0


class Terminal(Surface, Protocol):
    """What the conversation needs of the frame."""

    steered: bool

    def set_completions(
        self, commands: Iterable[tuple[str, str]], arguments: Callable[[str, str], Iterable[str]], workspace: Path
    ) -> None:
        """What can be completed."""
        ...


def _log_exception(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """What goes wrong where nobody waits for it must not be printed over the prompt."""
    logger.error("unexpected: %s", context.get("message"), exc_info=context.get("exception"))


def _preload() -> None:
    """What the first answer needs, loaded while nobody waits for it."""
    from pinfold.front.chat.renderers.code import highlight_code

    highlight_code("print(1)", "python")


async def converse(desk: InputQueue, terminal: Terminal, given: Mapping[str, Any]) -> int:
    """Until the user leaves; the exit code."""
    start_operator_log(given.get("log_level"))
    asyncio.get_running_loop().set_exception_handler(_log_exception)
    talk = Conversation(desk, terminal, given)
    name = await anyio.to_thread.run_sync(last_session_here, given) if given.get("last") else given["session"]
    return await talk.run(name)


class Conversation:
    """Is the `Talk` of commands."""

    link: Link
    teller: EventRenderer
    session: SessionId
    workspace: Path
    _place: SessionTarget

    def __init__(self, desk: InputQueue, terminal: Terminal, given: Mapping[str, Any]) -> None:
        self._desk = desk
        self._terminal = terminal
        self._given = given
        self.paper = TerminalTranscript(terminal, steered=terminal.steered)
        self.status = Status()
        self._approvals = Approvals(desk, self.paper, self._submit)
        self._turn: TurnId | ActionId | None = None
        """What runs: a turn, or a cell of the user's own."""
        self._ends: dict[TurnId | ActionId, anyio.Event] = {}
        self._cut_off = False
        self._spoke = False
        """Something was said in this session, now or before."""
        self._next: tuple[SessionId | None] | None = None
        self._again: SessionTarget | None = None
        """This session, to be opened once more and otherwise."""
        self._stopped = asyncio.Event()
        self._commands: asyncio.Queue[str] = asyncio.Queue()
        self._told = 0
        """The last event."""
        self._moved = anyio.Event()
        self._pictures: PictureMode = "auto"
        self._brought: AttachedNotebook | None = None
        """A notebook that the model has not been told of."""

    async def run(self, name: str | None) -> int:
        self.paper.write(Text(f"Pinfold {__version__} · /help for help", style="dim"))
        loaded = await anyio.to_thread.run_sync(load_config)
        self._pictures = loaded.config.chat.pictures
        place, told = await resolve_session(self._given, name, self), False
        before: SessionTarget | None = None
        while True:
            try:
                await self._run_session(place, told=told)
            except OwnerGone:
                if self._desk.leaving:
                    break
                self.paper.write(
                    Text("The process that held the session is gone; going on with it here.", style="yellow")
                )
                place, told = replace(place, is_new=False), False
                continue
            except PinfoldError as error:
                if before is None:
                    raise
                self.paper.write(Text(presentable(str(error)), style="red"))
                place, before = before, None
                continue
            if self._again is not None:
                before, place, told = replace(place, is_new=False), self._again, True
                self._again = None
                continue
            await self._remove_if_empty(place)
            if self._next is None:
                break
            (name,) = self._next
            self._next = before = None
            place, told = await resolve_session(self._given, name, self), False
        self._farewell(place)
        return 0

    # What commands use

    async def say(self, text: str) -> None:
        turn = new_turn_id()
        brought, self._brought = self._brought, None
        await self._follow_turn(turn, Say(turn=turn, text=brought.add_to_prompt(text) if brought else text))

    async def ask(self, question: str, keys: Mapping[str, str]) -> str:
        return await self._desk.ask(KeyQuestion(presentable(question), keys)) or ""

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str | None:
        if not options:
            return None
        question = ChoiceQuestion(presentable(title), [presentable_line(words) for _, words in options])
        answer = await self._desk.ask(question)
        return None if answer is None else options[int(answer)][0]

    async def ask_secret(self, title: str, label: str, command: str) -> str:
        if not self._terminal.steered:
            raise ConfigError(f"this terminal would show the key while you type; use: {command}")
        question = WordsQuestion(presentable(title), label, may_be_empty=False, hidden=True)
        return await self._desk.ask(question) or ""

    async def switch(self, session: SessionId | None) -> None:
        self._next = (session,)
        self._desk.wake()

    async def reopen(self, *, data: Mapping[str, Path] | None = None, mounts: Sequence[Mount] | None = None) -> None:
        place = self._place
        if place.folder is None:
            raise ConfigError("an --ephemeral session cannot be reopened; start it with --mount or --data")
        if not isinstance(self.link, LiveSession):
            raise ConfigError("another process holds this session; end it there first, then do this here")
        more = {name: given for name, given in (("data", data), ("mounts", mounts)) if given is not None}
        # What it is now is in its log, and what was given on the command line counts as before.
        options = replace(place.options, model=None, mode=None, git_checkpoints=None, notices=(), **more)
        self._again = replace(place, options=options, is_new=False)
        self.progress("reopening the session")
        self._desk.wake()

    def leave(self) -> None:
        self._desk.leave()

    # One session

    async def _run_session(self, place: SessionTarget, *, told: bool = False) -> None:
        """`told`: what happened in it is on the screen already."""
        self.progress("opening the session")
        async with contextlib.AsyncExitStack() as stack:
            link = await stack.enter_async_context(place.open_link())
            standing = await link.status()
            past = await load_past(place, standing.seq)
            if told:
                past.forget_entries()
            feed = await stack.enter_async_context(link.subscribe(standing.seq))
            self._begin(place, link, standing, past)
            await self._tell_past(past)
            async with background() as tasks:
                tasks.start_soon(self._follow, feed)
                tasks.start_soon(self._beat)
                tasks.start_soon(self._forward_interrupts)
                tasks.start_soon(self._run_queued_commands)
                tasks.start_soon(anyio.to_thread.run_sync, _preload)
                tasks.start_soon(self._approvals.serve)
                self._resume(standing, link, past)
                if place.is_new and self._given.get("notebook"):
                    await self._run_safely(self._bring_notebook, str(self._given["notebook"]))
                await self._work()
                await self._stop()
        self.paper.live(None)

    def _begin(self, place: SessionTarget, link: Link, standing: SessionStatus, past: Past) -> None:
        self.link, self.session, self._place = link, place.session, place
        self.workspace = Path(standing.workspace)
        self.teller = EventRenderer(self.paper, self._blob, picture=self._pictures, displays=past.displays)
        self.status = past.status
        self.status.join(standing)
        self._turn, self._spoke = None, standing.turn is not None
        desk = self._desk
        desk.doing, desk.status = self._describe_activity, self.status.line
        desk.interrupted, desk.at_once = self._stopped.set, self._queue_command
        self._terminal.set_completions(list_commands(self), partial(arguments, self), self.workspace)
        if standing.no_model:
            self.paper.write(Text(presentable(standing.no_model), style="yellow"))

    async def _blob(self, id_: BlobId) -> bytes:
        return await self.link.blob(id_)

    async def _tell_past(self, past: Past) -> None:
        if past.older:
            self.paper.write(Text(f"({past.older:,} earlier turns are not shown)", style="dim"))
        for entry in past.entries:
            await self.teller.render(entry)
            event = entry.event
            # Those that still wait are asked once more.
            if isinstance(event, ApprovalRequested) and event.question and event.id not in past.asked:
                self.paper.write(*render_request(event))
            await anyio.lowlevel.checkpoint()

    def _resume(self, standing: SessionStatus, link: Link, past: Past) -> None:
        """A turn that is not at its end: another process is at it, or it was cut off."""
        if standing.end != "open" or standing.turn is None:
            return
        for event in past.asked.values():
            self._approvals.take(event)
        if isinstance(link, LiveSession):
            self._cut_off = True
            self.paper.write(Text("The last turn was cut off: `continue` goes on with it.", style="yellow"))
        else:
            self._mark_busy(standing.turn)

    async def _work(self) -> None:
        while self._next is None and self._again is None:
            line = await self._desk.line()
            if line is None:
                return
            await self._run_safely(self._handle_line, line)

    async def _bring_notebook(self, notebook: str) -> None:
        """Its cells run before the first word, which tells the model of them."""
        from pinfold.app.clients.notebooks import AttachedNotebook

        brought = await anyio.to_thread.run_sync(
            partial(AttachedNotebook, Path(notebook), run=not self._given["no_run"], say=self.tell)
        )
        await brought.run_cells(self.link)
        self._brought = brought

    async def _run_safely(self, what: Callable[[str], Awaitable[None]], line: str) -> None:
        """The chat outlives what goes wrong with a line."""
        try:
            await what(line)
        except OwnerGone:
            raise
        except PinfoldError as error:
            self.paper.write(Text(presentable(str(error)), style="red"))
        except Exception as error:
            logger.exception("unexpected")
            words = f"unexpected error, please report it: {type(error).__name__}: {error}"
            self.paper.write(Text(presentable(words), style="red"))

    def _queue_command(self, line: str) -> bool:
        """Whether it need not wait for the end of the turn; then it does not."""
        words = line.strip()
        known = COMMANDS.get(words[1:].partition(" ")[0]) if words.startswith("/") else None
        if self._turn is None or known is None or known.at_rest:
            return False
        self._commands.put_nowait(words)
        return True

    async def _run_queued_commands(self) -> None:
        while True:
            await self._run_safely(self._run_command, await self._commands.get())

    async def _run_command(self, words: str) -> None:
        self.paper.write("", Text(f"> {presentable_line(words)}", style="bold"))
        await run_command(self, words)

    async def _handle_line(self, line: str) -> None:
        words = line.strip()
        if words in ("exit", "quit"):
            self.leave()
        elif words.startswith("/"):
            await self._run_command(words)
            await self._wait_until_shown()
        elif words.startswith("!") and words.strip("! "):
            id_ = new_action_id()
            self._spoke = True
            await self._follow_turn(id_, Execute(id=id_, code=words))
        elif words == "continue" and self._cut_off:
            standing = await self.link.status()
            if standing.turn is not None:
                await self._follow_turn(standing.turn, Continue())
        else:
            await self.say(line)

    async def _follow_turn(self, turn: TurnId | ActionId, command: Say | Continue | Execute) -> None:
        """Submit it and wait for its end, or until it is time to leave."""
        ended = self._ends[turn] = anyio.Event()
        self._cut_off = False
        self._mark_busy(turn)
        try:
            await self.link.submit(command)
        except BaseException:
            self._mark_idle(turn)
            raise
        async with background() as tasks:
            tasks.start_soon(self._end_on_leave, ended)
            await ended.wait()
        self._ends.pop(turn, None)
        self.status.join(await self.link.status())

    async def _end_on_leave(self, ended: anyio.Event) -> None:
        await self._desk.left.wait()
        ended.set()

    async def _stop(self) -> None:
        """What still runs when the user leaves is interrupted; its state is kept."""
        if self._turn is None or self._next is not None:
            return
        ended = self._ends[self._turn] = anyio.Event()
        await self._submit(Interrupt(target=self._turn))
        with anyio.move_on_after(_STOP_S):
            await ended.wait()

    async def _wait_until_shown(self) -> None:
        """What a command led to is told before the next line is taken."""
        if isinstance(self.link, LiveSession):
            with anyio.move_on_after(_CATCH_UP_S):
                while self._told < self.link.log.seq:
                    await self._moved.wait()

    def _mark_busy(self, turn: TurnId | ActionId) -> None:
        self._turn = turn
        if self._desk.busy_since is None:
            self._desk.busy_since = time.monotonic()
        self._desk.changed()

    def _mark_idle(self, turn: TurnId | ActionId) -> None:
        if self._turn == turn:
            self._turn = None
            self._desk.busy_since = None
            self._desk.changed()

    async def _forward_interrupts(self) -> None:
        """Keys only leave word: what they call runs outside any task."""
        while True:
            await self._stopped.wait()
            self._stopped.clear()
            if self._turn is not None:
                await self._submit(Interrupt(target=self._turn))

    async def _submit(self, command: Any) -> None:
        await self.link.submit(command)

    def _describe_activity(self) -> str:
        return "waiting for you" if len(self._approvals) else self.teller.describe_activity()

    # While a session is being chosen

    def tell(self, *lines: str) -> None:
        for line in lines:
            self.paper.write(line)

    def progress(self, words: str) -> None:
        self._desk.status = lambda _: words
        self._desk.changed()

    async def confirm(self, question: str) -> bool:
        self.progress("waiting for you")
        return await self.ask(f"{question}?", {"y": "yes", "n": "no"}) == "y"

    @contextlib.asynccontextmanager
    async def let_user_cancel(self) -> AsyncGenerator[None]:
        """Meanwhile one Ctrl-C leaves, and ends what is being fetched. Raises Left."""
        desk, before = self._desk, self._desk.interrupted
        desk.busy_since, desk.interrupted = time.monotonic(), desk.leave

        async def watch(scope: anyio.CancelScope) -> None:
            await desk.left.wait()
            scope.cancel()

        try:
            async with background() as tasks:
                tasks.start_soon(watch, tasks.cancel_scope)
                yield
        finally:
            desk.busy_since, desk.interrupted = None, before
        if desk.leaving:
            raise UserLeft("left; what was fetched is kept")

    # Events

    async def _follow(self, feed: AsyncIterator[Entry | Delta]) -> None:
        """However fast they come, keys are looked at in between."""
        breath = time.monotonic()
        async for item in feed:
            await self._tell(item)
            if time.monotonic() - breath > _BREATH_S:
                await anyio.lowlevel.checkpoint()
                breath = time.monotonic()

    async def _tell(self, item: Entry | Delta) -> None:
        if isinstance(item, Entry):
            self.status.take(item.event)
            if isinstance(item.event, UserSpoke):
                self._spoke = True
                self._mark_busy(item.event.turn)
        try:
            await self.teller.render(item)
        except Exception as error:  # what cannot be shown does not end the chat
            logger.exception("unexpected")
            words = f"this could not be shown, please report it: {type(error).__name__}"
            self.paper.write(Text(words, style="red"))
        if isinstance(item, Entry):
            self._approvals.take(item.event)
            match item.event:
                case (
                    TurnEnded(turn=turn) | TurnFailed(turn=turn) | TurnInterrupted(turn=turn) | ActionFinished(id=turn)
                ):
                    self._mark_idle(turn)
                    if turn in self._ends:
                        self._ends[turn].set()
                case _:
                    pass
            self._told = item.seq
            self._moved.set()
            self._moved = anyio.Event()
            self._desk.changed()

    async def _beat(self) -> None:
        """A few times a second: what the teller put off."""
        while True:
            await anyio.sleep(_BEAT_S if self._desk.is_busy else _IDLE_S)
            self.teller.refresh()

    # The end

    async def _remove_if_empty(self, place: SessionTarget) -> None:
        """A session in which nothing was said is not kept."""
        if place.folder is None:
            forget_scratch(place.session)
        elif place.is_new and not self._spoke:
            with contextlib.suppress(PinfoldError, OSError):
                await anyio.to_thread.run_sync(SessionStore().remove, place.session)

    def _farewell(self, place: SessionTarget) -> None:
        if place.folder is not None and self._spoke:
            words = f"Go on with: pinfold -c   or: pinfold resume {place.session}"
            self.paper.write(Text(words, style="dim"))
