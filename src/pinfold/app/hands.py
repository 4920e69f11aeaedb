"""The engine's hands: cells go to the sandbox, calls to the tools, and policy stands before both."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, assert_never

from pinfold.app.checkpoints import Checkpoints, Restored
from pinfold.app.errors import CheckpointError
from pinfold.engine import Journal, OnCall, OnOutput, Performed, Rewound
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
from pinfold.policy import Facts, judge
from pinfold.sandbox import (
    Answer,
    CommandOutcome,
    Display,
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
INSTALL = "install"
NETWORK = "the network (refused inside the sandbox)"
_UNREACHABLE = (
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "No route to host",
)
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

    def judge(self, action: Action, granted: frozenset[str]) -> Verdict:
        handed = isinstance(action, CallTool) and action.tool in self.granted | granted
        return judge(action, facts_of(action, self.effect(action), handed=handed), mode=self.mode)

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


def facts_of(action: Action, effect: Effect, *, handed: bool) -> Facts:
    """What is known of an action by its tool's effect alone."""
    if isinstance(action, CallTool) and action.tool == INSTALL:
        return Facts(effect=effect, reach="packages", handed=handed)
    return Facts(effect=effect, reach="nothing" if effect == "pure" else "outside", handed=handed)


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


def changed(before: Mapping[str, Variable], after: Mapping[str, Variable]) -> Changed | None:
    both = before.keys() & after.keys()
    found = Changed(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name in after if name in both and after[name] != before[name]),
        removed=tuple(name for name in before if name not in after),
    )
    return found if found != Changed() else None


def needs_network(error: str) -> bool:
    """Whether a traceback ends in what code gets that wants to leave the sandbox."""
    last = error.rstrip().rpartition("\n")[2]
    return any(words in last for words in _UNREACHABLE)


def observation(outcome: Outcome) -> str:
    """What the model sees of a cell: its output, what it displayed, then its value or its error."""
    parts = [outcome.stdout]
    if outcome.stderr:
        parts.append(f"[stderr]\n{outcome.stderr}")
    parts += [text for display in outcome.displays if (text := _told(display)) != outcome.value]
    if outcome.value is not None:
        parts.append(outcome.value)
    if outcome.error:
        parts.append(outcome.error)
        if needs_network(outcome.error):
            parts.append("[This session has no network.]")
    if outcome.dropped_bytes:
        parts.append(f"[{outcome.dropped_bytes:,} bytes of output were beyond the limit and are gone]")
    parts.extend(f"[{notice}]" for notice in outcome.notices)
    if outcome.rolled_back:
        parts.append(
            "[The session was rolled back: variables and files of the workspace are as before this code.]"
        )
    if outcome.state_lost:
        parts.append(
            "[The interpreter was restarted: all variables are gone, files are as the code left them.]"
        )
    text = "\n".join(part.rstrip("\n") for part in parts if part)
    return f"{text}\n" if text else "(no output)\n"


def _told(display: Display) -> str:
    """A display in words: its own plain text, or what it is."""
    pictures = [f"{mime}, {len(data):,} bytes" for mime, data in display.mime.items() if _is_picture(mime)]
    plain = display.mime.get("text/plain")
    if plain is None or pictures:
        forms = pictures or [f"{mime}, {len(data):,} bytes" for mime, data in display.mime.items()]
        return f"[shown to the user: {'; '.join(forms)}]"
    return plain.decode("utf-8", "replace")


def _is_picture(mime: str) -> bool:
    return mime.startswith("image/")
