"""Provider `unsafe-local`: a plain subprocess. It isolates nothing."""

from __future__ import annotations

from pathlib import Path

from pinfold.sandbox.contract import Capabilities, Session, Spec
from pinfold.sandbox.guests import open_guest

NOTICE = (
    "unsafe-local does not isolate anything: code runs as you, with your files and your network. "
    "Use it only for code you would run yourself."
)


class UnsafeLocal:
    """Sessions that are subprocesses with a clean environment, a process group of their own and nothing more."""

    def __init__(self, python: Path | None = None) -> None:
        """`python` runs the cells, this one unless given."""
        self._python = python

    @property
    def name(self) -> str:
        return "unsafe-local"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            isolated=False, sockets=True, site=True, calls=True, commands=True, read_only_commands=True, durable=True
        )

    @property
    def notice(self) -> str:
        return NOTICE

    async def open(self, spec: Spec) -> Session:
        return await open_guest(spec, self.capabilities, python=self._python)
