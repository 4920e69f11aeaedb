"""A session this process owns: log, engine, sandbox and tools put together, and taken apart again."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec

from pinfold.app.errors import CheckpointError, ConfigError
from pinfold.app.models.session_models import BreakerStore, NoModel, SpendingLedger, native_form, select_models
from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.app.session.build_session import (
    ModelSwitcher,
    build_server_context,
    build_session_parts,
    resolve_sandbox,
    servers_for,
)
from pinfold.app.session.checkpoints import Checkpoints
from pinfold.app.session.options import IMPORTED, Options, SessionStatus, is_imported
from pinfold.app.session.session_queries import Sight, query_session, report_restored
from pinfold.app.tasks import background
from pinfold.app.trust.redacting_log import RedactingLog
from pinfold.app.trust.untrusted_files import Writer, notice
from pinfold.engine import Core, Engine, Hooks, OpenAction, Performed, State, fold
from pinfold.events import (
    Action,
    ActionId,
    BlobId,
    Command,
    Entry,
    Event,
    Json,
    Mode,
    Noticed,
    SessionChanged,
    SessionId,
    SessionOpened,
)
from pinfold.log import Damage, Log, Subscription
from pinfold.model import destination_of
from pinfold.policy import Guards
from pinfold.sandbox import Variable
from pinfold.text import cap_text

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers

logger = logging.getLogger(__name__)
CHECK_SAID = 2000
"""Characters of what a check said that are recorded."""


class LiveSession:
    """Front ends have two calls: `submit` and `subscribe`."""

    def __init__(self, log: Log, engine: Engine, hands: SandboxActionRunner, hooks: Hooks, began: int) -> None:
        self.session = log.session
        self.began = began
        """The last event before this process became the owner."""
        self.log = log
        self._engine = engine
        self._hands = hands
        self._hooks = hooks
        self._watched: anyio.Event | None = None
        """Set once a caller waits."""
        self._watched_seq = 0
        self._attending = 0

    async def submit(self, command: Command) -> None:
        await self._engine.submit(command)

    def subscribe(self, after: int = 0) -> Subscription:
        return self.log.subscribe(after)

    async def status(self) -> SessionStatus:
        return self.status_after(self.began)

    def status_after(self, seq: int) -> SessionStatus:
        core = self._engine.core
        no_model = str(core.model.problem) if isinstance(core.model, NoModel) else None
        opened, last = core.state.opened, core.state.last
        return SessionStatus(
            seq=seq,
            model=core.model.name,
            mode=core.state.mode,
            sandbox=self._hands.provider.name,
            title=core.state.title,
            context=getattr(core.model, "context", None) or 0,
            turn=last.id if last else None,
            end=(last.end or "open") if last else None,
            no_model=no_model,
            workspace=opened.workspace if opened else "",
            data=opened.data if opened else {},
            mounts=opened.mounts if opened else {},
            outside=self.session if core.state.untrusted else "",
        )

    def pending_approvals(self) -> Mapping[ActionId, OpenAction]:
        """Actions that wait for a decision."""
        waiting = self._engine.core.state.open
        return {id_: item for id_, item in waiting.items() if item.stage == "asking"}

    @property
    def is_untrusted(self) -> bool:
        """True if it has read outside text."""
        return self._engine.core.state.untrusted

    def set_guards(self, guards: Guards) -> None:
        """From the next action on."""
        self._hands.judging.guards = guards

    async def act(self, id_: ActionId, action: Action) -> Performed:
        """Do something on the user's own behalf, on record and judged as any action. Raises CommandRefused, Unavailable."""
        return await self._engine.act(id_, action)

    async def act_beside(self, id_: ActionId, action: Action) -> Performed:
        """As `act`, in this task and without waiting for its turn."""
        return await self._engine.act_beside(id_, action)

    @property
    def servers(self) -> SessionServers | None:
        """Of MCP; None where none is named."""
        return self._hands.servers

    async def save(self) -> None:
        """Have its variables on disk, as they are after the last cell that has ended."""
        await self._hands.save()

    async def query(self, what: Sight) -> Json:
        """Raises SandboxUnavailable, ConfigError."""
        return await query_session(self._hands, self._engine.core.state, what)

    async def blob(self, id_: BlobId) -> bytes:
        """Raises BlobMissing."""
        return await anyio.to_thread.run_sync(self.log.blobs.get, id_)

    async def variables(self) -> tuple[Variable, ...]:
        """Raises SandboxUnavailable."""
        return await (await self._hands.ensure_session()).variables()

    @contextmanager
    def allow_asking(self) -> Generator[None]:
        """Approvals can be answered meanwhile, in a session that is otherwise unattended."""
        core = self._engine.core
        self._attending += 1
        core.unattended = False
        try:
            yield
        finally:
            self._attending -= 1
            core.unattended = not self._attending
            core.touch()

    async def passes(self, check: str) -> bool:
        """Run a shell command in the session, on record: whether it ended with 0. Raises SandboxUnavailable, NotSupported."""
        outcome = await self._hands.shell(check)
        said = (outcome.stdout + outcome.stderr).decode("utf-8", "replace").strip()
        how = {"ok": "passed", "timeout": "did not end in time"}.get(outcome.status, f"failed ({outcome.code})")
        text = f"The check `{check}` {how}."
        await self.log.append(Noticed(text=f"{text}\n{cap_text(said, CHECK_SAID)}" if said else text))
        return outcome.status == "ok"

    async def restore(self, number: int) -> str:
        """Bring the workspace's files back to a checkpoint; what came of it, in words. Raises CheckpointError."""
        if self._engine.is_busy:
            raise CheckpointError("a cell or a turn is under way; interrupt it, or wait for its end")
        return str(await self._hands.restore(number))

    async def is_wanted(self) -> bool:
        """Whether anything is left to do, or anyone but the hooks listens."""
        with anyio.move_on_after(0) as looked:
            await self._engine.idle()
        return looked.cancelled_caught or self.log.subscribers > 1

    async def idle(self) -> None:
        """Wait until nothing that was submitted is left to do."""
        await self._engine.idle()

    async def feed_hooks(self) -> None:
        """Show every event to the hooks, in order, outside the turn's way."""
        async with self.log.subscribe(self.began) as feed:
            async for item in feed:
                await self._hooks.on_event(item)
                if isinstance(item, Entry):
                    self._watched_seq = item.seq
                    if self._watched is not None:
                        self._watched.set()
                        self._watched = None

    async def wait_for_hooks(self, seq: int) -> None:
        """Wait until the hooks have seen event `seq`."""
        while self._watched_seq < seq:
            self._watched = self._watched or anyio.Event()
            await self._watched.wait()


def load(log: Log, damage: Damage) -> tuple[list[Entry], State]:
    """Everything that is in the log, and what it amounts to."""
    # All that is made here stays: looking for garbage in between costs a quarter of the time and finds none.
    collecting = gc.isenabled()
    gc.disable()
    try:
        entries = list(log.read(damage=damage))
        return entries, fold(entries)
    finally:
        if collecting:
            gc.enable()


@asynccontextmanager
async def open_session(folder: Path | None, session: SessionId, options: Options) -> AsyncGenerator[LiveSession]:
    """Open a session whose lock is held, or an ephemeral one when there is no folder."""
    log = RedactingLog(folder, session)
    ends = AsyncExitStack()
    ends.callback(log.close)
    try:
        damage = Damage()
        entries, state = load(log, damage)
        if state.opened is None and options.workspace is None:
            why = f"its log was damaged: {damage}" if damage else "it ended before anything was recorded"
            raise ConfigError(f"{session} cannot go on by itself, {why}; name its folder with --workspace")
        log.repair(damage)
        began = log.seq
        imported = folder is not None and is_imported(folder)
        # A stranger's log does not choose where and how code runs here.
        past = None if imported or state.opened is None else _restore_mode(state.opened, state.mode)
        ground = await resolve_sandbox(options, past, folder)
        if ground.scratch:
            ends.callback(ground.scratch.remove)
        asked = select_models(options.model, past.model if past else "", entries, options.calling)
        switching = ModelSwitcher(asked, options.calling)
        ends.push_async_callback(switching.close)
        async with background() as tasks:
            servers, wrong = await servers_for(
                options.toolbox, build_server_context(options, log, past, ground, asked), tasks
            )
            made = build_session_parts(options, log, past, ground, asked, servers=servers)
            switching.made, hands = made, made.hands
            ends.push_async_callback(hands.close)
            tasks.start_soon(hands.way.serve)  # before the sandbox, which is given it, comes back
            marked = await _mark_outside_files(hands, session, imported or state.untrusted)
            back = {**await report_restored(hands, state, entries), "imported": imported, "untrusted": bool(marked)}
            opened = msgspec.structs.replace(made.opened, **back)
            core = _core(options, log, hands, state, switching)
            if hands.spec.writable:
                hands.checkpoints = Checkpoints(session, log, entries, lambda: core.state)
            del entries
            engine = Engine(core)
            await core.record(
                opened,
                *_opening_events(
                    options, (*ground.notices, *marked, *asked.notices, *wrong, *made.faults), damage, state
                ),
            )
            await engine.recover()
            if folder is not None and imported:
                (folder / IMPORTED).unlink(missing_ok=True)
            live = LiveSession(log, engine, hands, options.hooks, began)
            logger.info("%s opened: model %r, mode %s, sandbox %s", session, opened.model, opened.mode, opened.sandbox)
            if damage:
                logger.error("%s: %s", session, damage)
            tasks.start_soon(engine.serve)
            tasks.start_soon(live.feed_hooks)
            yield live
    finally:
        with anyio.CancelScope(shield=True):
            await ends.aclose()
        logger.info("%s closed", session)


async def _mark_outside_files(hands: SandboxActionRunner, session: SessionId, untrusted: bool) -> tuple[str, ...]:
    """A notice of files that hold outside text. Files the session writes are marked once it is untrusted."""
    hands.writer = Writer(session, hands.spec.writable_places, hands.spec.places)
    found = await anyio.to_thread.run_sync(hands.writer.find_marked)
    if found or untrusted:
        await anyio.to_thread.run_sync(hands.writer.turn_untrusted)
    return (notice(found, hands.spec.workspace),) if found else ()


def _core(options: Options, log: Log, hands: SandboxActionRunner, state: State, switching: ModelSwitcher) -> Core:
    asked = switching.asked
    return Core(
        journal=log,
        model=asked.model,
        hands=hands,
        fallbacks=asked.fallbacks,
        escalate=asked.escalate,
        ledger=SpendingLedger(),
        state=state,
        hooks=options.hooks,
        budget=options.budget,
        settings={**options.settings, **native_form(asked, options.calling, options.answer_schema)},
        breaker=BreakerStore().breaker(),
        choose=switching.choose,
        destination=partial(destination_of, access=options.calling.access()),
        unattended=options.unattended,
        form=options.form,
    )


def _restore_mode(opened: SessionOpened, mode: Mode) -> SessionOpened:
    return msgspec.structs.replace(opened, mode=mode)


def _opening_events(options: Options, texts: tuple[str, ...], damage: Damage, state: State) -> list[Event]:
    events: list[Event] = []
    title = options.title or state.title
    wanted = state.checkpoints if options.git_checkpoints is None else options.git_checkpoints
    if title != state.title or wanted != state.checkpoints:
        changed = wanted if wanted != state.checkpoints else None
        events.append(SessionChanged(title=title, checkpoints=changed))
    said = [*options.notices, *texts]
    if damage:
        kept = "; the damaged file is kept beside it" if damage.unreadable else ""
        said.append(f"The log was damaged: {damage}. The rest is intact{kept}.")
    return [*events, *(Noticed(text=text) for text in said)]
