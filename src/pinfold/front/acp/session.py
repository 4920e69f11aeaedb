"""One session that is open in an editor: follows its events, runs prompts, changes its settings.

A prompt has text, pictures, files open in the editor, and links; nothing is read through the editor.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import cast, get_args
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from msgspec import Struct
from msgspec.structs import replace

from pinfold import events
from pinfold.app import CommandRefused, Link, LiveSession, Options, OwnerGone, background, connect
from pinfold.app.clients import build_history, entries_of, store_picture
from pinfold.events import Command, Entry, Event, Image, Json, PinfoldError, SessionId, TurnId
from pinfold.front.acp.connection import AUTH_REQUIRED, INTERNAL, INVALID_PARAMS, Connection, RpcError
from pinfold.front.acp.permissions import Permissions
from pinfold.front.acp.updates import Update, Updates, fence, message
from pinfold.front.pages import MODES
from pinfold.text import cap_text

_WHOLE = 100_000
"""Most characters of an embedded file that the model sees."""


class Prompt(Struct, frozen=True, kw_only=True):
    text: str
    images: tuple[Image, ...] = ()


def read_prompt(blocks: Json, workspace: Path, store: Callable[[bytes, str], Image]) -> Prompt:
    """Read content blocks. `store` keeps a picture with the session, or raises ConfigError. Raises RpcError."""
    if not isinstance(blocks, list) or not blocks:
        raise RpcError(INVALID_PARAMS, "prompt must be a list with at least one content block")
    said: list[str] = []
    attached: list[str] = []
    images: list[Image] = []
    for block in cast("list[Json]", blocks):
        match block:
            case {"type": "text", "text": str(text)}:
                said.append(text)
            case {"type": "image", "data": str(data)}:
                images.append(store(_decode(data), "the picture"))
            case {"type": "resource_link", "uri": str(uri)}:
                said.append(_mention(uri, workspace))
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                said.append(_mention(uri, workspace))
                attached.append(f"{_mention(uri, workspace)} as the editor shows it:\n{fence(cap_text(text, _WHOLE))}")
            case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)}}:
                said.append(_mention(uri, workspace))
                images.append(store(_decode(data), uri))
            case {"type": str(kind)}:
                raise RpcError(INVALID_PARAMS, f"prompt: content of type {kind!r} is not supported, or is incomplete")
            case _:
                raise RpcError(INVALID_PARAMS, "prompt: a content block has no type")
    return Prompt(text="\n\n".join(("".join(said), *attached)).strip(), images=tuple(images))


def command_in(blocks: Json) -> tuple[str, str]:
    """Return the name and the arguments of a slash command; empty if the prompt is not one."""
    match blocks:
        case [{"type": "text", "text": str(text)}] if text.lstrip().startswith("/"):
            name, _, rest = text.strip()[1:].partition(" ")
            return ("", "") if "/" in name or "\n" in name else (name, rest.strip())
        case _:
            return "", ""


def _mention(uri: str, workspace: Path) -> str:
    """Return a file's path, relative to the workspace if inside it; for anything else, the address."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return f"<{uri}>"
    path = Path(unquote(parts.path))
    lines = f" ({parts.fragment})" if parts.fragment else ""
    return f"`{path.relative_to(workspace) if path.is_relative_to(workspace) else path}`{lines}"


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"prompt: the data of a block is not base64: {error}") from error


logger = logging.getLogger(__name__)
_BEAT_S = 0.2
"""Time between two updates of the output of a running action."""
_STOP_S = 10.0
"""How long a turn may take to end when the session is closed."""
_CHANGE_S = 60.0
"""How long a change of the settings may take."""
_STOP_REASONS: Mapping[events.Finish, str] = {"stop": "end_turn", "length": "max_tokens", "filter": "refusal"}
_PLAN = ("plan", "changes nothing until you leave this mode: the agent makes a plan first")


class _Waiter(Struct):
    ends: tuple[type[Event], ...]
    turn: TurnId | None
    done: anyio.Event
    event: Event | None = None


class EditorSession:
    def __init__(
        self,
        connection: Connection,
        folder: Path,
        session: SessionId,
        options: Options,
        models: tuple[tuple[str, str], ...],
        *,
        has_forms: bool,
    ) -> None:
        """`models`: names to choose from, each with a short description."""
        self.id = session
        self.folder = folder
        self.link: Link
        self.updates: Updates
        self._permissions: Permissions
        self._connection = connection
        self._options = options
        self._models = models
        self._has_forms = has_forms
        self._waiters: list[_Waiter] = []
        self._turns: dict[TurnId, bool] = {}
        """Running prompts; True if the prompt was cancelled."""
        self._announced = anyio.Event()
        self._closing = anyio.Event()
        self.closed = anyio.Event()
        self._first: list[Update] = []
        """Updates to send once the editor knows the session."""
        self._pending: list[events.ApprovalRequested] = []
        self._options_sent: list[Json] = []

    @property
    def workspace(self) -> Path:
        return self.updates.workspace

    # Opening and closing

    async def run(self, *, replay: bool, task_status: TaskStatus[None]) -> None:
        """Run until the session is closed or its owner ends. `replay`: first send all past events."""
        opened = False
        try:
            async with connect(self.folder, self.id, self._options) as link, background() as tasks:
                self.link = link
                status = await link.status()
                self.updates = Updates(Path(status.workspace), link.blob)
                self._permissions = Permissions(self._connection, self.id, link.submit, tasks, self._has_forms)
                self.updates.context = status.context
                last = await self._read_past(status.seq, replay=replay)
                self.updates.model = status.model
                async with link.subscribe(last) as feed:
                    opened = True
                    task_status.started()
                    tasks.start_soon(self._follow, feed)
                    tasks.start_soon(self._send_outputs)
                    await self._closing.wait()
                    await self._stop_turns()
        except PinfoldError as error:
            if not opened:
                raise  # in the task that opens the session
            (logger.info if isinstance(error, OwnerGone) else logger.error)("%s ended: %s", self.id, error)
        finally:
            self.closed.set()
            for waiter in self._waiters:
                waiter.done.set()

    async def _read_past(self, began: int, *, replay: bool) -> int:
        entries = await anyio.to_thread.run_sync(entries_of, self.link)
        for entry in entries:
            found = await self.updates.render(entry)
            if replay:
                await self.send(*found)
            elif entry.seq > began:
                self._first += found
        actions = build_history(self.id, entries).state.open.values()
        self._pending = [one.asked for one in actions if one.stage == "asking" and one.asked]
        return entries[-1].seq if entries else 0

    async def replay(self) -> None:
        """Send all past events to an editor that already has the session open."""
        again = Updates(self.workspace, self.link.blob)
        for entry in await anyio.to_thread.run_sync(entries_of, self.link):
            await self.send(*await again.render(entry))

    async def announce(self) -> None:
        """Send what is new in the session. Called once the editor knows the session."""
        first, self._first = self._first, []
        await self.send(*first)
        pending, self._pending = self._pending, []
        if (await self.link.status()).end == "open":
            for event in pending:
                self._permissions.take(event)
        self._announced.set()

    async def close(self) -> None:
        self._closing.set()
        await self.closed.wait()

    # Events

    async def _follow(self, feed: AsyncIterator[Entry | events.Delta]) -> None:
        await self._announced.wait()
        try:
            async for item in feed:
                await self.send(*await self.updates.render(item))
                if isinstance(item, Entry):
                    await self._on_event(item.event)
        finally:
            self._closing.set()  # the feed ends only when the owner does

    async def _on_event(self, event: Event) -> None:
        self._permissions.take(event)
        match event:
            case events.SessionChanged(model=model, mode=mode, plan=plan) if model or mode or plan:
                if model:
                    status = await self.link.status()
                    self.updates.context, self.updates.model = status.context, status.model
                if (options := self.config_options()) != self._options_sent:
                    self._options_sent = options
                    await self.send({"sessionUpdate": "config_option_update", "configOptions": options})
            case _:
                pass
        for waiter in self._waiters:
            is_its = waiter.turn is None or getattr(event, "turn", None) == waiter.turn
            if waiter.event is None and is_its and isinstance(event, waiter.ends):
                waiter.event = event
                waiter.done.set()

    async def _send_outputs(self) -> None:
        while True:
            await anyio.sleep(_BEAT_S)
            await self.send(*self.updates.running_outputs())

    async def send(self, *updates: Update) -> None:
        for update in updates:
            await self._connection.notify("session/update", {"sessionId": self.id, "update": update})

    async def say(self, text: str) -> None:
        await self.send(message(text))

    async def submit(self, command: Command, *ends: type[Event], turn: TurnId | None = None) -> Event:
        """Submit a command and return the event of a type in `ends`, after all updates up to it were sent.

        Raises CommandRefused, RpcError.
        """
        waiter = _Waiter(ends, turn, anyio.Event())
        self._waiters.append(waiter)
        try:
            await self.link.submit(command)
            await waiter.done.wait()
        finally:
            self._waiters.remove(waiter)
        if waiter.event is None:
            raise RpcError(INTERNAL, f"the session {self.id} has ended; send the prompt again to reopen it")
        return waiter.event

    # Prompts

    async def prompt(self, blocks: Json) -> Json:
        """Run a turn and return why it stopped. Raises RpcError."""
        turn = events.new_turn_id()
        self._turns[turn] = False
        try:
            said = await anyio.to_thread.run_sync(read_prompt, blocks, self.workspace, self._store_picture)
            status = await self.link.status()
            if status.no_model:
                raise RpcError(AUTH_REQUIRED, status.no_model)
            if self._turns[turn]:
                return {"stopReason": "cancelled"}
            is_cut_off = status.end == "open" and isinstance(self.link, LiveSession) and len(self._turns) == 1
            if is_cut_off and status.turn and said.text.strip().lower() == "continue":
                del self._turns[turn]
                turn = status.turn
                self._turns[turn] = False
                return await self._run_turn(turn, events.Continue())
            return await self._run_turn(turn, events.Say(turn=turn, text=said.text, images=said.images))
        finally:
            self._turns.pop(turn, None)

    def _store_picture(self, data: bytes, what: str) -> events.Image:
        return store_picture(self.link, self.folder, data, what)

    async def _run_turn(self, turn: TurnId, command: events.Say | events.Continue) -> Json:
        self.updates.ours.add(turn)
        try:
            end = await self.submit(command, events.TurnEnded, events.TurnFailed, events.TurnInterrupted, turn=turn)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_S):
                await self._interrupt(turn)
            raise
        match end:
            case events.TurnFailed(at_limit=True):
                return {"stopReason": "max_turn_requests"}
            case events.TurnFailed(error=error, temporary=temporary):
                raise RpcError(INTERNAL, f"{error}{' (try again later)' if temporary else ''}")
            case events.TurnInterrupted():
                return {"stopReason": "cancelled"}
            case _:
                return {"stopReason": _STOP_REASONS[self.updates.finish]}

    async def cancel(self) -> None:
        """Stop every running prompt."""
        for turn in list(self._turns):
            self._turns[turn] = True
            await self._interrupt(turn)

    async def _interrupt(self, turn: TurnId) -> None:
        try:
            await self.link.submit(events.Interrupt(target=turn))
        except (CommandRefused, OwnerGone) as refusal:
            logger.info("%s: %s", self.id, refusal)

    async def _stop_turns(self) -> None:
        with anyio.move_on_after(_STOP_S, shield=True):
            await self.cancel()
            for waiter in tuple(self._waiters):
                await waiter.done.wait()

    # Settings

    async def set_mode(self, mode: str) -> None:
        """Change the mode; `plan` locks the plan. Raises RpcError."""
        plan = self.updates.plan
        if mode == "plan":
            change = events.Configure(plan=replace(plan, locked=True, state="planning"))
        elif mode in get_args(events.Mode):
            agreed = replace(plan, locked=False, state="executing") if plan.locked else None
            change = events.Configure(mode=cast("events.Mode", mode), plan=agreed)
        else:
            raise RpcError(INVALID_PARAMS, f"no mode {mode!r}; choose {', '.join((*get_args(events.Mode), 'plan'))}")
        await self.change(change)

    def options_for(self, mode: str) -> Options | None:
        """Return options to reopen the session if this mode mounts its files differently; None if it does not."""
        now = self.updates.mode
        known = mode in get_args(events.Mode)
        if mode == now or "read-only" not in (mode, now) or not known or not isinstance(self.link, LiveSession):
            return None
        if self._turns:
            raise RpcError(INVALID_PARAMS, f"a turn is running; stop it, then choose {mode}")
        # The log has the current model; other flags stay as given.
        return replace(self._options, mode=mode, model=None, git_checkpoints=None, notices=())

    async def change(self, change: events.Configure | events.Rename) -> None:
        """Change a setting and wait until it is in effect. Raises CommandRefused, RpcError."""
        with anyio.move_on_after(_CHANGE_S) as waiting:
            await self.submit(change, events.SessionChanged)
        if waiting.cancelled_caught:
            raise RpcError(INTERNAL, f"the change was not confirmed within {_CHANGE_S:.0f} s; try again")

    def modes(self) -> Json:
        return {
            "currentModeId": self.updates.mode_id,
            "availableModes": [{"id": id_, "name": id_, "description": words} for id_, words in (*MODES, _PLAN)],
        }

    def config_options(self) -> list[Json]:
        model = self.updates.model
        known = {model: "", **dict(self._models)}
        modes = [{"value": id_, "name": id_, "description": words} for id_, words in (*MODES, _PLAN)]
        models = [
            {"value": name, "name": name, **({"description": words} if words else {})}
            for name, words in known.items()
            if name
        ]
        select = {"type": "select"}
        found: list[Json] = [
            {"id": "mode", "name": "Mode", "category": "mode", **select, "currentValue": self.updates.mode_id}
            | {"options": modes, "description": "What the agent may do without asking you."}
        ]
        if models:
            found.append(
                {"id": "model", "name": "Model", "category": "model", **select, "currentValue": model}
                | {"options": models}
            )
        return found

    def state(self) -> dict[str, Json]:
        """Return the settings for an answer that opens the session. No `models`: some editors refuse unknown fields."""
        self._options_sent = self.config_options()
        return {"modes": self.modes(), "configOptions": self._options_sent}
