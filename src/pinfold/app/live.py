"""A session this process owns: log, engine, sandbox and tools put together, and taken apart again."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec

from pinfold import __version__
from pinfold.app.checkpoints import Checkpoints
from pinfold.app.coming_back import came_back
from pinfold.app.discreet import DiscreetLog
from pinfold.app.environment import python_for_cells
from pinfold.app.equipping import equipped
from pinfold.app.errors import CheckpointError, ConfigError
from pinfold.app.hands import SandboxAndTools
from pinfold.app.mcp.session import Around, servers_for
from pinfold.app.models import Asked, Calling, NoModel, Pauses, Purse, asked_of
from pinfold.app.mounts import refuse_overlap
from pinfold.app.paths import up_dir
from pinfold.app.prompt import system_prompt
from pinfold.app.tasks import background
from pinfold.app.toolbox import ToolOptions
from pinfold.engine import Budget, Core, Engine, Hooks, Model, OpenAction, Performed, State, fold
from pinfold.events import (
    Action,
    ActionId,
    Command,
    Entry,
    Event,
    Mode,
    Noticed,
    SessionChanged,
    SessionId,
    SessionOpened,
    TurnId,
    new_action_id,
)
from pinfold.log import Damage, Log, Subscription
from pinfold.model import destination_of
from pinfold.policy import Guards
from pinfold.sandbox import Limits, Mount, Provider, Spec, Variable, is_built_in, provider_named
from pinfold.sandbox.auto import Auto
from pinfold.sandbox.folders import Folder
from pinfold.sandbox.warm import look_in
from pinfold.text import capped

if TYPE_CHECKING:
    from pinfold.app.mcp.servers import SessionServers

logger = logging.getLogger(__name__)
CHECK_SAID = 2000
"""Characters of what a check said that are recorded."""
IMPORTED = "imported"
"""Marks a session folder whose log came from elsewhere, until it is first opened here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to open a session. What is None is taken from the session's own past, else from the defaults."""

    workspace: Path | None = None
    model: str | Model | None = None
    mode: Mode | None = None
    sandbox: str | Provider | None = None
    title: str | None = None
    data: Mapping[str, Path] | None = None
    """Read-only mounts by name."""
    allow_unmasked: bool = False
    """A sandbox that cannot hide the workspace's secrets may show them."""
    packages: tuple[str, ...] = ()
    """What the environment of the cells has beyond the usual."""
    make_environment: bool = False
    """Build it if it is missing, rather than go on without and say so."""
    python: str = ""
    """Runs the cells instead of an environment's."""
    limits: Limits = field(default_factory=Limits)
    mounts: tuple[Mount, ...] | None = None
    budget: Budget = field(default_factory=Budget)
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    calling: Calling = field(default_factory=Calling)
    """How models are called."""
    view: Path | None = None
    """Where what it changes in the workspace goes instead."""
    tools: tuple[Callable[..., Any], ...] = ()
    """What the user hands over in person."""
    toolbox: ToolOptions = field(default_factory=ToolOptions)
    hooks: Hooks = field(default_factory=Hooks)
    git_checkpoints: bool | None = None
    unattended: bool = True
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a session stands, for a front end that joins it."""

    seq: int
    """Subscribe after this to see what is new."""
    turn: TurnId | None = None
    """The last turn, if there was one."""
    end: Literal["open", "ended", "interrupted", "failed"] | None = None
    """How it ended; `open` while it runs or if it was cut off."""
    no_model: str | None = None
    """Why a turn could not be had, if so."""
    workspace: str = ""
    data: dict[str, str] = field(default_factory=dict[str, str])
    mounts: dict[str, bool] = field(default_factory=dict[str, bool])


class LiveSession:
    """Front ends have two calls: `submit` and `subscribe`."""

    def __init__(self, log: Log, engine: Engine, hands: SandboxAndTools, hooks: Hooks, began: int) -> None:
        self.session = log.session
        self.began = began
        """The last event before this process became the owner."""
        self.log = log
        self._engine = engine
        self._hands = hands
        self._hooks = hooks
        self._watched: anyio.Event | None = None
        """Once somebody waits."""
        self._watched_seq = 0
        self._attending = 0

    async def submit(self, command: Command) -> None:
        await self._engine.submit(command)

    def subscribe(self, after: int = 0) -> Subscription:
        return self.log.subscribe(after)

    async def standing(self) -> Standing:
        return self.standing_after(self.began)

    def standing_after(self, seq: int) -> Standing:
        core = self._engine.core
        no_model = str(core.model.problem) if isinstance(core.model, NoModel) else None
        opened, last = core.state.opened, core.state.last
        return Standing(
            seq=seq,
            turn=last.id if last else None,
            end=(last.end or "open") if last else None,
            no_model=no_model,
            workspace=opened.workspace if opened else "",
            data=opened.data if opened else {},
            mounts=opened.mounts if opened else {},
        )

    def asking(self) -> Mapping[ActionId, OpenAction]:
        """Actions that wait for a decision."""
        waiting = self._engine.core.state.open
        return {id_: item for id_, item in waiting.items() if item.stage == "asking"}

    def set_guards(self, guards: Guards) -> None:
        """From the next action on."""
        self._hands.judging.guards = guards

    async def act(self, action: Action) -> Performed:
        """Do something on the user's own behalf, on record and judged as any action. Raises CommandRefused, Unavailable."""
        return await self._engine.act(new_action_id(), action)

    async def act_beside(self, action: Action) -> Performed:
        """As `act`, in this task and without waiting for its turn."""
        return await self._engine.act_beside(new_action_id(), action)

    @property
    def servers(self) -> SessionServers | None:
        """Of MCP; None where none is named."""
        return self._hands.servers

    async def variables(self) -> tuple[Variable, ...]:
        """Raises SandboxUnavailable."""
        return await (await self._hands.started()).variables()

    @contextmanager
    def attended(self) -> Generator[None]:
        """Meanwhile there is somebody to ask, of a session that else has nobody."""
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
        how = {"ok": "passed", "timeout": "did not end in time"}.get(
            outcome.status, f"failed ({outcome.code})"
        )
        text = f"The check `{check}` {how}."
        await self.log.append(Noticed(text=f"{text}\n{capped(said, CHECK_SAID)}" if said else text))
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

    async def watch(self) -> None:
        """Show every event to the hooks, in order, outside the turn's way."""
        async with self.log.subscribe(self.began) as feed:
            async for item in feed:
                await self._hooks.on_event(item)
                if isinstance(item, Entry):
                    self._watched_seq = item.seq
                    if self._watched is not None:
                        self._watched.set()
                        self._watched = None

    async def watched(self, seq: int) -> None:
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
async def own(folder: Path | None, session: SessionId, options: Options) -> AsyncGenerator[LiveSession]:
    """Open a session whose lock is held, or an ephemeral one when there is no folder."""
    log = DiscreetLog(folder, session)
    hands: SandboxAndTools | None = None
    ground: _Ground | None = None
    asked: Asked | None = None
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
        past = None if imported or state.opened is None else _as_it_was(state.opened, state.mode)
        ground = await _ground(options, past, folder)
        asked = asked_of(options.model, past.model if past else "", entries, options.calling)
        async with background() as tasks:
            servers, wrong = await servers_for(
                options.toolbox, _around(options, log, past, ground, asked), tasks
            )
            hands, opened, faults = _assembled(options, log, past, ground, asked, servers=servers)
            tasks.start_soon(hands.way.serve)  # before the sandbox, which is given it, comes back
            back = await came_back(hands, state, entries)
            opened = msgspec.structs.replace(opened, imported=imported, **back)
            core = _core(options, log, hands, asked, state)
            if hands.spec.writable:
                hands.checkpoints = Checkpoints(session, log, entries, lambda: core.state)
            del entries
            engine = Engine(core)
            await core.record(
                opened, *_first_words(options, (*ground.notices, *wrong, *faults), damage, state)
            )
            await engine.recover()
            if folder is not None and imported:
                (folder / IMPORTED).unlink(missing_ok=True)
            live = LiveSession(log, engine, hands, options.hooks, began)
            logger.info(
                "%s opened: model %r, mode %s, sandbox %s", session, opened.model, opened.mode, opened.sandbox
            )
            if damage:
                logger.error("%s: %s", session, damage)
            tasks.start_soon(engine.serve)
            tasks.start_soon(live.watch)
            yield live
    finally:
        with anyio.CancelScope(shield=True):
            if hands:
                await hands.close()
            if asked:
                await asked.close()
            if ground and ground.scratch:
                ground.scratch.remove()
        log.close()
        logger.info("%s closed", session)


def _core(options: Options, log: Log, hands: SandboxAndTools, asked: Asked, state: State) -> Core:
    return Core(
        journal=log,
        model=asked.model,
        hands=hands,
        fallbacks=asked.fallbacks,
        escalate=asked.escalate,
        ledger=Purse(),
        state=state,
        hooks=options.hooks,
        budget=options.budget,
        settings=options.settings,
        breaker=Pauses().breaker(asked),
        destination=partial(destination_of, access=options.calling.access()),
        unattended=options.unattended,
    )


def _as_it_was(opened: SessionOpened, mode: Mode) -> SessionOpened:
    return msgspec.structs.replace(opened, mode=mode)


def is_imported(folder: Path) -> bool:
    """Its events were written elsewhere and nobody has opened it here yet."""
    return (folder / IMPORTED).exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What cells run on."""

    provider: Provider
    python: Path | None = None
    """None where only the provider knows."""
    site: Path | None = None
    """Where packages are installed for this session alone."""
    notices: tuple[str, ...] = ()
    scratch: Folder | None = None
    """Goes with a session that leaves nothing behind."""


async def _ground(options: Options, past: SessionOpened | None, folder: Path | None) -> _Ground:
    look_in(up_dir())
    wanted = options.sandbox or (past.sandbox if past else "auto")
    if not isinstance(wanted, str) or not is_built_in(wanted):
        provider = provider_named(wanted) if isinstance(wanted, str) else wanted
        return _Ground(provider=provider, notices=(provider.notice,) if provider.notice else ())
    cells = await python_for_cells(options.packages, options.python, make=options.make_environment)
    provider = provider_named(wanted, python=cells.python, allow_unmasked=options.allow_unmasked)
    if isinstance(provider, Auto) and _has_mounts(options, past):
        await provider.resolve()  # where they are is told to the model first of all
    notices = tuple(filter(None, (provider.notice, cells.notice)))
    if not provider.capabilities.site:
        return _Ground(provider=provider, python=cells.python, notices=notices)
    if folder:
        return _Ground(provider=provider, python=cells.python, site=folder / "site", notices=notices)
    scratch = Folder("site")
    return _Ground(
        provider=provider, python=cells.python, site=scratch.path, notices=notices, scratch=scratch
    )


def _has_mounts(options: Options, past: SessionOpened | None) -> bool:
    data = options.data if options.data is not None else past and past.data
    mounts = options.mounts if options.mounts is not None else past and past.mounts
    return bool(data or mounts)


def _around(options: Options, log: Log, past: SessionOpened | None, ground: _Ground, asked: Asked) -> Around:
    return Around(
        workspace=_workspace(options, past),
        provider=ground.provider,
        limits=options.limits,
        asked=asked,
        calling=options.calling,
        journal=log,
    )


def _workspace(options: Options, past: SessionOpened | None) -> Path:
    workspace = options.workspace or (Path(past.workspace) if past else None)
    if workspace is None or not workspace.is_dir():
        raise ConfigError(f"the workspace {workspace} is gone; name another with --workspace")
    return workspace


def _assembled(
    options: Options,
    log: Log,
    past: SessionOpened | None,
    ground: _Ground,
    asked: Asked,
    *,
    servers: SessionServers | None,
) -> tuple[SandboxAndTools, SessionOpened, tuple[str, ...]]:
    """With a line for each tool that could not be had."""
    provider = ground.provider
    workspace = _workspace(options, past)
    mode: Mode = options.mode or (past.mode if past else "auto")
    if mode == "read-only" and not provider.capabilities.isolated:
        raise ConfigError(
            f"{provider.name} cannot keep the workspace read-only; choose another mode or sandbox"
        )
    known = {name: Path(path) for name, path in past.data.items()} if past else {}
    data = known if options.data is None else options.data
    has = provider.capabilities
    if data and not has.mounts and (has.remote or not has.isolated):
        raise ConfigError(f"{provider.name} cannot mount data; put the files into the workspace")
    mounts = _mounts(options, past, provider, workspace)
    allowed = tuple(replace(mount, writable=mount.writable and mode != "read-only") for mount in mounts)
    spec = Spec(
        workspace=workspace,
        writable=mode != "read-only",
        data=data,
        mounts=allowed,
        limits=options.limits,
        site=ground.site,
        view=options.view,
        state=log.folder / "state" if log.folder else None,
    )
    hands, faults = equipped(
        options.toolbox,
        options.tools,
        spec,
        log,
        provider=provider,
        python=ground.python,
        small=asked.profile == "small",
        servers=servers,
    )
    opened = SessionOpened(
        version=__version__,
        workspace=str(workspace),
        model=asked.model.name,
        mode=mode,
        # What was asked for, not what came of it: where the session goes on, something else may be had.
        sandbox="auto" if isinstance(provider, Auto) else provider.name,
        prompt=system_prompt(
            workspace, _shown(data, provider), allowed, asked.profile, hands.registry.catalogue()
        ),
        data={name: str(path) for name, path in data.items()},
        mounts={str(mount.path): mount.writable for mount in mounts},
    )
    return hands, opened, faults


def _shown(data: Mapping[str, Path], provider: Provider) -> list[str]:
    """Where code inside finds it."""
    if provider.capabilities.mounts:
        return [f"/mnt/datasets/{name}" for name in data]
    return [str(path) for path in data.values()]


def _mounts(
    options: Options, past: SessionOpened | None, provider: Provider, workspace: Path
) -> tuple[Mount, ...]:
    """Those asked for now, else those the session had."""
    mounts = options.mounts
    if mounts is None:
        had = past.mounts if past else {}
        mounts = tuple(Mount(path=Path(path), writable=writable) for path, writable in had.items())
    can = provider.capabilities
    if mounts and not (can.mounts or (can.isolated and not can.remote)):
        raise ConfigError(
            f"{provider.name} cannot keep to what is mounted; leave --mount out or choose another sandbox"
        )
    refuse_overlap(mounts, workspace)
    return mounts


def _first_words(options: Options, texts: tuple[str, ...], damage: Damage, state: State) -> list[Event]:
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
