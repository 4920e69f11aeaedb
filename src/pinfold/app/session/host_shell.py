"""Shell commands outside the sandbox, as the user's own. Only ever after they were asked, with the bytes before them."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.abc

from pinfold.sandbox import CommandOutcome

KEPT = 1 << 20
"""Bytes of each stream."""
_KILLED_S = 5.0


class HostShell:
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def run(self, command: str, *, workdir: str, timeout_s: float) -> CommandOutcome:
        """In the workspace, with the user's own environment and nothing to read; ended as a whole when its time is over."""
        folder = self._workspace / workdir
        try:
            process = await anyio.open_process(
                ["/bin/bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            return CommandOutcome(status="error", stderr=f"{error.filename}: {error.strerror}\n".encode())
        out, err = _LimitedOutput(), _LimitedOutput()
        in_time = False
        try:
            with anyio.move_on_after(timeout_s):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(out.read, process.stdout)
                    tasks.start_soon(err.read, process.stderr)
                await process.wait()
                in_time = True
        finally:
            with anyio.CancelScope(shield=True):
                await _kill_group(process)
        status = "timeout" if not in_time else "ok" if process.returncode == 0 else "error"
        return CommandOutcome(
            status=status,
            code=process.returncode,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            dropped_bytes=out.dropped + err.dropped,
        )


class _LimitedOutput:
    def __init__(self) -> None:
        self.kept = bytearray()
        self.dropped = 0

    async def read(self, stream: anyio.abc.ByteReceiveStream | None) -> None:
        if stream is None:
            return
        async for piece in stream:
            room = KEPT - len(self.kept)
            self.kept += piece[:room]
            self.dropped += max(0, len(piece) - room)


async def _kill_group(process: anyio.abc.Process) -> None:
    """With everything it started that did not leave its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with anyio.move_on_after(_KILLED_S):
        await process.wait()
    await process.aclose()
