"""Sub-agents: runs each to its end, as a session of its own on a fork of the sandbox.

However a sub-agent ends, its result lists the variables it kept, the files it changed and what it spent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.app.session.agent_tools import (
    AT_ONCE,
    WRAP_UP_AT,
    AgentRun,
    AgentTask,
    budget_of,
    check_model,
    load_definitions,
    read_tasks,
    share_of,
)
from pinfold.app.session.egress import ActionContext, current_action
from pinfold.app.session.observations import inventory
from pinfold.app.session.options import Options
from pinfold.app.trust.project_files import Instruction
from pinfold.app.trust.project_formats import AgentDefinition
from pinfold.engine import Budget, CommandRefused, Core, Model, Performed, Spent
from pinfold.events import (
    ActionId,
    ApprovalRequested,
    CallTool,
    Decide,
    Entry,
    Interrupt,
    ModelReplied,
    PinfoldError,
    Say,
    SessionId,
    TurnEnded,
    TurnFailed,
    TurnInterrupted,
    Usage,
    new_session_id,
    new_turn_id,
    plain_json,
)
from pinfold.sandbox import Capabilities, Forkable, NotSupported, SandboxUnavailable, Session, Spec, UndoRefused
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.tools import BadCall

if TYPE_CHECKING:
    from pinfold.app.session.live_session import LiveSession

logger = logging.getLogger(__name__)
_BEGIN_S = 10.0
_STOP_S = 10.0
_FOLDER = "/tmp/.pinfold-agents"  # noqa: S108 - inside
_BEGIN = "from _pinfold_guest.agents import begin_child as _begin; _begin({!r}, {!r}, {!r}); del _begin"
_TASK = """\
{brief}

[You are the sub-agent {name}: another agent waits for your result. You have its variables and files as they were just \
now; what you change is yours. {files}
{keep}{variables}]"""
_FILES = "The current folder is a view of the workspace; files you change in it go back. Use relative paths."
_NO_FILES = "The workspace is read-only; write to TMPDIR what you need."
_KEEP = 'Set these variables, they go back: {}. keep("name") adds others.\n'
_KEEP_ANY = 'Variables go back if you call keep("name").\n'
_WRAP_UP = """\
You have used most of your budget. Do no more work than it takes to hand over what you have: set and keep the variables, \
write the files, then answer in a few lines what is done and what is not."""


OpenChild: TypeAlias = "Callable[[Path | None, SessionId, Options], AbstractAsyncContextManager[LiveSession]]"


class _Fork(Struct, frozen=True, kw_only=True):
    """The sandbox provider of a sub-agent: it opens only the fork."""

    name: str
    branch: Session
    notice: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self.branch.capabilities

    async def open(self, spec: Spec) -> Session:  # noqa: ARG002
        return self.branch


class _SharedModel:
    """The parent session's model object, which a sub-agent uses but does not close."""

    def __init__(self, model: Model) -> None:
        self.name, self.stream = model.name, model.stream
        self.context = getattr(model, "context", None)


class Agents(Struct, kw_only=True):
    """The sub-agents of one session."""

    runner: SandboxActionRunner
    options: Options
    """Options of the parent session."""
    core: Core
    open_child: OpenChild
    started: int = 0
    merging: anyio.Lock = field(default_factory=anyio.Lock)
    """Sub-agents merge their files one by one: each merge compares with the result of the one before."""

    async def start(self, action: CallTool) -> Performed:
        """Run the tasks of a call, and return the result of each."""
        what = current_action()
        assert what is not None
        try:
            runs = await self.run_all(read_tasks(action.given), what)
        except (BadCall, NotSupported, UndoRefused, ConfigError) as error:
            return Performed(outcome="error", observation=str(error))
        costs = [run.cost for run in runs]
        return Performed(
            outcome="ok",
            observation=plain_json([run.to_record() for run in runs]),
            whole=[run.to_json() for run in runs],
            usage=sum((run.usage for run in runs), Usage()),
            cost=None if None in costs else sum(cost or 0.0 for cost in costs),
            untrusted=any(run.untrusted for run in runs),
        )

    async def take_outside_text(self) -> None:
        """Mark the session and all sub-agents untrusted once one of them reads outside text: they share a sandbox."""
        if not self.runner.is_untrusted():
            await self.runner.note_outside_text()

    async def take_taint(self, live: LiveSession) -> None:
        """Copy a sub-agent's taint to the session, however it ended: what it read may be in the shared sandbox."""
        if live.is_private:
            self.runner.privacy.mark_exposed()
        if live.is_untrusted:
            await self.take_outside_text()

    async def run_all(self, tasks: list[AgentTask], what: ActionContext) -> list[AgentRun]:
        """Run all tasks, AT_ONCE of them at a time. Raises BadCall for an invalid task before any is started."""
        definitions = load_definitions(self.options.toolbox.loaded.obeyed)
        described = [self._find_definition(task, definitions) for task in tasks]
        for task in tasks:
            check_model(task.model, self.core.model.name, self.options.calling)
        # As at the end of a cell: what a model reads from here on must not leave through open connections.
        await self.runner.egress.disconnect_all()
        session = await self.runner.ensure_session()
        if not isinstance(session, Forkable) or not session.capabilities.fork:
            raise NotSupported("sub-agents need a sandbox that can fork a live session, such as namespaces")
        runs: dict[int, AgentRun] = {}
        limiter = anyio.CapacityLimiter(AT_ONCE)
        wrong: list[PinfoldError] = []

        async def run_one(number: int) -> None:
            async with limiter:
                child = _Child(agents=self, task=tasks[number], definition=described[number], what=what)
                try:
                    runs[number] = await child.run(session)
                except (BadCall, NotSupported, UndoRefused) as error:
                    wrong.append(error)

        async with anyio.create_task_group() as group:
            for number in range(len(tasks)):
                group.start_soon(run_one, number)
        if wrong and not runs:
            raise wrong[0]
        refused = AgentRun(name="agent", session="", why=str(wrong[0]) if wrong else "")
        return [runs.get(number, refused) for number in range(len(tasks))]

    @staticmethod
    def _find_definition(task: AgentTask, known: Mapping[str, AgentDefinition]) -> AgentDefinition:
        if not task.agent:
            return AgentDefinition(name="", prompt="")
        if task.agent not in known:
            there = ", ".join(known) or "none; write one in .agents/agents/NAME.md and trust it"
            raise BadCall(f"no sub-agent is called {task.agent!r}; there are: {there}")
        return known[task.agent]

    def child_options(self, task: AgentTask, definition: AgentDefinition, branch: Session) -> Options:
        """Return the options of a sub-agent, with no more rights than the session's own."""
        options, state = self.options, self.runner.state()
        loaded = options.toolbox.loaded
        tools = loaded.config.tools
        if definition.tools is not None:
            names = self.runner.registry.names
            allowed = [name for name in names if any(fnmatchcase(name, wanted) for wanted in definition.tools)]
            tools = replace(tools, enable=tuple(allowed))
        loaded = replace(loaded, config=replace(loaded.config, tools=tools))
        instruction = Instruction(path=f"the sub-agent {definition.name}", text=definition.prompt)
        is_bound = task.read_only or state.plan.locked
        return replace(
            options,
            workspace=self.runner.spec.workspace,
            workspace_inside=getattr(branch, "workspace", ""),
            model=task.model or definition.model or self._own_model(),
            mode="read-only" if is_bound else state.mode,
            sandbox=_Fork(name=self.runner.provider.name, branch=branch),
            title=task.name or definition.name or "agent",
            data=self.runner.spec.data,
            mounts=self.runner.spec.mounts,
            view=None,
            toolbox=replace(options.toolbox, loaded=loaded, starts_servers=False, served=self._server_tools()),
            instructions=(*options.instructions, instruction) if definition.prompt else options.instructions,
            budget=budget_of(task, self.core.budget, state),
            git_checkpoints=None,
            answer_schema=None,
            verify="",
            unattended=False,
            is_child=True,
            notices=(),
        )

    def _own_model(self) -> str | Model:
        is_named = self.options.model is None or isinstance(self.options.model, str)
        return self.core.model.name if is_named else _SharedModel(self.core.model)

    def _server_tools(self) -> tuple[object, ...]:
        names = self.runner.servers.names if self.runner.servers else ()
        return tuple(tool for server in names for tool in self.runner.registry.servers.get(server, ()))


class _Child(Struct, kw_only=True):
    agents: Agents
    task: AgentTask
    definition: AgentDefinition
    what: ActionContext
    stop: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, session: Forkable) -> AgentRun:
        """Run the task on a fork. Raises BadCall, NotSupported, UndoRefused if it cannot begin."""
        agents, task = self.agents, self.task
        agents.started += 1
        name = task.name or self.definition.name or f"agent {agents.started}"
        run = AgentRun(name=name, session=new_session_id(), keep=task.keep)
        run.folder = f"{_FOLDER}/{run.session}"
        async with AsyncExitStack() as ends:
            scratch = TemporaryFolder("views")
            ends.callback(scratch.remove)
            spec = agents.runner.spec
            has_files = spec.writable and not task.read_only and session.capabilities.files_view
            view = scratch.path if has_files else None
            branch = await session.fork(view)
            if isinstance(branch, Forkable):
                ends.callback(branch.release_view)
            ends.push_async_callback(branch.close)
            await self._begin(branch, run)
            await self._drive_to_end(branch, run, has_files)
            await branch.close()
            if view:
                async with agents.merging:
                    await anyio.to_thread.run_sync(self._merge, run, view)
        self.what.on_output("stderr", f"{run.line()}\n")
        return run

    async def _begin(self, branch: Session, run: AgentRun) -> None:
        give = None if self.task.give is None else list(self.task.give)
        code = _BEGIN.format(run.folder, give, list(self.task.keep))
        outcome = await branch.run(code, timeout_s=_BEGIN_S)
        if outcome.status != "ok":
            last = (outcome.error or "").strip().split("\n")[-1]
            raise BadCall(last.removeprefix("NameError: ") or "the fork did not begin")

    async def _drive_to_end(self, branch: Session, run: AgentRun, has_files: bool) -> None:
        """Run the sub-agent. If the caller is cancelled, interrupt it, so that its log says how it ended."""

        async def watch() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                self.stop.set()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            with anyio.CancelScope(shield=True):
                await self._drive(branch, run, has_files)
            group.cancel_scope.cancel()

    async def _drive(self, branch: Session, run: AgentRun, has_files: bool) -> None:
        """Run the sub-agent's session from the brief to its end. Errors are recorded in `run`."""
        agents = self.agents
        folder = agents.runner.log.folder
        place = folder / "agents" / run.session if folder else None
        options = agents.child_options(self.task, self.definition, branch)
        try:
            if place:
                place.mkdir(parents=True, mode=0o700)
            variables = {one.name: one for one in await branch.variables()}
            text = _TASK.format(
                brief=self.task.brief.strip(),
                name=run.name,
                files=_FILES if has_files else _NO_FILES,
                keep=_KEEP.format(", ".join(run.keep)) if run.keep else _KEEP_ANY,
                variables=inventory(variables),
            )
            async with agents.open_child(place, SessionId(run.session), options) as live:
                live.share_taint(agents.runner.is_untrusted, agents.take_outside_text, private=agents.runner.is_private)
                try:
                    await self._follow(live, run, text, options.budget)
                    await branch.variables()  # raises if the fork's process is gone, whatever the model answered
                except SandboxUnavailable as error:
                    run.status, run.why = "failed", str(error)
                finally:
                    run.usage, run.cost = live.spent
                    run.untrusted = live.is_untrusted
                    await agents.take_taint(live)
        except (PinfoldError, OSError) as error:
            run.why = run.why or str(error)
            logger.info("sub-agent %s: %s", run.session, error)

    async def _follow(self, live: LiveSession, run: AgentRun, text: str, budget: Budget) -> None:
        live.set_budget(share_of(budget, WRAP_UP_AT))
        end = await self._turn(live, run, text)
        if isinstance(end, TurnFailed) and end.at_limit:
            usage, cost = live.spent
            spent = Spent(tokens=usage.total, cost=cost)
            live.set_budget(share_of(budget, 1.0, spent=spent, steps=run.steps, wraps_up=True))
            run.why = end.error
            end = await self._turn(live, run, _WRAP_UP)
            run.status = "partial" if isinstance(end, TurnEnded) else "out_of_budget"
        elif isinstance(end, TurnEnded):
            run.status = "done"
        match end:
            case TurnEnded(text=answer):
                run.answer = answer
            case TurnFailed(error=error) if not run.why:
                run.why = error
            case TurnInterrupted(reason=reason):
                run.status, run.why = "failed", reason
            case _:
                pass

    async def _turn(
        self, live: LiveSession, run: AgentRun, text: str
    ) -> TurnEnded | TurnFailed | TurnInterrupted | None:
        say = Say(turn=new_turn_id(), text=text)
        async with live.subscribe(0) as feed, anyio.create_task_group() as asking:
            await live.submit(say)
            asking.start_soon(self._interrupt, live, say)
            async for item in feed:
                match item.event if isinstance(item, Entry) else item:
                    case ModelReplied(turn=say.turn):
                        run.steps += 1
                        self.what.on_output("stderr", f"{run.name}: step {run.steps}, {live.spent[0].total:,} tokens\n")
                    case ApprovalRequested(id=id_):
                        asking.start_soon(self._pass_on_question, live, run.name, id_)
                    case TurnEnded(turn=say.turn) | TurnFailed(turn=say.turn) | TurnInterrupted(turn=say.turn) as end:
                        asking.cancel_scope.cancel()
                        return end
                    case _:
                        pass
        return None

    async def _interrupt(self, live: LiveSession, say: Say) -> None:
        await self.stop.wait()
        with suppress(CommandRefused):
            await live.submit(Interrupt(target=say.turn))

    async def _pass_on_question(self, live: LiveSession, name: str, id_: ActionId) -> None:
        """Ask the user in the parent session, in the name of the sub-agent."""
        waiting = live.pending_approvals().get(id_)
        if waiting is None or waiting.asked is None:
            return
        asked = waiting.asked
        if asked.question:
            question, options = f"The sub-agent {name} asks: {asked.reason}", asked.options
        else:
            question, options = f"The sub-agent {name}: {asked.reason}\n{asked.shows}\nAllow this?", ("yes", "no")
        done = await self.what.ask_user(question, options)
        is_answered = done.outcome == "ok"
        is_yes = is_answered and (asked.question or done.observation.strip().casefold() in ("yes", "y"))
        words = done.observation if is_answered else done.error or "no user can be asked"
        with suppress(CommandRefused):
            await live.submit(
                Decide(
                    id=id_,
                    digest=asked.digest,
                    verdict="allow" if is_yes else "deny",
                    words="" if is_yes and not asked.question else words,
                )
            )

    def _merge(self, run: AgentRun, view: Path) -> None:
        from pinfold.sandbox.views import merge_view

        runner = self.agents.runner
        if run.untrusted and runner.writer:
            runner.writer.turn_untrusted()
        try:
            merged = merge_view(runner.spec.workspace, view)
        except PinfoldError as error:
            run.why = run.why or str(error)
            return
        run.files = [change.path for change in merged.applied]
        run.conflicts = [*merged.conflicts, *(f"{one.path} ({one.why})" for one in merged.left_out)]
