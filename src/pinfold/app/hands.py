"""The engine's hands: cells go to the sandbox, calls to the tools, and policy stands before both."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, assert_never

from pinfold.app.checkpoints import Checkpoints, Restored
from pinfold.app.errors import CheckpointError
from pinfold.app.observing import NETWORK, changed, needs_network, observation
from pinfold.engine import Given, Journal, OnCall, OnOutput, Performed, Rewound
from pinfold.events import (
    Action,
    ActionId,
    BlobId,
    Call,
    CallTool,
    Changed,
    DisplayRef,
    Effect,
    Json,
    Mode,
    Noticed,
    Redo,
    RunCell,
    ToolSchema,
    Undo,
    Verdict,
)
from pinfold.log import BlobMissing, Blobs, LogUnwritable
from pinfold.policy import judge
from pinfold.sandbox import (
    Answer,
    CommandOutcome,
    Limits,
    NotSupported,
    Outcome,
    Provider,
    Resumable,
    Resumed,
    SandboxUnavailable,
    Session,
    Spec,
    Variable,
)
from pinfold.text import capped
from pinfold.tools import Registry, ToolFailed

logger = logging.getLogger(__name__)
OBSERVATION = 10_000
"""Characters of one action that the model sees."""
GLANCE_S = 5.0
_GLANCE = files("pinfold") / "guest" / "glance.py"
VALUE = 200_000
"""Characters of a cell's value, or error, that are recorded."""


@dataclass(kw_only=True)
class SandboxAndTools:
    provider: Provider
    spec: Spec
    registry: Registry
    granted: frozenset[str]
    """Tools the user handed over in person."""
    mode: Mode
    journal: Journal
    blobs: Blobs
    checkpoints: Checkpoints | None = None
    """Of the workspace's files, if it may be changed."""
    glances: bool = False
    """The model is told of the files without asking."""
    _session: Session | None = field(default=None, init=False)
    _variables: dict[str, Variable] = field(default_factory=dict[str, Variable], init=False)
    """After the last cell."""

    @property
    def limits(self) -> Limits:
        return self.spec.limits

    def schemas(self) -> tuple[ToolSchema, ...]:
        return self.registry.schemas()

    def action(self, call: Call) -> Action:
        return self.registry.action(call.tool, call.args)

    def effect(self, action: Action) -> Effect:
        match action:
            case RunCell():
                return "once"
            case CallTool(tool=name):
                tool = self.registry.get(name)
                # A tool that does not exist does nothing but say so.
                return tool.effect if tool else "pure"
            case _:
                assert_never(action)

    def parallel_safe(self, action: Action) -> bool:
        tool = self.registry.get(action.tool) if isinstance(action, CallTool) else None
        return tool is not None and tool.parallel_safe

    def is_step(self, action: Action) -> bool:
        return isinstance(action, RunCell)

    def judge(self, action: Action, given: Given) -> Verdict:
        granted = {pattern.removeprefix("tool: ") for pattern in given.grants}
        return judge(action, effect=self.effect(action), mode=given.mode, granted=self.granted | granted)

    async def shows(self, action: Action) -> str:
        return ""

    async def grant(self, pattern: str) -> None:
        raise NotImplementedError(pattern)

    @property
    def grants_at(self) -> str:
        return ""

    async def perform(
        self,
        id: ActionId,  # noqa: A002
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
    ) -> Performed:
        match action:
            case RunCell():
                outcome = await self._run(action, on_output, on_call, cell)
                logger.debug("cell %s: %s in %.3f s", id, outcome.status, outcome.duration_s)
                return self._seen(outcome, await self._look_at_variables())
            case CallTool():
                return await self._call(action)
            case _:
                assert_never(action)

    async def _run(self, action: RunCell, on_output: OnOutput, on_call: OnCall, cell: int | None) -> Outcome:
        session = await self._started()
        if self.checkpoints:
            await self.checkpoints.before(session, self.limits.shell_s)
        outcome = await self._run_in(session, action, on_output, on_call, cell)
        if self.checkpoints:
            await self.checkpoints.after(session, action.code, self.limits.shell_s)
        return outcome

    async def restore(self, number: int) -> Restored:
        """Bring the workspace's files back to a checkpoint. Raises CheckpointError."""
        if self.checkpoints is None:
            raise CheckpointError("the workspace may not be changed in mode read-only")
        return await self.checkpoints.restore(await self._started(), number, self.limits.shell_s)

    @staticmethod
    async def _run_in(
        session: Session, action: RunCell, on_output: OnOutput, on_call: OnCall, cell: int | None
    ) -> Outcome:

        async def answered(tool: str, args: Mapping[str, Json]) -> Answer:
            return _answer(await on_call(tool, args))

        more: dict[str, Any] = {"on_call": answered} if session.capabilities.calls else {}
        if isinstance(session, Resumable):
            more["cell"] = cell
        return await session.run(action.code, timeout_s=action.timeout_s, on_output=on_output, **more)

    async def shell(self, command: str) -> CommandOutcome:
        session = await self._started()
        return await session.command(["/bin/sh", "-c", command], timeout_s=self.limits.cell_s)

    async def come_back(self) -> Resumed | None:
        """What there is of the variables of a session that goes on; None if nothing was kept. Raises SandboxUnavailable."""
        if self.spec.state is None or not self.spec.state.is_dir():
            return None
        session = await self._started()
        await self._look_at_variables()
        return session.resumed if isinstance(session, Resumable) else None

    def picture(self, blob: BlobId) -> bytes | None:
        try:
            return self.blobs.get(blob)
        except BlobMissing:
            return None

    async def glance(self) -> str:
        if not self.glances:
            return ""
        try:
            session = await self._started()
            outcome = await session.command(
                ["python3", "-I", "-c", _GLANCE.read_text("utf-8")], timeout_s=GLANCE_S
            )
        except (SandboxUnavailable, NotSupported):
            return ""
        return outcome.stdout.decode("utf-8", "replace").strip() if outcome.status == "ok" else ""

    async def rewind(self, command: Undo | Redo) -> Rewound:
        session = await self._started()
        if not isinstance(session, Resumable):
            raise NotSupported(f"{self.provider.name} keeps no earlier states; choose another sandbox")
        before = session.path
        if isinstance(command, Undo):
            said = await session.undo(command.to, command.what)
        else:
            said = await session.redo()
        await self._look_at_variables()
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

    async def _look_at_variables(self) -> Changed | None:
        """What has changed since the last time, if anything has and can be seen."""
        session, before = await self._started(), self._variables
        try:
            self._variables = {one.name: one for one in await session.variables()}
        except SandboxUnavailable:  # the next cell says so
            return None
        return changed(before, self._variables)

    async def close(self) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    async def _started(self) -> Session:
        # Not before the first cell: a session that is only renamed or read starts no process.
        if self._session is None:
            if self.spec.site:
                self.spec.site.mkdir(exist_ok=True)
                # A session of root's runs under an id of its own, and must be able to read it.
                self.spec.site.chmod(0o755)
            if self.spec.view:
                self.spec.view.mkdir(mode=0o700, parents=True, exist_ok=True)
            known = self.provider.notice or ""
            self._session = await self.provider.open(self.spec)
            logger.info("started %s in %s", self.provider.name, self.spec.workspace)
            new = (self.provider.notice or "").removeprefix(known).strip()
            lines = [new] if new else []
            if isinstance(self._session, Resumable) and self._session.resumed is None:
                lines += await self._session.uncovered()
            if lines:
                await self.journal.append(*(Noticed(text=line) for line in lines))
        return self._session

    async def _call(self, action: CallTool) -> Performed:
        try:
            text = await self.registry.call(action.tool, action.args)
        except ToolFailed as failure:
            unknown = failure.may_have_happened and self.effect(action) != "pure"
            words = f"{failure}; it may or may not have taken effect" if unknown else str(failure)
            return Performed(
                outcome="outcome_unknown" if unknown else "error",
                observation=capped(words, OBSERVATION),
                at_fault=action.tool if failure.at_fault else None,
            )
        shown, blobs = self._bounded(text)
        return Performed(outcome="ok", observation=shown, blobs=blobs, whole=text)

    def _seen(self, outcome: Outcome, variables: Changed | None) -> Performed:
        shown, blobs = self._bounded(observation(outcome))
        displays = tuple(
            DisplayRef(mime={mime: self.blobs.put(data) for mime, data in display.mime.items()})
            for display in outcome.displays
        )
        return Performed(
            outcome=outcome.status,
            observation=shown,
            value=None if outcome.value is None else capped(outcome.value, VALUE),
            error=None if outcome.error is None else capped(outcome.error, VALUE),
            blobs=blobs,
            displays=displays,
            variables=variables,
            rolled_back=outcome.rolled_back,
            lacked=NETWORK if outcome.error and needs_network(outcome.error) else "",
        )

    def _bounded(self, text: str) -> tuple[str, tuple[BlobId, ...]]:
        if len(text) <= OBSERVATION:
            return text, ()
        try:
            blob = self.blobs.put(text.encode("utf-8", "surrogatepass"))
        except LogUnwritable:
            # What happened is known and must be recorded; only the whole text cannot be kept.
            return capped(text, OBSERVATION, whole="not kept, the disk is full"), ()
        return capped(text, OBSERVATION, whole=f"blob {blob[:19]}"), (blob,)


def _answer(performed: Performed) -> Answer:
    """What a cell gets of an action it called for."""
    match performed.outcome:
        case "ok":
            text = performed.observation if performed.whole is None else performed.whole
            return Answer(status="ok", value=text)
        case "denied" | "not_run":
            return Answer(status="refused", value=performed.observation)
        case _:
            return Answer(status="failed", value=performed.observation)
