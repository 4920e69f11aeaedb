"""The engine's hands: cells go to the sandbox, calls to the tools, and policy stands before both."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, assert_never

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from pinfold.app.errors import CheckpointError, ConfigError
from pinfold.app.paths import scratch_of
from pinfold.app.session.action_context import ActionContext, action_scope, current_action
from pinfold.app.session.action_policy import ActionPolicy
from pinfold.app.session.catalogue import ASK, Catalogue
from pinfold.app.session.checkpoints import Checkpoints, Restored
from pinfold.app.session.closing_notices import add_closing_notices
from pinfold.app.session.egress import NETWORK, RunningAction, SessionEgress
from pinfold.app.session.mounts import data_inside
from pinfold.app.session.observations import (
    NO_NETWORK,
    OBSERVATION,
    OutputLimits,
    add_refusals,
    answer_to_cell,
    describe_files,
    diff_variables,
    file_of,
    inventory,
    needs_network,
    observation,
    report_failure,
)
from pinfold.app.session.toolbox import select_shown_tools
from pinfold.app.trust.privacy import Privacy
from pinfold.app.trust.redacting_log import remove_own_secrets
from pinfold.app.trust.untrusted_files import Writer, notice
from pinfold.engine import Given, Journal, OnCall, OnOutput, Performed, Rewound
from pinfold.events import (
    Action,
    ActionId,
    Ask,
    BlobId,
    Call,
    CallTool,
    Changed,
    DisplayRef,
    Effect,
    FileChange,
    Json,
    Noticed,
    PinfoldError,
    Redo,
    RunCell,
    ToolSchema,
    Undo,
    Verdict,
)
from pinfold.log import BlobMissing, Blobs, LogUnwritable
from pinfold.sandbox import (
    Answer,
    CommandOutcome,
    Freezable,
    GuardedSession,
    Limits,
    NotSupported,
    Outcome,
    Provider,
    Resumable,
    Resumed,
    SandboxUnavailable,
    Savable,
    Session,
    Spec,
    Variable,
)
from pinfold.sandbox.providers.auto import Auto
from pinfold.text import cap_text
from pinfold.tools import BadCall, Registry, ToolFailed

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers

logger = logging.getLogger(__name__)
_READING = ("files", "workspace", "protected", "outside", "host")
"""How far an action goes that may read what is the user's own."""
VALUE = 200_000
"""Characters of a cell's value, or error, that are recorded."""
_LARGE = 1_000_000
"""Characters of output that take a while to keep."""


class SandboxActionRunner(Struct, kw_only=True, dict=True):
    provider: Provider
    spec: Spec
    registry: Registry
    judging: ActionPolicy
    way: SessionEgress
    privacy: Privacy
    journal: Journal
    blobs: Blobs
    servers: SessionServers | None = None
    """Of MCP."""
    checkpoints: Checkpoints | None = None
    """Of the workspace's files, if it may be changed."""
    catalogue: Catalogue | None = None
    """What code finds in `servers`."""
    glances: bool = False
    """The model is told of the files without asking."""
    output: OutputLimits = field(default_factory=OutputLimits)
    writer: Writer | None = None
    """Sees to the files that are written while others' words are in play."""
    closing: tuple[Callable[[], Awaitable[None]], ...] = ()
    """What tools hold that ends with the session."""

    def __post_init__(self) -> None:
        self._session: Session | None = None
        self._lasting: Resumable | None = None
        """The same, where it is one: to find that out takes longer than many a cell."""
        self._variables: dict[str, Variable] = {}
        """After the last cell."""
        self._hinted: set[str] = set()
        """Tools the model has been told of."""
        self._used: set[str] = set()
        """Servers that were called."""

    @property
    def limits(self) -> Limits:
        return self.spec.limits

    def schemas(self) -> tuple[ToolSchema, ...]:
        return self.registry.schemas()

    def action(self, call: Call) -> Action:
        return self.registry.action(call.tool, call.args)

    def effect(self, action: Action) -> Effect:
        return self.judging.effect(action)

    def parallel_safe(self, action: Action) -> bool:
        tool = self.registry.get(action.tool) if isinstance(action, CallTool) else None
        return tool is not None and tool.parallel_safe

    def is_step(self, action: Action) -> bool:
        return self.judging.is_step(action)

    def judge(self, action: Action, given: Given) -> Verdict:
        return self.judging.judge(action, given)

    async def preview_action(self, action: Action) -> str:
        return await self.judging.preview_action(action)

    @asynccontextmanager
    async def freeze_session(self, action: Action, given: Given) -> AsyncGenerator[None]:
        """A command for this machine runs what lies in the workspace: from the question on, nobody in there may change it."""
        async with AsyncExitStack() as stack:
            if self.judging.is_host_command(action) and isinstance(self.judge(action, given), Ask):
                session = await self.ensure_session()
                if isinstance(session, Freezable):
                    with suppress(NotSupported):  # then the files it names are bound by their hash alone
                        await stack.enter_async_context(session.freeze())
            yield

    async def grant(self, pattern: str) -> None:
        if self.judging.grants:
            self.judging.grants.add(pattern, self.spec.workspace)

    @property
    def grants_at(self) -> str:
        # A scratch folder is never a workspace again.
        lasts = self.spec.workspace.parent != scratch_of("")
        return str(self.judging.grants.file) if self.judging.grants and lasts else ""

    async def perform(
        self,
        id: ActionId,  # noqa: A002
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
        *,
        read_only: bool = False,
    ) -> Performed:
        is_part = self.way.is_running
        if self.writer and not is_part:
            self.writer.begin_action()
            await self._check_for_outside_text()
        performed = await self._perform_action(id, action, on_output, on_call, cell, read_only=read_only)
        if not is_part:
            await self._check_for_outside_text()
        if self.judging.has_met_others_words:
            performed = replace(performed, untrusted=True)
        if self.writer and performed.untrusted:
            await anyio.to_thread.run_sync(self.writer.turn_untrusted)
        return performed

    async def _check_for_outside_text(self) -> None:
        """Another session in the same folder may have brought them in since this one began."""
        if self.writer is None or self.judging.has_met_others_words or not self.writer.has_news:
            return
        try:
            found = await anyio.to_thread.run_sync(self.writer.find_marked)
        except ConfigError as error:
            said = f"{error}; until then this session counts as having read outside text"
        else:
            if not found:
                return
            said = notice(found, self.spec.workspace)
        await self._note_outside_text()
        await self.journal.append(Noticed(text=said))

    async def _note_outside_text(self) -> None:
        """What follows is judged so at once; it is on record when the action ends."""
        self.judging.has_met_others_words = True
        if self.writer:
            await anyio.to_thread.run_sync(self.writer.turn_untrusted)

    async def _perform_action(
        self,
        id: ActionId,  # noqa: A002
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
        *,
        read_only: bool,
    ) -> Performed:
        if isinstance(action, CallTool) and action.tool == NETWORK:
            # What comes back through it is somebody else's, whatever it is.
            return Performed(outcome="ok", observation="", untrusted=True)
        if self.servers and isinstance(action, CallTool) and self.servers.is_sampling(action):
            return await self.servers.run_sampling(action)
        reads = isinstance(action, RunCell) or self.judging.facts(action).reach in _READING
        if reads and (not isinstance(action, RunCell) or "/mnt" in action.code):
            await self._write_server_modules()
        what = ActionContext(
            on_call=on_call,
            on_output=on_output,
            cell=cell,
            cleared=self.judging.find_destinations(action),
            wanted=self.way.wanted,
            # Where nothing may be written at all, there is nothing to add to it.
            read_only=read_only and (self.spec.writable or any(one.writable for one in self.spec.mounts)),
        )
        if self.way.is_running:  # what it is a part of has seen to the rest
            sent = ()
            with action_scope(what):
                performed = await self._dispatch_action(id, action, what)
        else:
            async with self._track_egress(what, reads=reads) as running:
                performed = await self._dispatch_action(id, action, what)
                if isinstance(action, RunCell):
                    performed = add_refusals(performed, running.refused)
            sent = running.list_sent()
        private = reads and self.privacy.holds
        if what.stopped:
            performed = replace(performed, stopped=what.stopped)
        return replace(performed, private=private, sent=(*performed.sent, *sent)) if private or sent else performed

    async def _write_server_modules(self) -> None:
        """Not before somebody may look: most sessions never do, and it takes longer than many a cell."""
        if self.catalogue and self.spec.servers:
            is_met = self.judging.has_met_others_words
            await anyio.to_thread.run_sync(self.catalogue.write, self.spec.servers, is_met)

    async def _dispatch_action(self, id_: ActionId, action: Action, what: ActionContext) -> Performed:
        match action:
            case RunCell():
                return await self._run(id_, action, what)
            case CallTool():
                return await self._call(action, what)
            case _:
                assert_never(action)

    @asynccontextmanager
    async def _track_egress(self, what: ActionContext, *, reads: bool) -> AsyncGenerator[RunningAction]:
        """No connection outlives an action that may have read what is the user's, however that action ends."""
        if reads and self.privacy.about_to_read():
            await self.way.disconnect_all()  # what is connected was let through while there was nothing to tell

        def must_disconnect() -> bool:
            if reads:
                self.privacy.note_own_files()
            return reads and self.privacy.holds

        async with self.way.track_action(what.ask_to_connect, cut=must_disconnect) as running:
            with action_scope(what):
                yield running

    async def _run(self, id_: ActionId, action: RunCell, what: ActionContext) -> Performed:
        session = await self.ensure_session()
        if self._lasting:
            what.held = self._lasting.pause_clock
        async with self._make_checkpoints(action.code):
            outcome = await self._run_in(session, action, what)
        logger.debug("cell %s: %s in %.3f s", id_, outcome.status, outcome.duration_s)
        variables = await self._refresh_variables()
        if len(outcome.stdout) + len(outcome.stderr) < _LARGE:
            seen = self._record_outcome(outcome, variables)
        else:  # what keeps it takes its time, and whoever is typing must not wait for that
            seen = await anyio.to_thread.run_sync(self._record_outcome, outcome, variables)
        return seen if outcome.rolled_back else self._with_files(seen)

    def _with_files(self, performed: Performed) -> Performed:
        """And what became of the workspace's files."""
        if self._lasting is None or not (changed := self._lasting.changed_files).files:
            return performed
        files = tuple(
            FileChange(
                path=one.path, how=one.how, before=self._store_content(one.before), after=self._store_content(one.after)
            )
            for one in changed.files
        )
        return replace(performed, files=files, more_files=changed.more)

    def _store_content(self, content: bytes | None) -> BlobId | None:
        try:
            return None if content is None else self.blobs.put(content)
        except LogUnwritable:  # the change itself is told
            return None

    async def restore(self, number: int) -> Restored:
        """Bring the workspace's files back to a checkpoint. Raises CheckpointError."""
        if self.checkpoints is None:
            raise CheckpointError("the workspace may not be changed in mode read-only")
        self.privacy.check_workspace()
        restored = await self.checkpoints.restore(await self.ensure_session(), number, self.limits.shell_s)
        self.privacy.note_own_files()
        return restored

    async def _run_in(self, session: Session, action: RunCell, what: ActionContext) -> Outcome:

        async def answer_call(tool: str, args: Mapping[str, Json]) -> Answer:
            if tool == ASK and self.catalogue:
                answer = await self.catalogue.answer(args)
                told = args.get("module") or (answer.value if "search" in args else "")
                if self.servers and self.servers.mentions_untrusted_server(str(told)):
                    await self._note_outside_text()
                return answer
            return answer_to_cell(await what.on_call(tool, args))

        more: dict[str, Any] = {"on_call": answer_call} if session.capabilities.calls else {}
        if self._lasting:
            more["cell"] = what.cell
        return await session.run(action.code, timeout_s=action.timeout_s, on_output=what.on_output, **more)

    async def shell(self, command: str) -> CommandOutcome:
        session = await self.ensure_session()
        return await session.command(["/bin/sh", "-c", command], timeout_s=self.limits.cell_s)

    async def restore_variables(self) -> Resumed | None:
        """What there is of the variables of a session that goes on; None if nothing was kept. Raises SandboxUnavailable."""
        if self.spec.state is None or not self.spec.state.is_dir():
            return None
        await self._refresh_variables()
        return self._lasting.resumed if self._lasting else None

    async def save(self) -> None:
        """What can be had again of the variables by whoever goes on from here."""
        if isinstance(self._session, Savable):
            await self._session.save()

    def picture(self, blob: BlobId) -> bytes | None:
        try:
            return self.blobs.get(blob)
        except BlobMissing:
            return None

    @property
    def has_servers(self) -> bool:
        """Whether code can call tools, as far as is known before a session is there."""
        return isinstance(self.provider, Auto) or self.provider.capabilities.calls

    def hint(self, text: str) -> str:
        # A small model does better with what it was told of at first.
        if self.glances or not self.has_servers:
            return ""
        lines = self.registry.fitting(text, without=self._hinted, used=self._used)
        self._hinted |= set(lines)
        return "\n".join(("[Tools that may fit:", *lines)) + "]" if lines else ""

    async def summarize_files(self) -> str:
        return await self._files() if self.glances else ""

    async def describe_state(self, about: str) -> str:
        # What the model has not asked for stays here, unless it was told of all files anyway.
        files = (await self._files()).split("\n")
        told = [line for line in files if self.glances or ((name := file_of(line)) and name in about)]
        return "\n".join(filter(None, (*told, self.inventory())))

    async def _files(self) -> str:
        """How they are made, a line each."""
        if self.privacy.about_to_read():
            await self.way.disconnect_all()
        try:
            session = await self.ensure_session()
            return await describe_files(session, data_inside(self.spec.data, session.capabilities))
        except (SandboxUnavailable, NotSupported):
            return ""

    def adapt_to_model(self, *, small: bool) -> None:
        """What the model is told of tools and files, for one that is small or not."""
        self.glances = small
        self.registry.show(select_shown_tools(small=small, handed=self.judging.handed))

    def inventory(self) -> str:
        return inventory(self._variables)

    @property
    def is_exposed(self) -> bool:
        return self.privacy.is_exposed

    async def rewind(self, command: Undo | Redo) -> Rewound:
        await self.ensure_session()
        self.privacy.check_workspace()
        session = self._lasting
        if session is None:
            raise NotSupported(f"{self.provider.name} keeps no earlier states; choose another sandbox")
        before = session.path
        if isinstance(command, Undo):
            said = await session.undo(command.to, command.what)
        else:
            said = await session.redo()
        self.privacy.note_own_files()
        await self._refresh_variables()
        after = session.path
        to = after[-1] if after else 0
        if isinstance(command, Undo) and command.what == "files":
            to = command.to if command.to is not None else (0, *before)[-2]
        return Rewound(
            to=to,
            undone=tuple(cell for cell in before if cell not in after),
            redone=tuple(cell for cell in after if cell not in before),
            notices=said or (),
        )

    async def undo_cell(self, cell: int) -> tuple[str, ...] | None:
        # What is written to a mount is not undone, so it would be written twice.
        is_covered = not any(mount.writable for mount in self.spec.mounts)
        if not is_covered or self._lasting is None or self._lasting.path[-1:] != (cell,):
            return None
        try:
            return (await self.rewind(Undo())).notices
        except PinfoldError as error:
            logger.info("cell %d is not run again: %s", cell, error)
            return None

    async def _refresh_variables(self) -> Changed | None:
        """What has changed since the last time, if anything has and can be seen."""
        session, before = await self.ensure_session(), self._variables
        try:
            self._variables = {one.name: one for one in await session.variables()}
        except SandboxUnavailable:  # the next cell says so
            return None
        return diff_variables(before, self._variables)

    async def close(self) -> None:
        if self._session:
            session, self._session, self._lasting = self._session, None, None
            await session.close()
            if isinstance(session, GuardedSession):
                add_closing_notices(session.parting, is_broken=bool(session.lost_files))
                await self.journal.append(*(Noticed(text=line) for line in session.parting))
        for close in self.closing:
            await close()
        if self.writer:
            try:
                await anyio.to_thread.run_sync(self.writer.end)
            except ConfigError as error:  # whoever looks next finds what it wrote
                logger.warning("%s", error)

    async def ensure_session(self) -> Session:
        # Not before the first cell: a session that is only renamed or read starts no process.
        if self._session is None:
            if self.spec.site:
                self.spec.site.mkdir(exist_ok=True)
                # A session of root's runs under an id of its own, and must be able to read it.
                self.spec.site.chmod(0o755)
            if self.spec.servers:
                self.spec.servers.mkdir(exist_ok=True)
                self.spec.servers.chmod(0o755)
            if self.spec.view:
                self.spec.view.mkdir(mode=0o700, parents=True, exist_ok=True)
            known = self.provider.notice or ""
            provider, spec = self.provider, self.spec
            if isinstance(provider, Auto) or provider.capabilities.egress:
                spec = replace(spec, egress=await self.way.socket())
            if isinstance(provider, Auto):
                provider = await provider.resolve(spec)
            self._session = await provider.open(spec if provider.capabilities.egress else self.spec)
            logger.info("started %s in %s", self.provider.name, self.spec.workspace)
            new = (self.provider.notice or "").removeprefix(known).strip()
            lines = [new] if new else []
            self._lasting = self._session if isinstance(self._session, Resumable) else None
            if self._lasting and self._lasting.resumed is None:
                lines += await self._lasting.describe_uncovered()
                if writable := [str(mount.path) for mount in self.spec.mounts if mount.writable]:
                    lines.append(f"Undo does not cover {', '.join(writable)}.")
            if lines:
                await self.journal.append(*(Noticed(text=line) for line in lines))
        return self._session

    @asynccontextmanager
    async def _make_checkpoints(self, what: str) -> AsyncGenerator[None]:
        """What changes files ends in a checkpoint, if it comes to its end and they are made."""
        if self.checkpoints:
            await self.checkpoints.before(await self.ensure_session(), self.limits.shell_s)
        yield
        if self.checkpoints:
            await self.checkpoints.after(await self.ensure_session(), what, self.limits.shell_s)

    async def _call(self, action: CallTool, what: ActionContext) -> Performed:
        if what.cell is None or what.read_only:
            return await self._call_tool(action)
        args = action.given
        async with self._make_checkpoints(str(args.get("command") or f"{action.tool} {args.get('path', '')}")):
            performed = await self._call_tool(action)
        return self._with_files(performed)

    async def _call_tool(self, action: CallTool) -> Performed:
        try:
            if self.judging.is_protected_edit(action):
                return self._edit_protected_file(action)
            result = await self.registry.call(action.tool, action.args)
        except ToolFailed as failure:
            return report_failure(action.tool, failure, self.effect(action))
        except BadCall as error:
            return Performed(outcome="error", observation=f"{action.tool} failed: {error}")
        tool = self.registry.get(action.tool)
        if tool:
            self._used.add(tool.server)
        shown, blobs = self._limit_output(result.text, tool.max_output if tool else OBSERVATION)
        if result.notices:
            await self.journal.append(*(Noticed(text=text) for text in result.notices))
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
        from pinfold.app.session.protected_files import apply_edit, find_protected_file

        if (what := current_action()) and what.nested:
            # When the cell ends, everything that steers is put back as it was before.
            raise BadCall("code cannot change a file that steers the agent; call the tool directly")
        if isinstance(self._session, GuardedSession):
            self._session.allow_edit(find_protected_file(action, self.spec.workspace))
        return Performed(outcome="ok", observation=apply_edit(action, self.spec.workspace))

    def _record_outcome(self, outcome: Outcome, variables: Changed | None) -> Performed:
        shown, blobs = self._limit_output(observation(outcome))
        displays = tuple(
            DisplayRef(mime={mime: self.blobs.put(data) for mime, data in display.mime.items()})
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
        if self.output.cut(text, limit, "") == text:
            return text, ()
        try:
            blob = self.blobs.put(text.encode("utf-8", "surrogatepass"))
        except LogUnwritable:
            # What happened is known and must be recorded; only the whole text cannot be kept.
            return self.output.cut(text, limit, "not kept, the disk is full"), ()
        return self.output.cut(text, limit, f'read_file("blob:{blob[7:19]}")'), (blob,)
