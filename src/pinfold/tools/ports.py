"""What tools need of the world. The app puts the concrete things in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Ran(Protocol):
    """How a program ended."""

    @property
    def status(self) -> str:
        """`ok`, `error` or `timeout`."""
        ...

    @property
    def code(self) -> int | None: ...

    @property
    def stdout(self) -> bytes: ...

    @property
    def stderr(self) -> bytes: ...

    @property
    def dropped_bytes(self) -> int: ...


class Inside(Protocol):
    """The session: what runs here reaches exactly what its code can."""

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a program and wait for it. `python3` is the one the cells run in."""
        ...


class Kept(Protocol):
    """What is kept of results that were too long to be shown."""

    def get(self, handle: str) -> bytes | None: ...
