"""Puts a session's hands together: its tools, its way out, and policy before both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinfold.app.catalogue import Catalogue
from pinfold.app.databases import Configured
from pinfold.app.doing import InSession
from pinfold.app.environment import install_tool
from pinfold.app.errors import ConfigError
from pinfold.app.grants import Grants
from pinfold.app.hands import SandboxAndTools
from pinfold.app.judging import Judging
from pinfold.app.outgoing import WayOut
from pinfold.app.policies import user_rules
from pinfold.app.privacy import Privacy
from pinfold.app.remembering import memory_of, memory_tools
from pinfold.app.toolbox import ToolOptions, registry_of, tools_of
from pinfold.log import BlobMissing, Blobs, Log
from pinfold.sandbox import Provider, Session, Spec
from pinfold.tools import as_tool

if TYPE_CHECKING:
    from pinfold.app.mcp.servers import SessionServers


class _Kept:
    """Results that were too long to be shown, by the handle that was."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def get(self, handle: str) -> bytes | None:
        blob = self._blobs.find(handle)
        try:
            return self._blobs.get(blob) if blob else None
        except BlobMissing:
            return None


def _way_out(hosts: tuple[str, ...]) -> WayOut:
    if not hosts:
        return WayOut(())
    from pinfold.net import BadPattern

    try:
        return WayOut(hosts)
    except BadPattern as error:
        raise ConfigError(f"network.allow: {error}") from error


def equipped(
    options: ToolOptions,
    given: tuple[Callable[..., Any], ...],
    spec: Spec,
    log: Log,
    *,
    provider: Provider,
    python: Path | None,
    small: bool,
    servers: SessionServers | None = None,
) -> tuple[SandboxAndTools, tuple[str, ...]]:
    """And a line for each tool that could not be had. Raises ConfigError, BadTool."""
    way = _way_out(options.hosts)
    hands: SandboxAndTools | None = None

    async def started() -> Session:
        assert hands is not None
        return await hands.started()

    inside = InSession(started)
    handed = [as_tool(tool) for tool in given]
    writable = [spec.workspace, *(mount.path for mount in spec.mounts if mount.writable)]
    own = [install_tool(spec.site, python, writable)] if spec.site and python else []
    privacy = Privacy(spec.workspace, more=bool(spec.data or spec.mounts))

    async def about_to_read() -> None:
        if privacy.reveal():
            await way.cut()  # what is connected was let through while there was nothing to tell

    databases = _databases(options, spec, about_to_read)
    if databases:
        own += databases.tools()
    own += memory_tools(
        partial(memory_of, spec.workspace, log.session),
        can_write=spec.writable and (options.remembers or log.folder is not None),
        is_untrusted=lambda: judging.is_untrusted,
        about_to_read=about_to_read,
    )
    tools, faults = tools_of(
        options,
        [*own, *handed],
        inside=inside,
        kept=_Kept(log.blobs),
        way=way,
        workspace=spec.workspace,
        shell_s=spec.limits.shell_s,
    )
    names = frozenset(tool.name for tool in handed)
    registry = registry_of(options, tools, names, small=small)
    if servers:
        servers.register(registry)
    judging = Judging(
        registry=registry,
        workspace=spec.workspace,
        way=way,
        privacy=privacy,
        inside=inside,
        handed=names,
        rules=user_rules(),
        grants=Grants(),
        guards=options.guards,
        servers=servers,
        mounts=tuple(mount.path for mount in spec.mounts if mount.writable),
        flows=options.flows,
    )
    hands = SandboxAndTools(
        provider=provider,
        spec=spec,
        registry=registry,
        judging=judging,
        way=way,
        privacy=privacy,
        servers=servers,
        catalogue=Catalogue(registry, servers),
        glances=small,
        output=options.output,
        journal=log,
        blobs=log.blobs,
        closing=(databases.close,) if databases else (),
    )
    return hands, faults


def _databases(
    options: ToolOptions, spec: Spec, about_to_read: Callable[[], Awaitable[None]]
) -> Configured | None:
    if not options.data:
        return None
    writable = (mount.path for mount in spec.mounts if mount.writable)
    return Configured(options.data, (spec.workspace, *writable), about_to_read)
