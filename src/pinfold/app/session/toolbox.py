"""The tools of a session: those that come with Pinfold, the user's own, and what of them the model is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from pinfold.app.config.databases import DataConfig
from pinfold.app.paths import config_dir
from pinfold.app.session.egress import Flows, SessionEgress
from pinfold.app.session.host_shell import HostShell
from pinfold.app.session.observations import OutputLimits
from pinfold.app.session.web import WebAccess
from pinfold.app.trust.secrets import Secrets
from pinfold.policy import Guards
from pinfold.tools import SHOWN, Registry, Tool
from pinfold.tools.ports import Inside, Kept


class ToolOptions(Struct, frozen=True, kw_only=True):
    enable: tuple[str, ...] | None = None
    """Names or patterns; None: all."""
    disable: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """That may be reached without asking, where the mode says so."""
    flows: Flows = field(default_factory=Flows)
    output: OutputLimits = field(default_factory=OutputLimits)
    guards: Guards = field(default_factory=Guards)
    declared: tuple[tuple[str, bytes], ...] = ()
    """YAML files of the workspace that are trusted, by name."""
    carries: bool = False
    """Whoever uses the session from outside brings files in and takes them out: `put_file`, `get_file`."""
    remembers: bool = False
    """Notes may be kept, though the session is not."""
    mcp: bytes | None = None
    """`.mcp.json` of the workspace, if it is trusted."""
    more_mcp: tuple[str, bytes] | None = None
    """Servers that the caller names: where, and what such a file would hold."""
    data: Mapping[str, DataConfig] = field(default_factory=dict[str, DataConfig])
    """Databases of the user's, by name."""
    served: tuple[Tool[..., Any], ...] = ()
    """Tools of servers that are known already, one server after the other."""


class _HostSecrets:
    """The user's secrets, as tools ask for them."""

    async def secret(self, name: str, host: str) -> str | None:
        return Secrets().get(name, host)


def build_tools(
    options: ToolOptions,
    own: Iterable[Tool[..., Any]],
    *,
    inside: Inside,
    kept: Kept,
    way: SessionEgress,
    workspace: Path,
    shell_s: float,
) -> tuple[list[Tool[..., Any]], tuple[str, ...]]:
    """All of them, and a line for each that could not be had."""
    from pinfold.tools.builtin.files import file_tools
    from pinfold.tools.builtin.shell import shell_tool
    from pinfold.tools.builtin.small import small_tools
    from pinfold.tools.builtin.web import fetch_tool
    from pinfold.tools.entry_points import load_plugins

    web = WebAccess(way)
    made: list[Tool[..., Any]] = [
        shell_tool(inside, str(workspace), host=HostShell(workspace), default_s=shell_s),
        *file_tools(inside, kept),
        fetch_tool(WebAccess(way, Secrets().headers_for)),
        *small_tools(),
    ]
    if options.carries:
        from pinfold.tools.builtin.file_transfer import transfer_tools

        made += transfer_tools(inside)
    faults: list[str] = []
    folder = config_dir() / "tools"
    if options.declared or folder.is_dir():
        from pinfold.tools.declared import Ports, load_folder, yaml_tool

        ports = Ports(inside=inside, web=web, secrets=_HostSecrets())
        loaded = load_folder(folder, ports)
        faults += loaded.faults
        made += [*loaded.tools, *(yaml_tool(content, name, ports) for name, content in options.declared)]
    others = load_plugins()
    made += others.tools
    faults += others.faults
    return [*made, *own], tuple(faults)


def select_shown_tools(*, small: bool, handed: Iterable[str]) -> tuple[str, ...]:
    """A small model is told of `python` alone, and of what the user handed over."""
    return (*(("python",) if small else SHOWN), *handed)


def build_registry(
    options: ToolOptions, tools: Iterable[Tool[..., Any]], handed: Iterable[str], *, small: bool
) -> Registry:
    shown = select_shown_tools(small=small, handed=handed)
    registry = Registry(tools, enable=options.enable, disable=options.disable, shown=shown)
    for server, served in groupby(options.served, key=lambda tool: tool.server):
        registry.put(server, served)
    return registry
