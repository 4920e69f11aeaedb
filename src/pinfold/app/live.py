"""A session this process owns: log, engine, sandbox and tools put together, and taken apart again."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio

from pinfold import __version__
from pinfold.app.errors import ConfigError
from pinfold.app.hands import SandboxAndTools
from pinfold.app.prompt import system_prompt
from pinfold.app.tasks import background
from pinfold.engine import Budget, Core, Engine, Hooks, Model, OpenAction, State, fold
from pinfold.events import (
    ActionId,
    Command,
    Entry,
    Event,
    Mode,
    ModelFailed,
    ModelReplied,
    Noticed,
    PinfoldError,
    SessionChanged,
    SessionId,
    SessionOpened,
    TurnId,
)
from pinfold.log import Damage, Log, Subscription
from pinfold.model import ModelError, full_name, model_named
from pinfold.sandbox import Auto, Limits, Provider, Spec, provider_named
from pinfold.tools import Registry, as_tool

logger = logging.getLogger(__name__)
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
    cell_s: float = 120.0
    budget: Budget = field(default_factory=Budget)
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tools: tuple[Callable[..., Any], ...] = ()
    hooks: Hooks = field(default_factory=Hooks)
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


class NoModel:
    """Stands where a model would: in sessions that only run the user's own cells, or whose model is gone."""

    def __init__(self, name: str, problem: PinfoldError) -> None:
        self.name = name
        self.problem = problem

    def stream(self, request: object) -> AsyncIterator[Any]:  # noqa: ARG002
        raise self.problem


class LiveSession:
    """Front ends have two calls: `submit` and `subscribe`."""

    def __init__(self, log: Log, engine: Engine, hooks: Hooks, began: int) -> None:
        self.session = log.session
        self.began = began
        """The last event before this process became the owner."""
        self.log = log
        self._engine = engine
        self._hooks = hooks
        self._watched = anyio.Event()
        self._watched_seq = 0

    async def submit(self, command: Command) -> None:
        await self._engine.submit(command)

    def subscribe(self, after: int = 0) -> Subscription:
        return self.log.subscribe(after)

    async def standing(self) -> Standing:
        return self.standing_after(self.began)

    def standing_after(self, seq: int) -> Standing:
        core = self._engine.core
        no_model = str(core.model.problem) if isinstance(core.model, NoModel) else None
        if core.state.last is None:
            return Standing(seq=seq, no_model=no_model)
        last = core.state.last
        return Standing(seq=seq, turn=last.id, end=last.end or "open", no_model=no_model)

    def asking(self) -> Mapping[ActionId, OpenAction]:
        """Actions that wait for a decision."""
        waiting = self._engine.core.state.open
        return {id_: item for id_, item in waiting.items() if item.stage == "asking"}

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
                    self._watched.set()
                    self._watched = anyio.Event()

    async def watched(self, seq: int) -> None:
        """Wait until the hooks have seen event `seq`."""
        while self._watched_seq < seq:
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
    log = Log(folder, session)
    hands: SandboxAndTools | None = None
    try:
        damage = Damage()
        entries, state = load(log, damage)
        if state.opened is None and options.workspace is None:
            why = f"its log was damaged: {damage}" if damage else "it ended before anything was recorded"
            raise ConfigError(f"{session} cannot go on by itself, {why}; name its folder with --workspace")
        log.repair(damage)
        began = log.seq
        imported = folder is not None and is_imported(folder)
        hands, model, opened = await _assembled(options, log, entries, state, imported)
        core = Core(
            journal=log,
            model=model,
            hands=hands,
            state=state,
            hooks=options.hooks,
            budget=options.budget,
            settings=options.settings,
            unattended=options.unattended,
        )
        del entries
        engine = Engine(core)
        await core.record(opened, *_first_words(options, hands, damage, state.title))
        await engine.recover()
        if folder is not None and imported:
            (folder / IMPORTED).unlink(missing_ok=True)
        live = LiveSession(log, engine, options.hooks, began)
        logger.info(
            "%s opened: model %r, mode %s, sandbox %s", session, model.name, opened.mode, opened.sandbox
        )
        if damage:
            logger.error("%s: %s", session, damage)
        async with background() as tasks:
            tasks.start_soon(engine.serve)
            tasks.start_soon(live.watch)
            yield live
    finally:
        with anyio.CancelScope(shield=True):
            if hands:
                await hands.close()
        log.close()
        logger.info("%s closed", session)


def is_imported(folder: Path) -> bool:
    """Its events were written elsewhere and nobody has opened it here yet."""
    return (folder / IMPORTED).exists()


async def _assembled(
    options: Options, log: Log, entries: Iterable[Entry], state: State, imported: bool
) -> tuple[SandboxAndTools, Model, SessionOpened]:
    # A stranger's log does not choose where and how code runs here.
    past = None if imported else state.opened
    workspace = options.workspace or (Path(past.workspace) if past else None)
    if workspace is None or not workspace.is_dir():
        raise ConfigError(f"the workspace {workspace} is gone; name another with --workspace")
    wanted = options.sandbox or (past.sandbox if past else "auto")
    provider = _provider(wanted, options)
    model = _model(options.model, past.model if past else "", entries)
    mode: Mode = options.mode or (past.mode if past else "auto")
    if mode == "read-only" and not provider.capabilities.isolated:
        raise ConfigError(
            f"{provider.name} cannot keep the workspace read-only; choose another mode or sandbox"
        )
    known = {name: Path(path) for name, path in past.data.items()} if past else {}
    data = known if options.data is None else options.data
    if data and isinstance(provider, Auto):
        await provider.resolve()  # where data lies is told to the model first of all
    has = provider.capabilities
    if data and not has.mounts and (has.remote or not has.isolated):
        raise ConfigError(f"{provider.name} cannot mount data; put the files into the workspace")
    tools = [as_tool(tool) for tool in options.tools]
    hands = SandboxAndTools(
        provider=provider,
        spec=Spec(
            workspace=workspace, writable=mode != "read-only", data=data, limits=Limits(cell_s=options.cell_s)
        ),
        registry=Registry(tools),
        granted=frozenset(tool.name for tool in tools),
        mode=mode,
        journal=log,
        blobs=log.blobs,
    )
    opened = SessionOpened(
        version=__version__,
        workspace=str(workspace),
        model=model.name,
        mode=mode,
        # What was asked for, not what came of it: where the session goes on, something else may be had.
        sandbox="auto" if isinstance(provider, Auto) else provider.name,
        prompt=system_prompt(workspace, _shown(data, provider)),
        data={name: str(path) for name, path in data.items()},
        lost=("all Python variables",) if state.cells else (),
        imported=imported,
    )
    return hands, model, opened


def _provider(wanted: str | Provider, options: Options) -> Provider:
    if not isinstance(wanted, str):
        return wanted
    return provider_named(wanted, allow_unmasked=options.allow_unmasked)


def _shown(data: Mapping[str, Path], provider: Provider) -> list[str]:
    """Where code inside finds it."""
    if provider.capabilities.mounts:
        return [f"/mnt/datasets/{name}" for name in data]
    return [str(path) for path in data.values()]


def _model(wanted: str | Model | None, past: str, entries: Iterable[Entry]) -> Model:
    """The model asked for, or BadScript and the like; the one the session had, even if it cannot be had now."""
    if wanted is not None and not isinstance(wanted, str):
        return wanted
    name = full_name(wanted or past)
    if not name:
        return NoModel("", ConfigError("no model is configured; name one with --model"))
    said = (entry.event for entry in entries)
    served = [
        event.request_id
        for event in said
        if isinstance(event, ModelReplied | ModelFailed) and event.model == name
    ]
    try:
        return model_named(name, served)
    except ModelError as error:
        if wanted:
            raise
        return NoModel(name, error)


def _first_words(options: Options, hands: SandboxAndTools, damage: Damage, title: str) -> list[Event]:
    events: list[Event] = []
    if options.title and options.title != title:
        events.append(SessionChanged(title=options.title))
    texts = [*options.notices]
    if hands.provider.notice:
        texts.append(hands.provider.notice)
    if damage:
        kept = "; the damaged file is kept beside it" if damage.unreadable else ""
        texts.append(f"The log was damaged: {damage}. The rest is intact{kept}.")
    return [*events, *(Noticed(text=text) for text in texts)]
