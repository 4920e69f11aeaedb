"""Lets users inspect their servers without a session: what each offers, how it has changed, what a tool returns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
from msgspec import Struct, field

from pinfold.app.config.layers import load_config
from pinfold.app.errors import ConfigError
from pinfold.app.paths import workspace_at
from pinfold.app.session.mcp.credentials import StoredCredentials
from pinfold.app.session.mcp.files import NamedServers, load_servers
from pinfold.app.session.mcp.pins import Failure, FilePins, failure_of, note_failure, note_success
from pinfold.app.session.mcp.placement import describe_place, registry_hint
from pinfold.app.session.mcp.programs import Programs
from pinfold.app.trust.project_files import SERVERS
from pinfold.app.trust.workspace_trust import user_rules
from pinfold.events import CallTool, Deny, Effect, Json, PinfoldError
from pinfold.policy import Facts, judge
from pinfold.sandbox import provider_named
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.providers.doctor import LATE, WAIT
from pinfold.tools import AnyTool, Registry, Result
from pinfold.tools.mcp.ports import Limits, McpPorts, Person
from pinfold.tools.mcp.servers import Servers
from pinfold.tools.mcp.spec import ServerSpec

_END_S = 0.5
"""Time for a server that was only inspected to end by itself."""


class ServerFailed(PinfoldError):
    """A server cannot be used; says why."""


class AbsentPerson:
    """A Person and Sampler that declines every request."""

    async def elicit(self, *_: object, **__: object) -> None:
        return None

    async def open_page(self, *_: object, **__: object) -> bool:
        return False

    async def sample(self, *_: object, **__: object) -> None:
        return None


class ServerListing(Struct, frozen=True, kw_only=True):
    """What is known of a server without starting it."""

    spec: ServerSpec
    where: str
    trusted: bool
    """True if its annotations count."""
    tools: int | None
    """Number of tools the user has agreed to; None if the server was never seen."""
    failure: Failure | None


def load_servers_for(workspace: Path) -> NamedServers:
    """Load the user's servers, and the folder's if it is trusted. Raises ConfigError."""
    loaded = load_config(workspace)
    return load_servers(loaded.obeyed.get(SERVERS), str(workspace / SERVERS))


def find_spec(named: NamedServers, name: str) -> ServerSpec:
    """Raises ConfigError."""
    for spec in named.specs:
        if name == spec.name or name.replace("-", "_") == spec.name:
            return spec
    about = [line for line in named.faults if f" {name} " in line or f" {name}:" in line]
    there = ", ".join(spec.name for spec in named.specs) or "none"
    raise ConfigError(about[0] if about else f"no MCP server is called {name!r}; there are: {there}")


def forget(spec: ServerSpec) -> None:
    """Forget what was agreed to, the sign-in and the last failure of a server. Raises ConfigError."""
    FilePins((spec,)).forget(spec.name)
    StoredCredentials((spec,)).put(spec.name, None)
    note_success(spec.name)


def list_servers(specs: Sequence[ServerSpec]) -> tuple[ServerListing, ...]:
    """Raises ConfigError."""
    pins = FilePins(specs)
    return tuple(
        ServerListing(
            spec=spec,
            where=describe_place(spec),
            trusted=pins.is_trusted(spec.name),
            tools=None if (manifest := pins.get(spec.name)) is None else len(manifest.get("tools", ())),
            failure=failure_of(spec.name),
        )
        for spec in specs
    )


class ToolOffer(Struct, frozen=True, kw_only=True):
    """A tool as the user is shown it."""

    name: str
    signature: str
    summary: str = field(name="description")
    parameters: Mapping[str, Json]
    effect: Effect
    held: bool


class ServerInspector:
    """Connects to servers by name, for the user."""

    def __init__(self, specs: Sequence[ServerSpec], servers: Servers, pins: FilePins) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._servers = servers
        self._pins = pins
        self.difference, self.is_trusted = servers.difference, pins.is_trusted

    async def connect(self, *names: str) -> Mapping[str, str]:
        """Connect concurrently, to all if none is named. Returns those that did not start, and why."""
        failed = {
            name: "; ".join(filter(None, (why, registry_hint(self._specs[name]))))
            for name, why in (await self._servers.start(*names)).items()
        }
        for name in names or self._servers.names:
            if name in failed:
                note_failure(name, failed[name])
            else:
                note_success(name)
        return failed

    def is_program(self, name: str) -> bool:
        """Return True if the server is a program started here."""
        return self._specs[name].transport == "stdio"

    def tools(self, name: str) -> tuple[AnyTool, ...]:
        return self._servers.pinned_tools(name) or ()

    def list_offers(self, name: str) -> tuple[ToolOffer, ...]:
        from pinfold.tools.stubs.modules import first_sentence, local_name, signature
        from pinfold.tools.stubs.shapes import identifiers

        tools = self.tools(name)
        names = identifiers([local_name(tool) for tool in tools])
        return tuple(
            ToolOffer(
                name=tool.name,
                signature=signature(tool, names[local_name(tool)]),
                summary=first_sentence(tool.description),
                parameters=tool.parameters or {},
                effect=tool.effect,
                held=bool(tool.held),
            )
            for tool in tools
        )

    def properties(self, name: str, tool: str) -> Mapping[str, Mapping[str, Json]]:
        """Return the schemas of a tool's arguments, by name; empty if there is no such tool."""
        found = next((one for one in self.tools(name) if one.name == f"{name}.{tool}"), None)
        known: Json = (found.parameters or {}).get("properties") if found else None
        properties = cast("dict[str, Json]", known) if isinstance(known, dict) else {}
        return {key: cast("dict[str, Json]", it) for key, it in properties.items() if isinstance(it, dict)}

    def annotations(self, name: str) -> Mapping[str, Mapping[str, Json]]:
        """Return the annotations of its tools, by name: whether each only reads, may destroy, may be repeated."""
        manifest = self._pins.get(name) or {}
        return {str(tool["name"]): tool.get("annotations") or {} for tool in manifest.get("tools", [])}

    def trust(self, name: str) -> None:
        """Agree to what the server offers now, and let its annotations count. Raises ConfigError, BadCall."""
        if self.difference(name):
            self._servers.accept(name)
        self._pins.trust(name)

    async def call(self, name: str, tool: str, args: Mapping[str, Json]) -> Result:
        """Call a tool. The user asks directly, so only their own rules, or a changed tool, can refuse it.

        Raises ServerFailed, ToolFailed.
        """
        title = f"{name}.{tool}"
        offered = {one.name: one for one in self.tools(name)}
        found = offered.get(title)
        if found is None:
            there = ", ".join(offered) or "none"
            raise ServerFailed(f"{name} offers no tool {tool!r}; there are: {there}")
        if found.held:
            raise ServerFailed(f"{title} has changed since you agreed to it; look at it: pinfold mcp trust {name}")
        action = CallTool(tool=title, args=dict(args))
        verdict = judge(
            action, Facts(effect=found.effect, reach="outside", handed=True), mode="full", rules=user_rules()
        )
        if isinstance(verdict, Deny):
            raise ServerFailed(verdict.reason)
        registry = Registry()
        registry.put(name, (found,))
        return await registry.call(title, dict(args))


@asynccontextmanager
async def inspect_servers(
    specs: Sequence[ServerSpec], workspace: Path, person: Person | None = None, limits: Limits | None = None
) -> AsyncGenerator[ServerInspector]:
    """Open an inspector. If the folder cannot be a workspace, servers get an empty one. Raises ConfigError."""
    config = load_config(workspace).config
    absent, pins = AbsentPerson(), FilePins(specs)
    stack = ExitStack()
    try:
        workspace = workspace_at(workspace)
    except ConfigError:
        workspace = stack.enter_context(folder("workspace"))
    programs = Programs(workspace, provider_named(config.sandbox.provider), config.sandbox.limits(config.limits))
    world = McpPorts(
        pins=pins,
        credentials=StoredCredentials(specs),
        start_program=programs.start,
        person=person or absent,
        sampler=absent,
        roots=(workspace,),
        on_changed=lambda _: None,
        notice=lambda _: None,
    )
    servers = Servers(specs, world, limits)
    with stack:
        async with servers:
            yield ServerInspector(specs, servers, pins)


async def check_servers(workspace: Path, limit_s: float) -> list[dict[str, Json]]:
    """Start each server once, for `pinfold doctor`: concurrently, for `limit_s` at most. Raises ConfigError."""
    named = load_servers_for(workspace)
    found: list[dict[str, Json]] = [
        {"name": "", "where": "", "tools": 0, "cause": line, "fix": "change the entry"} for line in named.faults
    ]
    failed: dict[str, str] = {}
    async with inspect_servers(named.specs, workspace, limits=Limits(close_s=_END_S)) as look:

        async def connect(name: str) -> None:
            with anyio.move_on_after(limit_s) as patience:
                failed.update(await look.connect(name))
            if patience.cancelled_caught:
                failed[name] = f"{LATE} {limit_s:g} s"

        async with anyio.create_task_group() as tasks:
            for spec in named.specs:
                tasks.start_soon(connect, spec.name)
        for spec in named.specs:
            name, cause = spec.name, failed.get(spec.name, "")
            has_changed = f"it has changed since you agreed: pinfold mcp trust {name}"
            fix = _fix(spec, cause) if cause else has_changed if look.difference(name) else ""
            tools = 0 if cause else len(look.tools(name))
            found.append({"name": name, "where": describe_place(spec), "tools": tools, "cause": cause, "fix": fix})
    return found


def _fix(spec: ServerSpec, cause: str) -> str:
    if cause.startswith(LATE):
        return WAIT
    if "sign in" in cause or "401" in cause:
        return f"sign in at a terminal: pinfold mcp trust {spec.name}"
    if spec.transport != "stdio":
        return f"is {spec.url} right, and is the server running? It is named in {spec.origin}"
    command = " ".join((spec.command, *spec.args))
    return f"try it by hand: {command}; it is named in {spec.origin}"
