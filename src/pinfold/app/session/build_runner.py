"""Puts a session's hands together: its tools, its way out, and policy before both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinfold.app.config.databases import ConfiguredDatabases
from pinfold.app.errors import ConfigError
from pinfold.app.session.action_context import SessionCommands
from pinfold.app.session.action_policy import ActionPolicy
from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.app.session.catalogue import Catalogue
from pinfold.app.session.egress import SessionEgress
from pinfold.app.session.environment import install_tool
from pinfold.app.session.memory_tools import memory_tools, open_memory
from pinfold.app.session.toolbox import ToolOptions, build_registry, build_tools
from pinfold.app.trust.grants import Grants, user_rules
from pinfold.app.trust.privacy import Privacy
from pinfold.log import BlobMissing, Blobs, Log
from pinfold.sandbox import Provider, Session, Spec
from pinfold.tools import as_tool

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers


class _StoredResults:
    """Results that were too long to be shown, by the handle that was."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    def get(self, handle: str) -> bytes | None:
        blob = self._blobs.find(handle)
        try:
            return self._blobs.get(blob) if blob else None
        except BlobMissing:
            return None


def _build_egress(hosts: tuple[str, ...]) -> SessionEgress:
    if not hosts:
        return SessionEgress(())
    from pinfold.net import BadPattern

    try:
        return SessionEgress(hosts)
    except BadPattern as error:
        raise ConfigError(f"network.allow: {error}") from error


def build_runner(
    options: ToolOptions,
    given: tuple[Callable[..., Any], ...],
    spec: Spec,
    log: Log,
    *,
    provider: Provider,
    python: Path | None,
    small: bool,
    servers: SessionServers | None = None,
) -> tuple[SandboxActionRunner, tuple[str, ...]]:
    """And a line for each tool that could not be had. Raises ConfigError, BadTool."""
    way = _build_egress(options.hosts)
    runner: SandboxActionRunner | None = None

    async def ensure_session() -> Session:
        assert runner is not None
        return await runner.ensure_session()

    async def about_to_read() -> None:
        if privacy.mark_exposed():
            await way.disconnect_all()  # connections were allowed while there was nothing to tell

    inside = SessionCommands(ensure_session)
    handed = [as_tool(tool) for tool in given]
    names = frozenset(tool.name for tool in handed)
    writable = tuple(mount.path for mount in spec.mounts if mount.writable)
    folders, kept = (spec.workspace, *writable), _StoredResults(log.blobs)
    privacy = Privacy(spec.workspace, more=bool(spec.data or spec.mounts))
    databases = ConfiguredDatabases(options.data, folders, about_to_read) if options.data else None
    own = [install_tool(spec.site, python, folders)] if spec.site and python else []
    own += databases.tools() if databases else []
    own += memory_tools(
        partial(open_memory, spec.workspace, log.session),
        can_write=spec.writable and (options.remembers or log.folder is not None),
        is_untrusted=lambda: judging.is_untrusted,
        about_to_read=about_to_read,
    )
    tools, faults = build_tools(options, [*own, *handed], inside=inside, kept=kept, way=way, spec=spec)
    registry = build_registry(options, tools, names, small=small)
    if servers:
        servers.register(registry)
    shared: dict[str, Any] = {"registry": registry, "way": way, "privacy": privacy, "servers": servers}
    judging = ActionPolicy(
        **shared,
        workspace=spec.workspace,
        inside=inside,
        handed=names,
        rules=user_rules(),
        grants=Grants(),
        guards=options.guards,
        mounts=writable,
        flows=options.flows,
    )
    catalogue, closing = Catalogue(registry, servers), (databases.close,) if databases else ()
    where: dict[str, Any] = {"provider": provider, "spec": spec, "journal": log, "blobs": log.blobs, "glances": small}
    runner = SandboxActionRunner(
        **shared, **where, judging=judging, catalogue=catalogue, output=options.output, closing=closing
    )
    return runner, faults
