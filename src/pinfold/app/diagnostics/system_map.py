"""How this installation or a live session is wired, as plain data: what talks to what, as configured and registered now.

Starts nothing but the sandbox, which has to prove what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import msgspec

from pinfold.app.config.layers import Config, Loaded, load_config
from pinfold.app.diagnostics.findings import CheckContext
from pinfold.app.diagnostics.sandboxes import cells_python
from pinfold.app.errors import ConfigError
from pinfold.app.models.default_model import choose_among
from pinfold.app.models.local_models import reachable_models
from pinfold.app.models.session_models import BreakerStore, CallOptions
from pinfold.app.paths import config_dir, data_dir, state_dir
from pinfold.app.session.build_runner import build_runner
from pinfold.app.session.live_session import Options
from pinfold.app.session.memory_tools import memory_file
from pinfold.app.session.session_options import new_session_options
from pinfold.app.storage.session_store import SessionStore
from pinfold.app.trust.redacting_log import RedactingLog
from pinfold.app.trust.secrets import Secrets
from pinfold.engine import the_model
from pinfold.events import PinfoldError, new_session_id
from pinfold.model import destination_of
from pinfold.sandbox import Spec, is_built_in, provider_named
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.providers.auto import Auto
from pinfold.sandbox.providers.doctor import SandboxCheck, examine
from pinfold.text import homely, join_names
from pinfold.tools import Registry
from pinfold.tools.entry_points import load_plugins

if TYPE_CHECKING:
    from pinfold.app.ownership.owner import Link

Kind: TypeAlias = Literal[
    "person", "engine", "model", "place", "sandbox", "tools", "server", "database", "network", "store"
]
LIMIT_S = 10.0
"""For the sandbox to prove itself."""
_NAMED = 6
"""Tools, hosts and the like that a box names one by one."""
_ENGINE = "engine"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: Kind
    title: str
    lines: tuple[str, ...] = ()
    faulty: bool = False
    """It is wired, and does not work."""


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

    def add(self, node: Node, *, after: str = "", words: str = "") -> str:
        """Returns its id; a node that is there already stays as it is."""
        self.nodes.setdefault(node.id, node)
        edge = Edge(source=after, target=node.id, words=words)
        if after and edge not in self.edges:
            self.edges.append(edge)
        return node.id


async def build_system_map(workspace: Path, fronts: Iterable[str]) -> SystemMap:
    """Of this folder. `fronts`: what a user can come in by. Raises ConfigError."""
    loaded = load_config(workspace)
    options = new_session_options(new_session_id(), workspace, {})
    config = loaded.config
    drawing = _MapBuilder()
    user = drawing.add(Node(id="user", kind="person", title="you", lines=(", ".join(fronts),)))
    run = config.run
    engine = Node(
        id=_ENGINE,
        kind="engine",
        title="engine and policy",
        lines=(f"mode {run.mode}", f"guards {run.guards}", f"{run.max_steps} steps a turn"),
    )
    drawing.add(engine, after=user, words="asks")
    await _models(drawing, loaded)
    await _sandbox(drawing, loaded, options)
    _tools(drawing, options)
    _servers(drawing, options)
    for name, data in config.data.items():
        drawing.add(
            Node(id=f"data:{name}", kind="database", title=name, lines=(str(data.rows()["url"]), "read only")),
            after="tools:sql" if "tools:sql" in drawing.nodes else _ENGINE,
        )
    _network(drawing, config)
    _stores(drawing, config)
    return SystemMap(nodes=tuple(map(_shorten_paths, drawing.nodes.values())), edges=tuple(drawing.edges))


async def build_session_map(link: Link) -> SystemMap:
    """Of one live session, as it is now. Raises PinfoldError."""
    now = await link.status()
    loaded = load_config(Path(now.workspace))
    drawing = _MapBuilder()
    user = drawing.add(Node(id="user", kind="person", title="you"))
    tainted = "has read others' words: what leaves is asked about" if now.outside else ""
    lines = tuple(filter(None, (now.title, f"mode {now.mode}", tainted)))
    title = f"session {link.session}"
    drawing.add(Node(id=_ENGINE, kind="engine", title=title, lines=lines), after=user, words="asks")
    if now.no_model:
        drawing.add(Node(id="model", kind="model", title="no model", lines=(now.no_model,), faulty=True), after=_ENGINE)
    else:
        _model(drawing, CallOptions.of(loaded.config, loaded.keys()), now.model, "in use", after=_ENGINE, edge="asks")
    sandbox = drawing.add(
        Node(id="sandbox", kind="sandbox", title=f"sandbox: {now.sandbox}"), after=_ENGINE, words="runs code in"
    )
    places = {now.workspace: (now.mode != "read-only", "workspace")}
    places |= {path: (False, f"data {name}") for name, path in now.data.items()}
    places |= {path: (writable, "mount") for path, writable in now.mounts.items()}
    for path, (writable, what) in places.items():
        words = "reads and writes" if writable else "reads"
        drawing.add(Node(id=path, kind="store", title=path, lines=(what,)), after=sandbox, words=words)
    tools: dict[str, list[str]] = {}
    for one in cast("list[dict[str, Any]]", await link.query("tools")):
        tools.setdefault(one["server"], []).append(one["name"].removeprefix(f"{one['server']}."))
    states = {one["name"]: one for one in cast("list[dict[str, Any]]", await link.query("servers"))}
    for server in dict.fromkeys((*tools, *states)):
        names, state = tools.get(server, []), states.get(server)
        how = (f"MCP, {state['state']}", str(state["problem"] or "")) if state else ()
        drawing.add(
            Node(
                id=f"tools:{server}",
                kind="server" if state else "tools",
                title=f"servers.{server}",
                lines=tuple(filter(None, (_format_count(len(names), "tool"), join_names(names, _NAMED), *how))),
                faulty=bool(state and state["problem"]),
            ),
            after=_ENGINE,
            words="calls",
        )
    granted = [f"{one['pattern']} ({one['scope']})" for one in cast("list[dict[str, Any]]", await link.query("grants"))]
    hosts = list(loaded.config.network.allow)
    lines = (join_names(hosts, _NAMED) if hosts else "no host without asking", *granted)
    drawing.add(Node(id="allowed", kind="network", title="allowed without asking", lines=lines), after=_ENGINE)
    kept = Node(id="log", kind="store", title="log", lines=(str(SessionStore().folder_of(link.session)),))
    drawing.add(kept, after=_ENGINE, words="keeps")
    return SystemMap(nodes=tuple(map(_shorten_paths, drawing.nodes.values())), edges=tuple(drawing.edges))


def _shorten_paths(node: Node) -> Node:
    """Paths as one would type them."""
    return msgspec.structs.replace(node, title=homely(node.title), lines=tuple(map(homely, node.lines)))


async def _models(drawing: _MapBuilder, loaded: Loaded) -> None:
    config = loaded.config
    calling = CallOptions.of(config, loaded.keys())
    name, words = config.model.name, "configured"
    if not name:
        try:
            chosen = choose_among(await reachable_models())
            name, words = chosen.name, "found on this machine"
        except ConfigError:
            fix = "name one: pinfold config set model.name NAME"
            drawing.add(Node(id="model", kind="model", title="no model", lines=(fix,), faulty=True), after=_ENGINE)
            return
    before = _model(drawing, calling, name, words, after=_ENGINE, edge="asks")
    for other in calling.fallback:
        before = _model(drawing, calling, other, "fallback", after=before, edge="if it fails")
    if calling.escalate:
        first = f"model:{name}"
        _model(drawing, calling, calling.escalate, "stronger", after=first, edge="if it is stuck")


def _model(drawing: _MapBuilder, calling: CallOptions, name: str, words: str, *, after: str, edge: str) -> str:
    is_paused = the_model(name) in BreakerStore().all()
    lines = (words, *(("paused: it kept failing",) if is_paused else ()))
    id_ = drawing.add(
        Node(id=f"model:{name}", kind="model", title=name, lines=lines, faulty=is_paused), after=after, words=edge
    )
    place = destination_of(name, calling.access())
    if place:
        away = Node(id=f"place:{place}", kind="place", title=place, lines=("the conversation goes there",))
        drawing.add(away, after=id_)
    else:
        here = Node(id=f"place:{name}", kind="place", title="this machine", lines=("nothing leaves",))
        drawing.add(here, after=id_)
    return id_


async def _sandbox(drawing: _MapBuilder, loaded: Loaded, options: Options) -> None:
    around = CheckContext(workspace=options.workspace or Path("/"), loaded=loaded, limit_s=LIMIT_S)
    python, said = cells_python(around)
    wanted = loaded.config.sandbox.provider
    checked = await _probe_sandbox(wanted, python)
    is_fine = checked.status == "proven"
    asked = f"{wanted} takes {checked.name}" if wanted != checked.name else "by name"
    how = f"proven {checked.level}" if is_fine else checked.cause or checked.status
    sandbox = drawing.add(
        Node(id="sandbox", kind="sandbox", title=f"sandbox: {checked.name}", lines=(asked, how), faulty=not is_fine),
        after=_ENGINE,
        words="runs code in",
    )
    number = checked.environment.get("python", "")
    drawing.add(
        Node(
            id="python",
            kind="sandbox",
            title=f"Python {number}".strip(),
            lines=tuple(filter(None, (str(python or ""), *(one.cause for one in said)))),
            faulty=any(one.standing == "fault" for one in said),
        ),
        after=sandbox,
    )
    trusted = f"obeyed: {join_names(list(loaded.obeyed), 3)}" if loaded.obeyed else ""
    ignored = "what it tells the agent is ignored" if loaded.notice else ""
    lines = tuple(filter(None, (trusted, ignored)))
    drawing.add(
        Node(id="workspace", kind="store", title=str(options.workspace), lines=("workspace", *lines)),
        after=sandbox,
        words="reads and writes" if loaded.config.run.mode != "read-only" else "reads",
    )


async def _probe_sandbox(wanted: str, python: Path | None) -> SandboxCheck:
    try:
        provider = provider_named(wanted, python=python) if is_built_in(wanted) else provider_named(wanted)
        if isinstance(provider, Auto):
            wanted = (await provider.resolve()).name
    except PinfoldError as error:
        return SandboxCheck(name=wanted, status="refused", cause=str(error))
    return (await examine((wanted,), python=python, limit_s=LIMIT_S)).sandboxes[0]


def _tools(drawing: _MapBuilder, options: Options) -> None:
    """Those of the registry that a session would have now, by the server code finds them in."""
    try:
        registry, faults = _registry(options)
    except PinfoldError as error:
        drawing.add(Node(id="tools:", kind="tools", title="tools", lines=(str(error),), faulty=True), after=_ENGINE)
        return
    for server, tools in registry.servers.items():
        names = [tool.name.removeprefix(f"{server}.") for tool in tools]
        where = _find_user_tools(options) if server == "tools" else ()
        drawing.add(
            Node(
                id=f"tools:{server}",
                kind="tools",
                title=f"servers.{server}",
                lines=(_format_count(len(names), "tool"), join_names(names, _NAMED), *where),
            ),
            after=_ENGINE,
            words="calls",
        )
    if faults:
        drawing.add(Node(id="tools:!", kind="tools", title="tools left out", lines=faults, faulty=True), after=_ENGINE)


def _registry(options: Options) -> tuple[Registry, tuple[str, ...]]:
    """As a session has it that is kept. Raises PinfoldError."""
    with folder("workspace") as place:
        log = RedactingLog(place, new_session_id())
        try:
            spec = Spec(workspace=options.workspace or place, site=place)
            auto = provider_named("auto")
            python = Path("python")
            hands, faults = build_runner(options.toolbox, (), spec, log, provider=auto, python=python, small=False)
        finally:
            log.close()
    return hands.registry, faults


def _find_user_tools(options: Options) -> Iterator[str]:
    own = config_dir() / "tools"
    if count := sum(1 for _ in own.glob("*.y*ml")) if own.is_dir() else 0:
        yield f"{count} from {own}"
    if options.toolbox.declared:
        yield f"{len(options.toolbox.declared)} from the workspace"
    if count := len(load_plugins().tools):
        yield f"{count} from installed packages"


def _servers(drawing: _MapBuilder, options: Options) -> None:
    if options.toolbox.mcp is None and not (config_dir() / "mcp.json").exists():
        return
    from pinfold.app.session.mcp.files import load_servers
    from pinfold.app.session.mcp.inspection import list_servers as known
    from pinfold.app.trust.mcp_reach import is_sandboxed

    named = load_servers(options.toolbox.mcp, str((options.workspace or Path()) / ".mcp.json"))
    for one in known(named.specs):
        spec = one.spec
        tools = "not seen yet" if one.tools is None else _format_count(one.tools, "tool")
        state = f"failed: {one.failure.why}" if one.failure else "trusted" if one.trusted else "not trusted"
        drawing.add(
            Node(
                id=f"mcp:{spec.name}",
                kind="server",
                title=spec.name,
                lines=(f"MCP over {spec.transport}", tools, state),
                faulty=one.failure is not None,
            ),
            after=_ENGINE,
            words="calls",
        )
        boxed = "a sandbox of its own" if is_sandboxed(spec) else ""
        place = boxed or ("this machine, unconfined" if spec.transport == "stdio" else one.where)
        drawing.add(
            Node(
                id=f"reach:{place if not boxed else spec.name}",
                kind="sandbox" if boxed else "place",
                title=place,
                lines=tuple(filter(None, (f"reach {spec.reach}" if boxed else "", join_names(spec.hosts, _NAMED)))),
            ),
            after=f"mcp:{spec.name}",
        )
    for line in named.faults:
        drawing.add(Node(id=f"mcp:{line}", kind="server", title="not used", lines=(line,), faulty=True), after=_ENGINE)


def _network(drawing: _MapBuilder, config: Config) -> None:
    hosts = config.network.allow
    secrets = _secrets()
    lines = [join_names(hosts, _NAMED) if hosts else "no host without asking"]
    if secrets:
        lines.append(f"secrets: {join_names(secrets, _NAMED)}")
    gate = drawing.add(
        Node(id="egress", kind="network", title="egress proxy", lines=tuple(lines)),
        after="sandbox",
        words="goes out by",
    )
    if "tools:web" in drawing.nodes:
        drawing.edges.append(Edge(source="tools:web", target=gate))


def _secrets() -> list[str]:
    """Names alone."""
    try:
        return [one.name for one in Secrets().all()]
    except ConfigError:
        return []


def _stores(drawing: _MapBuilder, config: Config) -> None:
    kept = f"{config.sessions.keep_days:g} days, {config.sessions.quota_gb:g} GB"
    places = {
        "sessions": (data_dir() / "sessions", ("logs and blobs", kept)),
        "memory": (memory_file(), ("notes for later sessions",)),
        "operator log": (state_dir() / "log", (f"level {config.log.level}",)),
    }
    for name, (path, lines) in places.items():
        drawing.add(
            Node(id=f"store:{name}", kind="store", title=name, lines=(*lines, str(path))), after=_ENGINE, words="keeps"
        )


def _format_count(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def plain(found: SystemMap) -> dict[str, Any]:
    """For `pinfold map --json`."""
    return msgspec.to_builtins(found)
