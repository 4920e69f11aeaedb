"""Stand-ins for the world around the engine, and a session of it that lives for one test.

`EchoRunner` echoes cells and really calls tools, behind the real registry and the real policy.
`Life` is one owner of a log: open it again on the same log and a process has been restarted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import anyio
import msgspec

from pinfold.engine import (
    Breaker,
    Budget,
    CommandRefused,
    ContextLimits,
    Core,
    Engine,
    Hook,
    Hooks,
    Model,
    OnCall,
    OnOutput,
    Performed,
    PolicyContext,
    Rewound,
    fold,
)
from pinfold.events import (
    Action,
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalRequested,
    Ask,
    BlobId,
    Call,
    CallTool,
    Command,
    Delta,
    Effect,
    Entry,
    Event,
    Mode,
    ModelReplied,
    Redo,
    Reply,
    RequestFailed,
    RunCell,
    Say,
    SessionId,
    SessionOpened,
    ToolSchema,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    Undo,
    Verdict,
    decode_object,
    encode,
    parse_json,
)
from pinfold.log import Log
from pinfold.model import KeptCall, KeptReply, ScriptedModel
from pinfold.policy import Facts, judge
from pinfold.tools import Registry, ToolFailed, as_tool

SESSION = SessionId("s_test")
TURN = TurnId("t1")
PATIENCE_S = 60.0
"""No test waits longer than this for anything."""
E = TypeVar("E", bound=Event)


def at_noon() -> datetime:
    return datetime(2026, 1, 2, 12, tzinfo=UTC)


def memory_log() -> Log:
    return Log(None, SESSION, clock=at_noon)


def says(text: str = "", *calls: KeptCall, **more: Any) -> KeptReply:
    return KeptReply(text=text, calls=calls, **more)


def calls(tool: str, **args: Any) -> KeptCall:
    return KeptCall(tool=tool, args=args)


def cell(code: str) -> KeptCall:
    return calls("python", code=code)


@dataclass(kw_only=True)
class EchoRunner:
    """A cell's observation is its own code; a tool is called for real. Remembers what it began, in order.

    A line `call TOOL {ARGS}` in a cell is a call the cell makes.
    """

    tools: Sequence[Callable[..., Any]] = ()
    mode: Mode = "auto"
    granted: frozenset[str] = frozenset()
    always: frozenset[str] = frozenset()
    """Patterns that are granted to all sessions."""
    shown: Callable[[Action], str] | None = None
    before: Callable[[ActionId, Action, OnOutput], Awaitable[None]] | None = None
    """Awaited inside each `perform`, before its effect."""
    began: list[Action] = field(default_factory=list[Action])
    cells: list[int | None] = field(default_factory=list[int | None])
    """Their numbers."""
    undone: list[int] = field(default_factory=list[int])
    files: str = ""
    """What a glance shows."""
    variables: str = ""
    hints: dict[str, str] = field(default_factory=dict[str, str])
    """What is told of tools with a message."""
    is_exposed: bool = False
    pictures: dict[BlobId, bytes] = field(default_factory=dict[BlobId, bytes])
    got: list[Performed] = field(default_factory=list[Performed])
    """What cells got for their calls."""

    def __post_init__(self) -> None:
        self.registry = Registry(map(as_tool, self.tools))

    def schemas(self) -> tuple[ToolSchema, ...]:
        return self.registry.schemas()

    def action(self, call: Call) -> Action:
        return self.registry.action(call.tool, call.args)

    def effect(self, action: Action) -> Effect:
        tool = self.registry.get(action.tool) if isinstance(action, CallTool) else None
        return tool.effect if tool else "once"

    def parallel_safe(self, action: Action) -> bool:
        tool = self.registry.get(action.tool) if isinstance(action, CallTool) else None
        return tool is not None and tool.parallel_safe

    def counts_as_cell(self, action: Action) -> bool:
        return isinstance(action, RunCell)

    def judge(self, action: Action, given: PolicyContext) -> Verdict:
        if isinstance(action, CallTool) and action.tool == "ask_user":
            return Ask(reason=action.args["question"], question=True, options=("yes", "no"))
        effect = self.effect(action)
        handed = isinstance(action, CallTool) and action.tool in self.granted
        reach = "nothing" if effect == "pure" else "outside"
        facts = Facts(effect=effect, reach=reach, handed=handed)
        mode = "read-only" if given.mode == "read-only" else self.mode
        return judge(action, facts, mode=mode, grants=given.grants | self.always)

    async def preview_action(self, action: Action) -> str:
        return self.shown(action) if self.shown else ""

    def freeze_session(self, action: Action, given: PolicyContext) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        return nullcontext()

    async def grant(self, pattern: str) -> None:
        self.always |= {pattern}

    @property
    def grants_at(self) -> str:
        return "grants"

    def picture(self, blob: BlobId) -> bytes | None:
        return self.pictures.get(blob)

    async def summarize_files(self) -> str:
        return self.files

    async def describe_state(self, about: str) -> str:
        return f"{self.files} of {about}"

    def hint(self, text: str) -> str:
        return self.hints.get(text, "")

    def inventory(self) -> str:
        return self.variables

    async def undo_cell(self, cell: int) -> tuple[str, ...] | None:
        """Nothing is ever missing here."""
        del cell
        return None

    async def rewind(self, command: Undo | Redo) -> Rewound:
        """Goes back by one cell, or forth by one; before the first there is nothing."""
        ran = [number for number in self.cells if number is not None]
        if isinstance(command, Redo):
            back = self.undone.pop()
            return Rewound(to=back, redone=(back,))
        there = [number for number in ran if number not in self.undone]
        if not there:
            raise CommandRefused("there is no cell to undo")
        if command.to is not None:
            gone = tuple(number for number in there if number > command.to)
            self.undone += gone
            return Rewound(to=command.to, undone=gone)
        self.undone.append(there[-1])
        return Rewound(to=there[-2] if len(there) > 1 else 0, undone=(there[-1],), notices=("Files stay.",))

    async def perform(
        self,
        id: ActionId,
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
        *,
        read_only: bool = False,  # noqa: ARG002
    ) -> Performed:
        self.began.append(action)
        self.cells.append(cell)
        if self.before:
            await self.before(id, action, on_output)
        if isinstance(action, RunCell):
            on_output("stdout", action.code)
            for line in action.code.splitlines():
                if line.startswith("call "):
                    _, name, args = line.split(" ", 2)
                    self.got.append(await on_call(name, parse_json(args)))
            return Performed(outcome="ok", observation=action.code)
        try:
            result = await self.registry.call(action.tool, action.args)
            return Performed(outcome="ok", observation=result.text)
        except ToolFailed as failure:
            at_fault = action.tool if failure.at_fault else None
            return Performed(outcome="error", observation=str(failure), at_fault=at_fault)


class BusyModel:
    """Fails each call with the next failure, then answers `done` for ever."""

    name = "busy"

    def __init__(self, *failures: RequestFailed) -> None:
        self.failures = list(failures)
        self.requests = 0

    async def stream(self, request: object) -> AsyncGenerator[str | Reply]:  # noqa: ARG002
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        yield Reply(text="done")


class StallingModel:
    """Never answers the first requests, then answers `done` for ever."""

    name = "stalling"

    def __init__(self, stalls: int = 1) -> None:
        self.stalls = stalls

    async def stream(self, request: object) -> AsyncGenerator[str | Reply]:  # noqa: ARG002
        self.stalls -= 1
        if self.stalls >= 0:
            await anyio.sleep_forever()
        yield Reply(text="done")


@dataclass(kw_only=True)
class Life:
    """One owner of a session, serving commands."""

    log: Log
    core: Core
    engine: Engine

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.log.read()]

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def submit(self, command: Command) -> None:
        await self.engine.submit(command)

    async def seen(self, wanted: Callable[[Event | Delta], bool], after: int = 0) -> Event | Delta:
        """The first event after `after` that is wanted, waited for if need be."""
        with anyio.fail_after(PATIENCE_S):
            async with self.log.subscribe(after) as feed:
                async for item in feed:
                    event = item.event if isinstance(item, Entry) else item
                    if wanted(event):
                        return event
        raise AssertionError("the log was closed")

    async def ended(self, turn: TurnId = TURN, after: int = 0) -> Event | Delta:
        return await self.seen(lambda event: is_end(event) and getattr(event, "turn", "") == turn, after)

    async def say(self, text: str = "go", turn: TurnId = TURN) -> Event | Delta:
        """Submit it and wait for the turn's end."""
        await self.submit(Say(turn=turn, text=text))
        return await self.ended(turn)

    async def asked(self) -> ApprovalRequested:
        event = await self.seen(lambda event: isinstance(event, ApprovalRequested))
        assert isinstance(event, ApprovalRequested)
        return event


def is_end(event: Event | Delta) -> bool:
    return isinstance(event, TurnEnded | TurnFailed | TurnInterrupted)


@asynccontextmanager
async def life(
    script: Sequence[KeptReply] | Model = (),
    *,
    runner: EchoRunner | None = None,
    log: Log | None = None,
    hooks: Iterable[Hook] = (),
    hook_bound_s: float = 10.0,
    budget: Budget | None = None,
    context: ContextLimits | None = None,
    escalate: Model | None = None,
    breaker: Breaker | None = None,
    unattended: bool = True,
) -> AsyncGenerator[Life]:
    """Open the session as the app does: fold the log, record the opening, recover, serve."""
    log = log or memory_log()
    entries = list(log.read())
    served = [entry.event.request_id for entry in entries if isinstance(entry.event, ModelReplied)]
    core = Core(
        journal=log,
        model=ScriptedModel(script, served=served) if isinstance(script, Sequence) else script,
        runner=runner or EchoRunner(),
        state=fold(entries),
        hooks=Hooks(hooks, bound_s=hook_bound_s),
        budget=budget or Budget(retry_base_s=0.0),
        context=context or ContextLimits(),
        escalate=escalate,
        breaker=breaker or Breaker(clock=lambda: 0.0),
        unattended=unattended,
        clock=at_noon,
        destination=lambda _: "",
    )
    engine = Engine(core)
    await core.record(SessionOpened(version="0", workspace="/w", model="scripted", mode="auto", sandbox="echo"))
    await engine.recover()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.serve)
        yield Life(log=log, core=core, engine=engine)
        tasks.cancel_scope.cancel()


def story(events: Iterable[Event]) -> list[Event]:
    """Without openings, with ids in the order they appear, no digests and no durations: fit for comparing whole."""
    names: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("a_"):
            return names.setdefault(value, f"a{len(names) + 1}")
        if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
            return "a digest"
        if isinstance(value, list):
            return [plain(item) for item in cast("list[Any]", value)]
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            return {key: 0.0 if key == "duration_s" else plain(item) for key, item in fields.items()}
        return value

    told = [event for event in events if not isinstance(event, SessionOpened)]
    return [decode_object(plain(parse_json(encode(event)))) for event in told]


def outcomes(events: Iterable[Event]) -> dict[ActionId, list[str]]:
    """For every action that was proposed, how it ended, as often as it did."""
    ends: dict[ActionId, list[str]] = {}
    for event in events:
        match event:
            case ActionProposed(id=id_):
                ends.setdefault(id_, [])
            case ActionFinished(id=id_, outcome=outcome):
                ends.setdefault(id_, []).append(outcome)
            case _:
                pass
    return ends


def copy_of(entries: Iterable[Entry]) -> list[Event]:
    """Equal to the originals and sharing nothing with them, as if read from a disk."""
    return [decode_object(msgspec.json.decode(encode(entry.event))) for entry in entries]
