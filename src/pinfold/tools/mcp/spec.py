"""An MCP server as the user configured it. Starts nothing."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from pinfold.events import Reach

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Grant: TypeAlias = Literal["code", "client_credentials"]
"""`code`: the user signs in with a browser. `client_credentials`: the server knows a secret of ours."""
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """What the user configured about a server's sign-in. All of it is optional: most servers provide it themselves."""

    grant: Grant = "code"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    issuer: str = ""
    """The authorisation server that the secret is for, and the only one it is sent to."""
    callback_port: int = 0
    """Port on the loopback address to which the browser returns; 0: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One entry of `mcpServers`."""

    name: str
    """The module of `servers` in which code finds its tools."""
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str = ""
    """Its working folder; empty means the home folder, where the agent cannot write."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuth | None = None
    allow_http: bool = False
    """Use plain http with another machine, so that anyone on the way can read and change everything."""
    reach: Reach | None = None
    """What the user says it needs. With `nothing`, `workspace`, or `network` and hosts, it runs in its own sandbox."""
    hosts: tuple[str, ...] = ()
    """Hosts the sandboxed server may contact."""
    timeout_s: float = TIMEOUT_S
    origin: str = ""
    """The file that names it."""
    is_confined: bool = False
    """A project file names it, and the user gave it no more than a sandbox with the project's folder."""
    wants: str = ""
    """What it asks for beyond what it was given."""
    gives: str = ""
    """The options of `pinfold mcp trust` that would give it that."""

    def folders(self) -> list[Path]:
        """Folders that its arguments name: it should work there, not in the current folder."""
        named = (Path(argument) for argument in self.args)
        return [path for path in named if path.is_absolute() and path.is_dir()]


def module_name(entry: str) -> str:
    """The name in Python of an entry of `mcpServers`: `brave-search` is `servers.brave_search`; empty if it has none."""
    name = re.sub(r"[-. ]", "_", entry)
    if name[:1].isdigit():
        name = f"_{name}"
    is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) and not name.startswith("__")
    return f"{name}_" if is_name and keyword.iskeyword(name) else name if is_name else ""
