"""A map of this installation or a live session as plain data: which parts talk to which, as configured now.

Starts nothing but the sandbox, whose isolation has to be verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal, TypeAlias, cast

import msgspec

from pinfold.app.config.layers import Loaded, load_config
from pinfold.app.config.schema import Config
from pinfold.app.diagnostics.machine import CheckContext, cells_python
from pinfold.app.errors import ConfigError
from pinfold.app.models.local_models import choose_among, reachable_models
from pinfold.app.models.session_models import BreakerStore, CallOptions
from pinfold.app.ownership.owner import Link
from pinfold.app.paths import config_dir, data_dir, state_dir
from pinfold.app.session.build_session import ResolvedSandbox, build_runner
from pinfold.app.session.notes import memory_file
from pinfold.app.session.options import Options, new_session_options
from pinfold.app.storage.session_store import SessionStore
from pinfold.app.trust.secrets import RedactingLog, Secrets
from pinfold.engine import model_key
from pinfold.events import Json, PinfoldError, new_session_id
from pinfold.model import destination_of
from pinfold.sandbox import Spec, is_built_in, provider_named
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.providers.auto import Auto
from pinfold.sandbox.providers.doctor import SandboxCheck, examine
from pinfold.text import abbreviate_home, join_names, pluralize
from pinfold.tools import Registry
from pinfold.tools.registry import load_plugins

Kind: TypeAlias = Literal[
    "person", "engine", "model", "place", "sandbox", "tools", "server", "database", "network", "store"
]
LIMIT_S = 10.0
"""Time limit for verifying the sandbox."""
_NAMED = 6
"""Maximum tools, hosts and the like that a node names."""
_ENGINE = "engine"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: Kind
    title: str
    lines: tuple[str, ...] = ()
    faulty: bool = False
    """True if it is configured but does not work."""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    words: str = ""


class SystemMap(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


class _MapBuilder:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: list[Edge] = []

    def add(
        self,
        id_: str,
        kind: Kind,
        title: str,
        lines: Iterable[str] = (),
        *,
        after: str = "",
        words: str = "",
        faulty: bool = False,
    ) -> str:
        """Add a node and an edge to it; return its id. An existing node is not changed. Empty lines are dropped."""
        shown = tuple(map(abbreviate_home, filter(None, lines)))
        self.nodes.setdefault(id_, Node(id=id_, kind=kind, title=abbreviate_home(title), lines=shown, faulty=faulty))
        edge = Edge(source=after, target=id_, words=words)
        if after and edge not in self.edges:
            self.edges.append(edge)
        return id_

    def build(self) -> SystemMap:
        return SystemMap(nodes=tuple(self.nodes.values()), edges=tuple(self.edges))


async def build_system_map(workspace: Path, fronts: Iterable[str]) -> SystemMap:
    """Map this folder's configuration. `fronts` names the front ends. Raises ConfigError."""
    loaded = load_config(workspace)
    options = new_session_options(new_session_id(), workspace, {})
    config = loaded.config
    builder = _MapBuilder()
    user = builder.add("user", "person", "you", (", ".join(fronts),))
    bounds = (f"mode {config.run.mode}", f"guards {config.run.guards}", f"{config.run.max_steps} steps a turn")
    builder.add(_ENGINE, "engine", "engine and policy", bounds, after=user, words="asks")
    await _models(builder, loaded)
    await _sandbox(builder, loaded, options)
    _tools(builder, options)
    _servers(builder, options)
    before = "tools:sql" if "tools:sql" in builder.nodes else _ENGINE
    for name, data in config.data.items():
        builder.add(f"data:{name}", "database", name, (str(data.rows()["url"]), "read only"), after=before)
    _network(builder, config)
    _stores(builder, config)
    return builder.build()


async def build_session_map(link: Link) -> SystemMap:
    """Map a live session. Raises PinfoldError."""
    now = await link.status()
    loaded = load_config(Path(now.workspace))
    builder = _MapBuilder()
    user = builder.add("user", "person", "you")
    tainted = "has read outside text: sending data out needs your OK" if now.outside else ""
    lines = (now.title, f"mode {now.mode}", tainted)
    builder.add(_ENGINE, "engine", f"session {link.session}", lines, after=user, words="asks")
    if now.no_model:
        builder.add("model", "model", "no model", (now.no_model,), faulty=True, after=_ENGINE)
    else:
        _model(builder, CallOptions.of(loaded.config, loaded.keys()), now.model, "in use", after=_ENGINE, edge="asks")
    sandbox = builder.add("sandbox", "sandbox", f"sandbox: {now.sandbox}", after=_ENGINE, words="runs code in")
    places = {now.workspace: (now.mode != "read-only", "workspace")}
    places |= {path: (False, f"data {name}") for name, path in now.data.items()}
    places |= {path: (writable, "mount") for path, writable in now.mounts.items()}
    for path, (writable, what) in places.items():
        words = "reads and writes" if writable else "reads"
        builder.add(path, "store", path, (what,), after=sandbox, words=words)
    tools: dict[str, list[str]] = {}
    for one in cast("list[dict[str, str]]", await link.query("tools")):
        tools.setdefault(one["server"], []).append(one["name"].removeprefix(f"{one['server']}."))
    states = {str(one["name"]): one for one in cast("list[dict[str, Json]]", await link.query("servers"))}
    for server in dict.fromkeys((*tools, *states)):
        names, state = tools.get(server, []), states.get(server)
        how = (f"MCP, {state['state']}", str(state["problem"] or "")) if state else ()
        _add_tools(
            builder, server, names, how, kind="server" if state else "tools", faulty=bool(state and state["problem"])
        )
    granted = [f"{one['pattern']} ({one['scope']})" for one in cast("list[dict[str, str]]", await link.query("grants"))]
    hosts = list(loaded.config.network.allow)
    lines = (join_names(hosts, _NAMED) if hosts else "no host without asking", *granted)
    builder.add("allowed", "network", "allowed without asking", lines, after=_ENGINE)
    builder.add("log", "store", "log", (str(SessionStore().folder_of(link.session)),), after=_ENGINE, words="keeps")
    return builder.build()


async def _models(builder: _MapBuilder, loaded: Loaded) -> None:
    config = loaded.config
    calling = CallOptions.of(config, loaded.keys())
    name, words = config.model.name, "configured"
    if not name:
        try:
            chosen = choose_among(await reachable_models())
            name, words = chosen.name, "found on this machine"
        except ConfigError:
            fix = "name one: pinfold config set model.name NAME"
            builder.add("model", "model", "no model", (fix,), faulty=True, after=_ENGINE)
            return
    before = _model(builder, calling, name, words, after=_ENGINE, edge="asks")
    for other in calling.fallback:
        before = _model(builder, calling, other, "fallback", after=before, edge="if it fails")
    if calling.escalate:
        first = f"model:{name}"
        _model(builder, calling, calling.escalate, "stronger", after=first, edge="if it is stuck")


def _model(builder: _MapBuilder, calling: CallOptions, name: str, words: str, *, after: str, edge: str) -> str:
    is_paused = model_key(name) in BreakerStore().all()
    lines = (words, *(("paused: it kept failing",) if is_paused else ()))
    id_ = builder.add(f"model:{name}", "model", name, lines, faulty=is_paused, after=after, words=edge)
    place = destination_of(name, calling.access())
    if place:
        builder.add(f"place:{place}", "place", place, ("the conversation goes there",), after=id_)
    else:
        builder.add(f"place:{name}", "place", "this machine", ("nothing leaves",), after=id_)
    return id_


async def _sandbox(builder: _MapBuilder, loaded: Loaded, options: Options) -> None:
    context = CheckContext(workspace=options.workspace or Path("/"), loaded=loaded, limit_s=LIMIT_S)
    python, said = cells_python(context)
    wanted = loaded.config.sandbox.provider
    checked = await _probe_sandbox(wanted, python)
    is_fine = checked.status == "proven"
    asked = f"{wanted} takes {checked.name}" if wanted != checked.name else "by name"
    how = f"{checked.level} isolation verified" if is_fine else checked.cause or checked.status
    name, is_broken = f"sandbox: {checked.name}", any(one.standing == "fault" for one in said)
    builder.add("sandbox", "sandbox", name, (asked, how), faulty=not is_fine, after=_ENGINE, words="runs code in")
    title, lines = f"Python {checked.environment.get('python', '')}", (str(python or ""), *(one.cause for one in said))
    builder.add("python", "sandbox", title.strip(), lines, faulty=is_broken, after="sandbox")
    trusted = f"followed: {join_names(list(loaded.obeyed), 3)}" if loaded.obeyed else ""
    ignored = "its project instructions are ignored" if loaded.notice else ""
    words = "reads and writes" if loaded.config.run.mode != "read-only" else "reads"
    builder.add(
        "workspace", "store", str(options.workspace), ("workspace", trusted, ignored), after="sandbox", words=words
    )


async def _probe_sandbox(wanted: str, python: Path | None) -> SandboxCheck:
    try:
        provider = provider_named(wanted, python=python) if is_built_in(wanted) else provider_named(wanted)
        if isinstance(provider, Auto):
            wanted = (await provider.resolve()).name
    except PinfoldError as error:
        return SandboxCheck(name=wanted, status="refused", cause=str(error))
    return (await examine((wanted,), python=python, limit_s=LIMIT_S)).sandboxes[0]


def _tools(builder: _MapBuilder, options: Options) -> None:
    """Add the tools that a new session would have, by the server that code imports them from."""
    try:
        registry, faults = _registry(options)
    except PinfoldError as error:
        builder.add("tools:", "tools", "tools", (str(error),), faulty=True, after=_ENGINE)
        return
    for server, tools in registry.servers.items():
        names = [tool.name.removeprefix(f"{server}.") for tool in tools]
        _add_tools(builder, server, names, _find_user_tools(options) if server == "tools" else ())
    if faults:
        builder.add("tools:!", "tools", "tools left out", faults, faulty=True, after=_ENGINE)


def _add_tools(
    builder: _MapBuilder,
    server: str,
    names: list[str],
    more: Iterable[str],
    *,
    kind: Kind = "tools",
    faulty: bool = False,
) -> None:
    lines = (pluralize("tool", len(names)), join_names(names, _NAMED), *more)
    builder.add(f"tools:{server}", kind, f"servers.{server}", lines, after=_ENGINE, words="calls", faulty=faulty)


def _registry(options: Options) -> tuple[Registry, tuple[str, ...]]:
    """Return the registry as a stored session would have it. Raises PinfoldError."""
    with folder("workspace") as place, closing(RedactingLog(place, new_session_id())) as log:
        spec = Spec(workspace=options.workspace or place, site=place)
        resolved = ResolvedSandbox(provider=provider_named("auto"), python=Path("python"))
        runner, faults = build_runner(options, spec, log, resolved, small=False, servers=None)
    return runner.registry, faults


def _find_user_tools(options: Options) -> Iterator[str]:
    own = config_dir() / "tools"
    if count := sum(1 for _ in own.glob("*.y*ml")) if own.is_dir() else 0:
        yield f"{count} from {own}"
    if options.toolbox.declared:
        yield f"{len(options.toolbox.declared)} from the workspace"
    if count := len(load_plugins().tools):
        yield f"{count} from installed packages"


def _servers(builder: _MapBuilder, options: Options) -> None:
    if options.toolbox.mcp is None and not (config_dir() / "mcp.json").exists():
        return
    from pinfold.app.session.mcp.files import load_servers
    from pinfold.app.session.mcp.inspection import list_servers as known
    from pinfold.app.trust.mcp_reach import is_sandboxed

    named = load_servers(options.toolbox.mcp, str((options.workspace or Path()) / ".mcp.json"))
    for one in known(named.specs):
        spec = one.spec
        tools = "not seen yet" if one.tools is None else pluralize("tool", one.tools)
        state = f"failed: {one.failure.why}" if one.failure else "trusted" if one.trusted else "not trusted"
        lines, failed = (f"MCP over {spec.transport}", tools, state), one.failure is not None
        builder.add(f"mcp:{spec.name}", "server", spec.name, lines, faulty=failed, after=_ENGINE, words="calls")
        boxed = "a sandbox of its own" if is_sandboxed(spec) else ""
        place = boxed or ("this machine, unconfined" if spec.transport == "stdio" else one.where)
        builder.add(
            f"reach:{place if not boxed else spec.name}",
            "sandbox" if boxed else "place",
            place,
            (f"reach {spec.reach}" if boxed else "", join_names(spec.hosts, _NAMED)),
            after=f"mcp:{spec.name}",
        )
    for line in named.faults:
        builder.add(f"mcp:{line}", "server", "not used", (line,), faulty=True, after=_ENGINE)


def _network(builder: _MapBuilder, config: Config) -> None:
    hosts = config.network.allow
    lines = [join_names(hosts, _NAMED) if hosts else "no host without asking"]
    with suppress(ConfigError):
        if secrets := [one.name for one in Secrets().all()]:
            lines.append(f"secrets: {join_names(secrets, _NAMED)}")
    gate = builder.add("egress", "network", "egress proxy", lines, after="sandbox", words="goes out by")
    if "tools:web" in builder.nodes:
        builder.edges.append(Edge(source="tools:web", target=gate))


def _stores(builder: _MapBuilder, config: Config) -> None:
    kept = f"{config.sessions.keep_days:g} days, {config.sessions.quota_gb:g} GB"
    places = {
        "sessions": (data_dir() / "sessions", ("logs and blobs", kept)),
        "memory": (memory_file(), ("notes for later sessions",)),
        "operator log": (state_dir() / "log", (f"level {config.log.level}",)),
    }
    for name, (path, lines) in places.items():
        builder.add(f"store:{name}", "store", name, (*lines, str(path)), after=_ENGINE, words="keeps")


def plain(found: SystemMap) -> dict[str, object]:
    """Return plain data for `pinfold map --json`."""
    return msgspec.to_builtins(found)
