"""An MCP server as its user describes it. Starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pinfold.events import Reach

Transport: TypeAlias = Literal["stdio", "http", "sse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One entry of `mcpServers`."""

    name: str
    """The module of `servers` in which code finds its tools."""
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    reach: Reach | None = None
    """What the user says it needs. One of `nothing` or `workspace`, or `network` with hosts, runs in a sandbox of its own."""
    hosts: tuple[str, ...] = ()
    """That it may connect to from there."""
    timeout_s: float = 60.0
    origin: str = ""
    """The file that names it."""
