"""A session that this process owns: opens its log, sandbox, tools and engine, and closes them again."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

import anyio
import anyio.to_thread
import msgspec

from pinfold.app.errors import CheckpointError, ConfigError
from pinfold.app.models.session_models import BreakerStore, NoModel, SpendingLedger, native_form, select_models
from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.app.session.agents import Agents
from pinfold.app.session.build_session import (
    ModelSwitcher,
    build_runner,
    build_spec,
    fill_from_past,
    opened_event,
    past_model,
    report_restored,
    resolve_sandbox,
    start_servers,
)
from pinfold.app.session.caller_tools import set_terms
from pinfold.app.session.checkpoints import Checkpoints
from pinfold.app.session.mcp.server_requests import ServerContext
from pinfold.app.session.options import IMPORTED, Options, SessionStatus, is_imported
from pinfold.app.session.verifier import AnswerVerifier
from pinfold.app.tasks import background
from pinfold.app.trust.secrets import RedactingLog
from pinfold.app.trust.untrusted_files import Writer, notice
from pinfold.engine import Budget, Core, Engine, Hooks, OpenAction, State, fold
from pinfold.events import FLOW, ActionId, BlobId, Entry, Event, Json, Noticed, SessionChanged, SessionId, Usage
from pinfold.log import Damage, Log
from pinfold.model import destination_of
from pinfold.policy import Guards
from pinfold.sandbox import NotSupported, Paged, PageQuery, Variable, VariablePage
from pinfold.text import cap_text, first_line

logger = logging.getLogger(__name__)
Listing: TypeAlias = Literal["variables", "tools", "servers", "grants"]
_WORDS = 120
"""Longest tool description in a listing, in characters."""
CHECK_SAID = 2000
"""Longest recorded output of a check, in characters."""


class LiveSession:
    """A session in its owner process. Front ends need two calls: `submit` and `subscribe`."""

    def __init__(
        self,
        log: Log,
        engine: Engine,
        runner: SandboxActionRunner,
        *,
        switching: ModelSwitcher,
        hooks: Hooks,
        began: int,
    ) -> None:
        self.session = log.session
        self.began = began
        """Number of the last event before this process became the owner."""
        self.log = log
        self._engine = engine
        self._runner = runner
        self._hooks = hooks
        self._watched, self._watched_seq = anyio.Event(), 0
        """Set once the hooks have seen another event; and the number of the last event they saw."""
        self.is_attended = False
        self._asking = 0
        self.servers = runner.servers
        """The MCP servers; None if none are configured."""
        self.submit, self.subscribe = engine.submit, log.subscribe
        self.act = engine.act
        """Perform an action for the user, judged and recorded like any other. Raises CommandRefused, Unavailable."""
        self.act_now = engine.act_now
        """Like `act`, but at once and in the caller's task instead of the queue."""
        self.idle = engine.idle
        """Wait until everything submitted is done."""
        self.set_caller_terms = partial(set_terms, engine.core, runner, switching)
        """Set what the client asks for with its turns, until other terms are set."""
        self.note_outside_text = runner.note_outside_text
        """Mark the session untrusted because outside text is about to enter it by a way other than an action."""
        self.save = runner.save
        """Save the variables to disk, as they are after the last finished cell."""

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
            sandbox=self._runner.provider.name,
            title=core.state.title,
            context=core.window,
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
    def state(self) -> State:
        return self._engine.core.state

    @property
    def is_busy(self) -> bool:
        """True while a turn or a cell runs."""
        return self._engine.is_busy

    @property
    def is_untrusted(self) -> bool:
        """True if the session has read outside text."""
        return self._runner.is_untrusted()

    @property
    def spent(self) -> tuple[Usage, float | None]:
        """Total usage and cost of the session."""
        state = self._engine.core.state
        return state.usage, state.cost

    def set_budget(self, budget: Budget) -> None:
        """Replace the budget, from the next turn on."""
        self._engine.core.budget = budget

    @property
    def is_private(self) -> bool:
        """True if the session may hold private data."""
        return self._runner.is_private

    def share_taint(
        self, is_untrusted: Callable[[], bool], on_untrusted: Callable[[], Awaitable[None]], *, private: bool
    ) -> None:
        """Treat this sub-agent's session as having read what its parent has read, now and later.

        `on_untrusted` is called before the result of an action with outside text is passed on.
        """
        self._runner.judging.is_parent_untrusted = is_untrusted
        self._runner.on_untrusted = on_untrusted
        if private:
            self._runner.privacy.mark_exposed()

    def set_guards(self, guards: Guards) -> None:
        """Replace the code guards, from the next action on."""
        self._runner.judging.guards = guards

    async def query(self, what: Listing) -> Json:
        """Return a listing as plain data for front ends. Raises SandboxUnavailable, ConfigError."""
        match what:
            case "variables":
                return [msgspec.structs.asdict(one) for one in await self.variables()]
            case "tools":
                return [
                    {
                        "name": tool.name,
                        "server": server,
                        "effect": tool.effect,
                        "words": first_line(tool.description, _WORDS),
                    }
                    for server, tools in self._runner.registry.servers.items()
                    for tool in tools
                ]
            case "servers":
                return self.servers.list_status() if self.servers else []
            case "grants":
                judging = self._runner.judging
                scopes = {
                    "session": sorted(self._engine.core.state.granted),
                    "always": sorted(judging.grants.of(self._runner.spec.workspace)),
                    "this run": [f"{FLOW}{to}" for to in (*judging.flows.hosts, *judging.flows.tools)],
                }
                return [{"pattern": one, "scope": scope} for scope, patterns in scopes.items() for one in patterns]
            case _:
                assert_never(what)

    async def blob(self, id_: BlobId) -> bytes:
        """Raises BlobMissing."""
        return await anyio.to_thread.run_sync(self.log.blobs.get, id_)

    async def variables(self) -> tuple[Variable, ...]:
        """Raises SandboxUnavailable."""
        return await (await self._runner.ensure_session()).variables()

    async def variable_page(self, name: str, query: PageQuery) -> VariablePage:
        """Return some rows of a variable, computed in the sandbox once the running cell has ended.

        Raises PageRefused, NotSupported, SandboxUnavailable.
        """
        session = await self._runner.ensure_session()
        if not isinstance(session, Paged):
            raise NotSupported("this sandbox does not show the rows of variables; print them in a cell")
        return await session.variable_page(name, query)

    def attend(self) -> None:
        """Let approvals be answered from now on."""
        self.is_attended = True
        self._engine.core.unattended = False

    @contextmanager
    def allow_asking(self) -> Generator[None]:
        """Let approvals be answered inside this context, in a session that is otherwise unattended."""
        core = self._engine.core
        self._asking += 1
        core.unattended = False
        try:
            yield
        finally:
            self._asking -= 1
            core.unattended = not (self._asking or self.is_attended)
            core.touch()

    async def passes(self, check: str) -> bool:
        """Run and record a check; return True if it exits with 0. Raises SandboxUnavailable, NotSupported."""
        outcome = await self._runner.shell(check)
        said = (outcome.stdout + outcome.stderr).decode("utf-8", "replace").strip()
        how = {"ok": "passed", "timeout": "did not end in time"}.get(outcome.status, f"failed ({outcome.code})")
        text = f"The check `{check}` {how}."
        await self.log.append(Noticed(text=f"{text}\n{cap_text(said, CHECK_SAID)}" if said else text))
        return outcome.status == "ok"

    async def restore(self, number: int) -> str:
        """Restore the workspace's files from a checkpoint; return the result in words. Raises CheckpointError."""
        if self._engine.is_busy:
            raise CheckpointError("a cell or a turn is running; interrupt it, or wait for its end")
        return await self._runner.restore(number)

    async def is_wanted(self) -> bool:
        """Return True if work is left to do, or if there is a subscriber other than the hooks."""
        with anyio.move_on_after(0) as looked:
            await self._engine.idle()
        return looked.cancelled_caught or self.log.subscribers > 1

    async def feed_hooks(self) -> None:
        """Pass every event to the hooks, in order, without delaying the turn."""
        async with self.log.subscribe(self.began) as feed:
            async for item in feed:
                await self._hooks.on_event(item)
                if isinstance(item, Entry):
                    self._watched.set()
                    self._watched, self._watched_seq = anyio.Event(), item.seq

    async def wait_for_hooks(self, seq: int) -> None:
        """Wait until the hooks have seen event `seq`."""
        while self._watched_seq < seq:
            await self._watched.wait()


def load(log: Log, damage: Damage) -> tuple[list[Entry], State]:
    """Read all entries of the log, and fold them into a state."""
    entries = list(log.read(damage=damage))
    return entries, fold(entries)


@asynccontextmanager
async def open_session(folder: Path | None, session: SessionId, options: Options) -> AsyncGenerator[LiveSession]:
    """Open a session whose lock the caller holds, or an ephemeral one if `folder` is None."""
    # Not the shared limiter: tools that hang in its threads must not keep sessions from opening.
    disk = anyio.CapacityLimiter(1)
    log, damage = await anyio.to_thread.run_sync(RedactingLog, folder, session, limiter=disk), Damage()
    ends = AsyncExitStack()
    ends.push_async_callback(log.aclose)
    try:
        entries, state = await anyio.to_thread.run_sync(load, log, damage, limiter=disk)
        if state.opened is None and options.workspace is None:
            why = f"its log was damaged: {damage}" if damage else "it ended before anything was recorded"
            raise ConfigError(f"{session} cannot be resumed by itself: {why}; name its folder with --workspace")
        await anyio.to_thread.run_sync(log.repair, damage, limiter=disk)
        began = log.seq
        imported = folder is not None and is_imported(folder)
        # An imported log must not choose where and how code runs on this machine.
        past = None if imported or state.opened is None else msgspec.structs.replace(state.opened, mode=state.mode)
        options = fill_from_past(options, past, folder)
        resolved = await resolve_sandbox(options, folder, ends)
        spec = build_spec(options, resolved, log)
        asked = select_models(options.model, past_model(past, options), entries, options.calling)
        switching = ModelSwitcher(asked, options)
        ends.push_async_callback(switching.close)
        async with background() as tasks:
            servers, wrong = await start_servers(
                options.toolbox,
                ServerContext(spec=spec, provider=resolved.provider, asked=asked, calling=options.calling, log=log),
                tasks,
            )
            runner, faults = build_runner(options, spec, log, resolved, small=asked.profile == "small", servers=servers)
            switching.runner = runner
            ends.push_async_callback(runner.close)
            tasks.start_soon(runner.egress.serve)  # before the sandbox starts, which waits for its socket
            marked = await _mark_outside_files(runner, session, imported or state.untrusted)
            back = await report_restored(runner, state, entries)
            opened = opened_event(options, runner, switching, imported=imported, untrusted=bool(marked), **back)
            core = _core(options, log, runner, state, switching)
            if spec.writable:
                runner.checkpoints = Checkpoints(log, entries, lambda: core.state, runner.ensure_session, spec.limits)
            del entries
            engine = Engine(core)
            await core.record(
                opened,
                *_opening_events(options, (*resolved.notices, *marked, *asked.notices, *wrong, *faults), damage, state),
            )
            await engine.recover()
            if folder is not None and imported:
                (folder / IMPORTED).unlink(missing_ok=True)
            live = LiveSession(log, engine, runner, switching=switching, hooks=options.hooks, began=began)
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


async def _mark_outside_files(runner: SandboxActionRunner, session: SessionId, untrusted: bool) -> tuple[str, ...]:
    """Return a notice of files that hold outside text. If there are any, files the session writes are marked too."""
    runner.writer = Writer(session, runner.spec.writable_places, runner.spec.places)
    found = await anyio.to_thread.run_sync(runner.writer.find_marked)
    if found or untrusted:
        await anyio.to_thread.run_sync(runner.writer.turn_untrusted)
    return (notice(found, runner.spec.workspace),) if found else ()


def _core(options: Options, log: Log, runner: SandboxActionRunner, state: State, switching: ModelSwitcher) -> Core:
    asked = switching.asked
    core = Core(
        journal=log,
        model=asked.model,
        runner=runner,
        fallbacks=asked.fallbacks,
        escalate=asked.escalate,
        ledger=SpendingLedger(),
        state=state,
        hooks=options.hooks,
        budget=options.budget,
        context=options.context,
        settings={**options.settings, **native_form(asked, options.calling, options.answer_schema)},
        breaker=BreakerStore().breaker(),
        choose=switching.choose,
        destination=partial(destination_of, access=options.calling.access()),
        unattended=options.unattended,
        form=options.form,
    )
    runner.state = lambda: core.state
    if not options.is_child:
        agents = Agents(runner=runner, options=options, core=core, open_child=open_session)
        runner.start_agents = agents.start
        core.verifier = AnswerVerifier(agents=agents, how=options.verify) if options.verify else None
    return core


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
