"""Performs the engine's actions: runs cells in the sandbox, calls tools, and applies policy before both."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec.structs import replace

from pinfold.app.config.schema import LimitsConfig
from pinfold.app.errors import ConfigError
from pinfold.app.paths import scratch_of
from pinfold.app.session.action_policy import PROMOTE, ActionPolicy
from pinfold.app.session.agent_tools import START, code_for
from pinfold.app.session.catalogue import ASK, Catalogue
from pinfold.app.session.egress import NETWORK, ActionContext, action_scope, current_action
from pinfold.app.session.observations import (
    NO_NETWORK,
    OBSERVATION,
    add_refusals,
    answer_to_cell,
    cut_result,
    needs_network,
    observation,
    report_failure,
)
from pinfold.app.session.protected_files import apply_edit, find_protected_file
from pinfold.app.session.sandbox_session import SandboxSession
from pinfold.app.trust.secrets import remove_own_secrets
from pinfold.app.trust.untrusted_files import notice
from pinfold.engine import OnCall, OnOutput, Performed, PolicyContext, State
from pinfold.events import Action, ActionId, Ask, BlobId, Call, CallTool, Changed, DisplayRef, Json, Noticed, RunCell
from pinfold.log import LogUnwritable
from pinfold.sandbox import Answer, Freezable, GuardedSession, NotSupported, Outcome
from pinfold.sandbox.providers.auto import Auto
from pinfold.text import cap_text
from pinfold.tools import SHOWN, BadCall, Registry, ToolFailed

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers
    from pinfold.app.session.skill_tools import SessionSkills

logger = logging.getLogger(__name__)
_READING = ("files", "workspace", "protected", "outside", "host")
"""Values of `reach` with which an action may read the user's own files."""
VALUE = 200_000
"""Longest recorded value or error of a cell, in characters."""
_LARGE = 1_000_000
"""Output of this many characters or more is stored in a thread."""


class SandboxActionRunner(SandboxSession, kw_only=True, dict=True):
    registry: Registry
    judging: ActionPolicy
    servers: SessionServers | None = None
    """The MCP servers."""
    catalogue: Catalogue | None = None
    """Contents of the package `servers`, which code imports."""
    skills: SessionSkills | None = None
    output: LimitsConfig = LimitsConfig()
    start_agents: Callable[[CallTool], Awaitable[Performed]] | None = None
    """Runs sub-agents; None if the session cannot have any."""
    state: Callable[[], State] = State
    """Returns the session's state; replaced once the engine's core exists."""
    on_untrusted: Callable[[], Awaitable[None]] | None = None
    """In a sub-agent: tells the parent session that outside text was read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        policy = self.judging
        self.effect, self.judge, self.preview_action = policy.effect, policy.judge, policy.preview_action
        self.schemas, self.counts_as_cell = self.registry.schemas, policy.counts_as_cell
        self._hinted: set[str] = set()
        """Lines on tools that the model has seen."""
        self._used: set[str] = set()
        """Servers that were called."""

    def action(self, call: Call) -> Action:
        action = self.registry.action(call.tool, call.args)
        code = code_for(action.tool, action.given) if isinstance(action, CallTool) else None
        return action if code is None else RunCell(code=code)

    def parallel_safe(self, action: Action) -> bool:
        tool = self.registry.get(action.tool) if isinstance(action, CallTool) else None
        return tool is not None and tool.parallel_safe

    @asynccontextmanager
    async def freeze_session(self, action: Action, given: PolicyContext) -> AsyncGenerator[None]:
        """Freeze the session from the question to the end of a host command: code must not change files it runs."""
        async with AsyncExitStack() as stack:
            if self.judging.is_host_command(action) and isinstance(self.judge(action, given), Ask):
                session = await self.ensure_session()
                if isinstance(session, Freezable):
                    with suppress(NotSupported):  # then only their hashes bind the files it names
                        await stack.enter_async_context(session.freeze())
            yield

    async def grant(self, pattern: str) -> None:
        self.judging.grants.add(pattern, self.spec.workspace)

    @property
    def grants_at(self) -> str:
        # A scratch folder is never a workspace again.
        return str(self.judging.grants.file) if self.spec.workspace.parent != scratch_of("") else ""

    async def perform(
        self,
        id: ActionId,
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
        *,
        read_only: bool = False,
    ) -> Performed:
        is_part = self.egress.is_running
        if self.writer and not is_part:
            self.writer.begin_action()
            await self._check_for_outside_text()
        what = ActionContext(
            on_call=on_call,
            on_output=on_output,
            cell=cell,
            cleared=frozenset(filter(None, [self.judging.destination(action)])),
            wanted=self.egress.wanted,
            # A workspace that cannot be written needs no further protection.
            read_only=read_only and (self.spec.writable or any(one.writable for one in self.spec.mounts)),
        )
        performed = await self._perform_action(id, action, what)
        if not is_part:
            await self._check_for_outside_text()
        if self.judging.has_met_outside_text or self.judging.is_parent_untrusted():
            performed = replace(performed, untrusted=True)
        if self.on_untrusted and performed.untrusted:
            await self.on_untrusted()
        if self.writer and performed.untrusted:
            await anyio.to_thread.run_sync(self.writer.turn_untrusted)
        return performed

    async def _check_for_outside_text(self) -> None:
        """Note outside text that another session wrote into the folder since this one began."""
        if self.writer is None or self.judging.has_met_outside_text or not self.writer.has_news:
            return
        try:
            found = await anyio.to_thread.run_sync(self.writer.find_marked)
        except ConfigError as error:
            said = f"{error}; until that is fixed, this session counts as having read outside text"
        else:
            if not found:
                return
            said = notice(found, self.spec.workspace)
        await self.note_outside_text()
        await self.log.append(Noticed(text=said))

    async def note_outside_text(self) -> None:
        """Mark the session untrusted: for policy at once, in the log when this action ends."""
        self.judging.has_met_outside_text = True
        if self.on_untrusted:
            await self.on_untrusted()
        if self.writer:
            await anyio.to_thread.run_sync(self.writer.turn_untrusted)

    async def _perform_action(self, id_: ActionId, action: Action, what: ActionContext) -> Performed:
        if isinstance(action, CallTool) and action.tool == NETWORK:
            # Whatever comes back through a connection is outside text.
            return Performed(outcome="ok", observation="", untrusted=True)
        if self.start_agents and isinstance(action, CallTool) and action.tool == START:
            with action_scope(what):
                return await self.start_agents(action)
        if self.servers and isinstance(action, CallTool) and self.servers.is_sampling(action):
            return await self.servers.run_sampling(action)
        is_cell = isinstance(action, RunCell)
        reads = is_cell or self.judging.facts(action).reach in _READING
        # Written only before code that may read the modules, because writing takes longer than many cells.
        if self.catalogue and self.spec.servers and reads and (not is_cell or "/mnt" in action.code):
            is_met = self.judging.has_met_outside_text
            await anyio.to_thread.run_sync(self.catalogue.write, self.spec.servers, is_met)
        if self.skills and reads:
            await self.skills.write_files()
        # The connections of a call from a cell are tracked by that cell.
        async with nullcontext() if self.egress.is_running else self._track_egress(what, reads=reads):
            with action_scope(what):
                performed = await (self._run(id_, action, what) if is_cell else self._call(action, what))
        if is_cell:
            performed = add_refusals(performed, what.refused)
        private = reads and self.privacy.holds
        return replace(performed, private=private, sent=(*performed.sent, *what.sent), stopped=what.stopped)

    @asynccontextmanager
    async def _track_egress(self, what: ActionContext, *, reads: bool) -> AsyncGenerator[None]:
        """Close all connections at the end of an action that may have read the user's files, however it ends."""
        if reads and self.privacy.about_to_read():
            await self.egress.disconnect_all()  # they were allowed while the session held no private data

        def must_disconnect() -> bool:
            if reads:
                self.privacy.note_own_files()
            return reads and self.privacy.holds

        async with self.egress.track_action(what, cut=must_disconnect):
            yield

    async def _run(self, id_: ActionId, action: RunCell, what: ActionContext) -> Performed:
        session = await self.ensure_session()
        run = session.run
        if self._lasting:
            what.held = self._lasting.pause_clock
            run = partial(self._lasting.run, cell=what.cell)

        async def answer_call(tool: str, args: Mapping[str, Json]) -> Answer:
            if tool == ASK and self.catalogue:
                answer = await self.catalogue.answer(args)
                mentioned = args.get("module") or (answer.value if "search" in args else "")
                if self.servers and self.servers.mentions_untrusted_server(str(mentioned)):
                    await self.note_outside_text()
                return answer
            return answer_to_cell(await what.on_call(tool, args))

        on_call = answer_call if session.capabilities.calls else None
        async with self._make_checkpoints(action.code):
            outcome = await run(action.code, timeout_s=action.timeout_s, on_output=what.on_output, on_call=on_call)
        logger.debug("cell %s: %s in %.3f s", id_, outcome.status, outcome.duration_s)
        variables = await self._refresh_variables()
        if len(outcome.stdout) + len(outcome.stderr) < _LARGE:
            seen = self._record_outcome(outcome, variables)
        else:  # storing it takes a while, so not in the event loop
            seen = await anyio.to_thread.run_sync(self._record_outcome, outcome, variables)
        return seen if outcome.rolled_back else self._with_files(seen)

    @property
    def has_servers(self) -> bool:
        """True if code can call tools, as far as is known before the sandbox starts."""
        return isinstance(self.provider, Auto) or self.provider.capabilities.calls

    def hint(self, text: str) -> str:
        # A small model does better with only the tools it was shown at the start.
        if self.glances or not self.has_servers:
            return ""
        lines = self.registry.fitting(text, without=self._hinted, used=self._used)
        self._hinted |= set(lines)
        return "\n".join(("[Tools that may fit:", *lines)) + "]" if lines else ""

    def adapt_to_model(self, *, small: bool) -> None:
        """Choose the tools shown to the model, and whether it is shown the files: a small model needs fewer tools."""
        self.glances = small
        promoted = self.skills.native if self.skills else ()
        # A small model sees only `python` and the tools that the user or the client handed over.
        usual = ("python",) if small else (*SHOWN, *promoted)
        self.registry.show((*usual, *self.judging.handed, *self.judging.caller_tools))

    @property
    def is_exposed(self) -> bool:
        return self.privacy.is_exposed

    @property
    def is_private(self) -> bool:
        """True if the session may hold private data."""
        return self.privacy.is_exposed or self.state().private

    def is_untrusted(self) -> bool:
        """Return True if the session has read outside text, including what a sub-agent's code fetched through it."""
        return self.judging.has_met_outside_text or self.state().untrusted

    async def _call(self, action: CallTool, what: ActionContext) -> Performed:
        if what.cell is None or what.read_only:
            return await self._call_tool(action)
        args = action.given
        async with self._make_checkpoints(str(args.get("command") or f"{action.tool} {args.get('path', '')}")):
            performed = await self._call_tool(action)
        return self._with_files(performed)

    async def _call_tool(self, action: CallTool) -> Performed:
        try:
            if self.registry.get(action.tool) and find_protected_file(action, self.spec.workspace):
                return self._edit_protected_file(action)
            result = await self.registry.call(action.tool, action.args)
        except ToolFailed as failure:
            return report_failure(action.tool, failure, self.effect(action))
        except BadCall as error:
            return Performed(outcome="error", observation=f"{action.tool} failed: {error}")
        tool = self.registry.get(action.tool)
        if tool:
            self._used.add(tool.server)
            if tool.name == PROMOTE:
                self.adapt_to_model(small=self.glances)
        shown, blobs = self._limit_output(result.text, tool.max_output if tool else OBSERVATION)
        if result.notices:
            await self.log.append(*(Noticed(text=text) for text in result.notices))
        return Performed(
            outcome=result.outcome,
            observation=shown,
            blobs=blobs,
            whole=remove_own_secrets(result.value),  # a server may send back what it was given
            untrusted=result.untrusted,
            sent=result.sent,
        )

    def _edit_protected_file(self, action: CallTool) -> Performed:
        """Raises BadCall."""
        if (what := current_action()) and what.nested:
            # When the cell ends, protected files are restored to what they were before it.
            raise BadCall("code cannot change a file that steers the agent; call the tool directly")
        if isinstance(self._session, GuardedSession):
            self._session.allow_edit(find_protected_file(action, self.spec.workspace))
        return Performed(outcome="ok", observation=apply_edit(action, self.spec.workspace))

    def _record_outcome(self, outcome: Outcome, variables: Changed | None) -> Performed:
        shown, blobs = self._limit_output(observation(outcome))
        displays = tuple(
            DisplayRef(mime={mime: self.log.blobs.put(data) for mime, data in display.mime.items()})
            for display in outcome.displays
        )
        return Performed(
            outcome=outcome.status,
            observation=shown,
            value=None if outcome.value is None else cap_text(outcome.value, VALUE),
            error=None if outcome.error is None else cap_text(outcome.error, VALUE),
            blobs=blobs,
            displays=displays,
            variables=variables,
            rolled_back=outcome.rolled_back,
            notices=outcome.notices,
            lacked=NO_NETWORK if outcome.error and needs_network(outcome.error) else "",
            missing=outcome.missing if self.registry.get("install") else "",
        )

    def _limit_output(self, text: str, limit: int = OBSERVATION) -> tuple[str, tuple[BlobId, ...]]:
        if cut_result(text, self.output, limit, "") == text:
            return text, ()
        try:
            blob = self.log.blobs.put(text.encode("utf-8", "surrogatepass"))
        except LogUnwritable:
            # The action is done and must be recorded; only its full text cannot be stored.
            return cut_result(text, self.output, limit, "not kept, the disk is full"), ()
        return cut_result(text, self.output, limit, f'read_file("blob:{blob[7:19]}")'), (blob,)
