"""The sandbox of one session: started with the first cell, rewound, restored, described, closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

import anyio
import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.errors import CheckpointError, ConfigError
from pinfold.app.session.checkpoints import Checkpoints
from pinfold.app.session.egress import SessionEgress
from pinfold.app.session.observations import describe_files, diff_variables, file_of, inventory
from pinfold.app.session.options import data_inside
from pinfold.app.session.protected_files import add_closing_notices
from pinfold.app.trust.privacy import Privacy
from pinfold.app.trust.untrusted_files import Writer
from pinfold.engine import Performed, Rewound
from pinfold.events import BlobId, Changed, FileChange, Noticed, PinfoldError, Redo, Undo
from pinfold.log import BlobMissing, Log, LogUnwritable
from pinfold.sandbox import (
    CommandOutcome,
    GuardedSession,
    NotSupported,
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

logger = logging.getLogger(__name__)


class SandboxSession(Struct, kw_only=True, dict=True):
    provider: Provider
    spec: Spec
    egress: SessionEgress
    privacy: Privacy
    log: Log
    checkpoints: Checkpoints | None = None
    """Git checkpoints of the workspace, if it is writable."""
    glances: bool = False
    """True if the model is shown a list of the files without asking."""
    writer: Writer | None = None
    """Marks files that are written after the session has read outside text."""
    closing: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Called at the end of the session, to close resources of its tools."""

    def __post_init__(self) -> None:
        self._session: Session | None = None
        self._starting: asyncio.Task[Session] | None = None
        self._lasting: Resumable | None = None
        """The same session, if it can be resumed; looked up once, because the check takes longer than many cells."""
        self._variables: dict[str, Variable] = {}
        """The variables after the last cell."""

    async def ensure_session(self) -> Session:
        """Start the sandbox on first use: a session that is only renamed or read starts no process."""
        if self._session is not None:
            return self._session
        # A separate task: a waiting caller can be interrupted at once, and the next cell finds the sandbox started.
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(_log_failure)
        return await asyncio.shield(self._starting)

    async def _start(self) -> Session:
        try:
            for folder in filter(None, (self.spec.site, self.spec.servers, self.spec.skills)):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o755)  # the session of a root user runs under another uid, which must be able to read it
            if self.spec.view:
                self.spec.view.mkdir(mode=0o700, parents=True, exist_ok=True)
            known = self.provider.notice or ""
            provider, spec = self.provider, self.spec
            if isinstance(provider, Auto) or provider.capabilities.egress:
                spec = replace(spec, egress=await self.egress.socket())
            if isinstance(provider, Auto):
                provider = await provider.resolve(spec)
            self._session = session = await provider.open(spec if provider.capabilities.egress else self.spec)
            logger.info("started %s in %s", self.provider.name, self.spec.workspace)
            new = (self.provider.notice or "").removeprefix(known).strip()
            lines = [new] if new else []
            self._lasting = session if isinstance(session, Resumable) else None
            if self._lasting and self._lasting.resumed is None:
                lines += await self._lasting.describe_uncovered()
                if writable := [str(mount.path) for mount in self.spec.mounts if mount.writable]:
                    lines.append(f"Undo does not cover {', '.join(writable)}.")
            if lines:
                await self.log.append(*(Noticed(text=line) for line in lines))
            return session
        finally:
            self._starting = None

    async def close(self) -> None:
        if self._starting:
            self._starting.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._starting])
        if self._session:
            session, self._session, self._lasting = self._session, None, None
            await session.close()
            if isinstance(session, GuardedSession):
                add_closing_notices(session.parting, is_broken=bool(session.lost_files))
                await self.log.append(*(Noticed(text=line) for line in session.parting))
        for close in self.closing:
            await close()
        if self.writer:
            try:
                await anyio.to_thread.run_sync(self.writer.end)
            except ConfigError as error:  # the next session that looks for outside text finds these files
                logger.warning("%s", error)

    async def rewind(self, command: Undo | Redo) -> Rewound:
        await self.ensure_session()
        self.privacy.check_workspace()
        session = self._lasting
        if session is None:
            raise NotSupported(f"{self.provider.name} keeps no earlier states; choose another sandbox")
        before = session.path
        is_undo = isinstance(command, Undo)
        said = await (session.undo(command.to, command.what) if is_undo else session.redo())
        self.privacy.note_own_files()
        await self._refresh_variables()
        after = session.path
        to = after[-1] if after else 0
        if is_undo and command.what == "files":
            to = command.to if command.to is not None else (0, *before)[-2]
        return Rewound(
            to=to,
            undone=tuple(cell for cell in before if cell not in after),
            redone=tuple(cell for cell in after if cell not in before),
            notices=said or (),
        )

    async def undo_cell(self, cell: int) -> tuple[str, ...] | None:
        # Undo does not cover mounts, so files in them would be written twice.
        is_covered = not any(mount.writable for mount in self.spec.mounts)
        if not is_covered or self._lasting is None or self._lasting.path[-1:] != (cell,):
            return None
        try:
            return (await self.rewind(Undo())).notices
        except PinfoldError as error:
            logger.info("cell %d is not run again: %s", cell, error)
            return None

    async def restore(self, number: int) -> str:
        """Restore the workspace's files from a checkpoint; return the result in words. Raises CheckpointError."""
        if self.checkpoints is None:
            raise CheckpointError("the workspace may not be changed in mode read-only")
        self.privacy.check_workspace()
        restored = await self.checkpoints.restore(number)
        self.privacy.note_own_files()
        return restored

    async def save(self) -> None:
        """Save the variables, so that another session can go on from here."""
        if isinstance(self._session, Savable):
            await self._session.save()

    async def restore_variables(self) -> Resumed | None:
        """Restore the variables of a resumed session; None if nothing was kept. Raises SandboxUnavailable."""
        if self.spec.state is None or not self.spec.state.is_dir():
            return None
        await self._refresh_variables()
        return self._lasting.resumed if self._lasting else None

    async def _refresh_variables(self) -> Changed | None:
        """Read the variables. Returns what has changed since the last time; None if nothing has, or it is unknown."""
        session, before = await self.ensure_session(), self._variables
        try:
            self._variables = {one.name: one for one in await session.variables()}
        except SandboxUnavailable:  # the next cell reports it
            return None
        return diff_variables(before, self._variables)

    def inventory(self) -> str:
        return inventory(self._variables)

    async def summarize_files(self) -> str:
        return await self._files() if self.glances else ""

    async def describe_state(self, about: str) -> str:
        # Do not show files that the model has not named, unless it was shown all files anyway.
        files = (await self._files()).split("\n")
        lines = [line for line in files if self.glances or ((name := file_of(line)) and name in about)]
        return "\n".join(filter(None, (*lines, self.inventory())))

    async def _files(self) -> str:
        """Describe the contents of the files, one line each; empty if the sandbox cannot."""
        if self.privacy.about_to_read():
            await self.egress.disconnect_all()
        try:
            session = await self.ensure_session()
            return await describe_files(session, data_inside(self.spec.data, session.capabilities))
        except (SandboxUnavailable, NotSupported):
            return ""

    async def shell(self, command: str) -> CommandOutcome:
        session = await self.ensure_session()
        return await session.command(["/bin/sh", "-c", command], timeout_s=self.spec.limits.cell_s)

    def _make_checkpoints(self, code: str) -> AbstractAsyncContextManager[None]:
        return self.checkpoints.around(code) if self.checkpoints else nullcontext()

    def _with_files(self, performed: Performed) -> Performed:
        """Add the changes of the workspace's files."""
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
        with suppress(LogUnwritable):  # the change itself is still recorded
            return None if content is None else self.log.blobs.put(content)
        return None

    def picture(self, blob: BlobId) -> bytes | None:
        with suppress(BlobMissing):
            return self.log.blobs.get(blob)
        return None


def _log_failure(start: asyncio.Task[Session]) -> None:
    """Log the failure here, as the caller may have stopped waiting."""
    if not start.cancelled() and (error := start.exception()):
        logger.info("the sandbox did not start: %s", error)
