"""A sandbox beside the session's: no network, none of the user's files, nothing of the caller's. Functions of skills run in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
from anyio import CancelScope, to_thread

from pinfold.app.paths import write_whole
from pinfold.sandbox import CommandOutcome, Limits, Provider, Session, Spec
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.sandbox.providers.auto import Auto
from pinfold.tools import BadCall

MEMORY = 1 << 30
CALL_S = 30.0
"""How long one call of a skill's function may take."""


class SkillSandbox:
    """Starts with its first command. Each command is a process of its own, and only with `writable` does it leave files behind."""

    def __init__(self, provider: Provider, files: Mapping[str, bytes] | None = None, *, writable: bool = False) -> None:
        self._provider = provider
        self._files = files or {}
        self._writable = writable
        self._folder: TemporaryFolder | None = None
        self._session: Session | None = None
        self._one_at_a_time = anyio.Lock()

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        env: Mapping[str, str] | None = None,
    ) -> CommandOutcome:
        """Raises BadCall where there is no sandbox, SandboxUnavailable."""
        async with self._one_at_a_time:
            session = self._session = self._session or await self._open()
            given = {"PATH": "/usr/bin:/bin", **(env or {})}
            return await session.command(argv, timeout_s=timeout_s, stdin=stdin, workdir=workdir, env=given)

    async def _open(self) -> Session:
        folder = self._folder = self._folder or TemporaryFolder("workspace")
        for name, data in self._files.items():
            (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder.path / name, data)
        spec = Spec(workspace=folder.path, writable=self._writable, limits=Limits(memory_bytes=MEMORY))
        provider = await self._provider.resolve(spec) if isinstance(self._provider, Auto) else self._provider
        can = provider.capabilities
        if not can.isolated or not can.commands:
            raise BadCall(f"functions of skills run in a sandbox only, and {provider.name} is none for them")
        return await provider.open(spec)

    async def close(self) -> None:
        with CancelScope(shield=True):
            if self._session is not None:
                session, self._session = self._session, None
                await session.close()
            if self._folder is not None:
                await to_thread.run_sync(self._folder.remove)
