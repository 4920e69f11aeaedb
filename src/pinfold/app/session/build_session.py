"""Builds the parts of a session from its options and its past: sandbox, tools, policy, models, system prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from pinfold._version import __version__
from pinfold.app.config.databases import ConfiguredDatabases
from pinfold.app.config.schema import RunConfig
from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import SessionModels, select_models
from pinfold.app.paths import config_dir, contents_dir, input_of, up_dir, warm_dir
from pinfold.app.session.action_policy import ActionPolicy
from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.app.session.agent_tools import agent_tools, describe_definitions, load_definitions
from pinfold.app.session.catalogue import Catalogue
from pinfold.app.session.egress import SessionEgress
from pinfold.app.session.environment import install_tool, python_for_cells
from pinfold.app.session.mcp.server_requests import ServerContext
from pinfold.app.session.memory_tools import MemoryContext, memory_tools
from pinfold.app.session.options import Options, data_inside, refuse_overlap
from pinfold.app.session.plan_tools import plan_tools
from pinfold.app.session.skill_tools import SessionSkills
from pinfold.app.session.toolbox import SessionCommands, ToolOptions, build_tools
from pinfold.app.trust.privacy import Privacy
from pinfold.app.trust.project_files import SERVERS, SMALL_BYTES, TOLD_BYTES, format_instructions
from pinfold.app.trust.workspace_trust import Grants, user_rules
from pinfold.engine import Choice, State
from pinfold.events import ActionFinished, ActionId, ActionStarted, Entry, Json, SessionOpened
from pinfold.log import BlobMissing, Blobs, Log
from pinfold.policy import Guards, strict
from pinfold.sandbox import Mount, Provider, SandboxUnavailable, Session, Spec, is_built_in, provider_named
from pinfold.sandbox.contract import SKILLS
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.providers.auto import Auto
from pinfold.sandbox.providers.launcher import look_in
from pinfold.text import join_numbers
from pinfold.tools import AnyTool, Registry, as_tool

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers


class ResolvedSandbox(Struct, frozen=True, kw_only=True):
    """The provider of a session's sandbox, and the Python that runs its cells."""

    provider: Provider
    python: Path | None = None
    """None if only the provider knows it."""
    site: Path | None = None
    """Folder of packages installed for this session only."""
    notices: tuple[str, ...] = ()


def fill_from_past(options: Options, past: SessionOpened | None, kept: Path | None) -> Options:
    """Fill options that are None from the session's past. `kept` is the session's folder. Raises ConfigError."""
    had = past or SessionOpened(version="", workspace="", model="", mode="auto", sandbox="auto")
    workspace = options.workspace or (Path(past.workspace) if past else None)
    if workspace is None or not workspace.is_dir():
        raise ConfigError(f"the workspace {workspace} is gone; name another with --workspace")
    data, mounts = options.data, options.mounts
    if data is None:
        data = {name: _resolve_piped_input(Path(path), kept) for name, path in had.data.items()}
    if mounts is None:
        mounts = tuple(Mount(path=Path(path), writable=writable) for path, writable in had.mounts.items())
    refuse_overlap(mounts, workspace)
    mode, sandbox = options.mode or had.mode, options.sandbox or had.sandbox
    return replace(options, workspace=workspace, mode=mode, sandbox=sandbox, data=data, mounts=mounts)


def past_model(past: SessionOpened | None, options: Options) -> str:
    """Return the session's model, or the configured one for a session that `pinfold exec` began without any."""
    return (past.model if past else "") or options.toolbox.loaded.config.model.name or ""


def _resolve_piped_input(path: Path, kept: Path | None) -> Path:
    """Prefer the session's own copy of piped input: a fork has one, and its parent's may be gone."""
    if kept is None or path.parent.name != input_of(kept).name:
        return path
    ours = input_of(kept) / path.name
    return ours if ours.exists() else path


async def resolve_sandbox(options: Options, kept: Path | None, ends: AsyncExitStack) -> ResolvedSandbox:
    """Choose provider and Python. `ends` removes the temporary files of a session without a folder."""
    look_in(up_dir(), warm_dir())
    wanted = options.sandbox or "auto"
    if not isinstance(wanted, str) or not is_built_in(wanted):
        provider = provider_named(wanted) if isinstance(wanted, str) else wanted
        return ResolvedSandbox(provider=provider, notices=(provider.notice,) if provider.notice else ())
    mounts = options.mounts or ()
    writable = [*filter(None, (options.workspace, *(mount.path for mount in mounts if mount.writable)))]
    python, notice = await python_for_cells(
        options.packages, options.python, make=options.make_environment, writable=writable
    )
    provider = provider_named(wanted, python=python, allow_unmasked=options.allow_unmasked)
    if isinstance(provider, Auto) and (options.data or mounts):
        await provider.resolve()  # the system prompt names their paths, which depend on the provider
    site = None
    if provider.capabilities.site:
        site = kept / "site" if kept else ends.enter_context(folder("site"))
    notices = tuple(filter(None, (provider.notice, notice)))
    return ResolvedSandbox(provider=provider, python=python, site=site, notices=notices)


def build_spec(options: Options, resolved: ResolvedSandbox, log: Log) -> Spec:
    """Build the spec from filled options. Raises ConfigError for what this sandbox cannot enforce or mount."""
    name, can = resolved.provider.name, resolved.provider.capabilities
    can_write, can_mount = options.mode != "read-only", can.mounts or (can.isolated and not can.remote)
    if not can_write and not can.isolated:
        raise ConfigError(f"{name} cannot keep the workspace read-only; choose another mode or sandbox")
    if options.data and not can_mount:
        raise ConfigError(f"{name} cannot mount data; put the files into the workspace")
    if options.mounts and not can_mount:
        raise ConfigError(
            f"{name} cannot limit code to the mounted folders; leave out --mount or choose another sandbox"
        )
    assert options.workspace is not None
    return Spec(
        workspace=options.workspace,
        writable=can_write,
        data=options.data or {},
        mounts=tuple(replace(mount, writable=mount.writable and can_write) for mount in options.mounts or ()),
        limits=options.limits,
        site=resolved.site,
        servers=resolved.site / ".servers" if resolved.site else None,
        skills=resolved.site / ".skills" if resolved.site else None,
        view=options.view,
        state=log.folder / "state" if log.folder else None,
        contents=contents_dir(options.workspace) if log.folder else None,
    )


async def start_servers(
    options: ToolOptions, context: ServerContext, tasks: TaskGroup
) -> tuple[SessionServers | None, tuple[str, ...]]:
    """Return the MCP servers, run in `tasks`, and a line for each that cannot be used. Raises ConfigError."""
    if not options.starts_servers:
        return None, ()
    named_here = (options.mcp, options.more_mcp, options.client_mcp)
    if named_here == (None, None, None) and not (config_dir() / "mcp.json").exists():
        return None, ()
    from pinfold.app.session.mcp.files import load_servers
    from pinfold.app.session.mcp.servers import serve

    origin = str(context.spec.workspace / SERVERS)
    named = load_servers(options.mcp, origin, options.more_mcp, options.client_mcp)
    return await tasks.start(serve, named, context) if named.specs else None, named.faults


def _can_have_agents(options: Options, resolved: ResolvedSandbox) -> bool:
    has = resolved.provider
    return not options.is_child and (isinstance(has, Auto) or (has.capabilities.fork and has.capabilities.calls))


def find_result(blobs: Blobs, handle: str) -> bytes | None:
    """Return a result that was too long to show, by the handle that was shown instead."""
    with suppress(BlobMissing):
        blob = blobs.find(handle)
        return blobs.get(blob) if blob else None
    return None


def _guards(run: RunConfig) -> Guards:
    guards = strict() if run.guards == "strict" else Guards()
    return guards if run.imports is None else replace(guards, imports=frozenset(run.imports))


def _build_registry(
    tools: list[AnyTool], toolbox: ToolOptions, servers: SessionServers | None, skills: SessionSkills
) -> tuple[Registry, tuple[str, ...]]:
    """Return the registry, and a line for each skill that cannot be used. Raises ConfigError, BadTool."""
    promoted, faults = skills.load(toolbox.loaded.obeyed, taken=["python", *(tool.name for tool in tools)])
    switches = toolbox.loaded.config.tools
    registry = skills.registry = Registry([*tools, *promoted], enable=switches.enable, disable=switches.disable)
    for server, served in groupby(toolbox.served, key=lambda tool: tool.server):
        registry.put(server, served)
    if servers:
        servers.register(registry)
    return registry, faults


def build_runner(
    options: Options, spec: Spec, log: Log, resolved: ResolvedSandbox, *, small: bool, servers: SessionServers | None
) -> tuple[SandboxActionRunner, tuple[str, ...]]:
    """Return the runner, and a line for each tool or skill that cannot be used. Raises ConfigError, BadTool."""
    toolbox, config = options.toolbox, options.toolbox.loaded.config
    egress = SessionEgress(config.network.allow)

    async def ensure_session() -> Session:
        return await runner.ensure_session()

    async def about_to_read() -> None:
        if privacy.mark_exposed():
            await egress.disconnect_all()  # they were allowed while the session held no private data

    inside = SessionCommands(ensure_session)
    handed = [as_tool(tool) for tool in options.tools]
    names = frozenset(tool.name for tool in handed)
    folders = (spec.workspace, *(mount.path for mount in spec.mounts if mount.writable))
    privacy = Privacy(spec.workspace, more=bool(spec.data or spec.mounts))
    databases = ConfiguredDatabases(config.data, folders, about_to_read) if config.data else None
    own = [install_tool(spec.site, resolved.python, folders)] if spec.site and resolved.python else []
    own += [*(databases.tools() if databases else ()), *(agent_tools() if _can_have_agents(options, resolved) else ())]
    memory = MemoryContext(
        workspace=spec.workspace,
        log=log,
        config=config,
        can_write=spec.writable and (toolbox.remembers or log.folder is not None),
        is_untrusted=lambda: judging.is_untrusted,
        current_cell=lambda: runner.state().cells or None,
        about_to_read=about_to_read,
    )
    skills = SessionSkills(resolved.provider, spec, log, inside=inside, ensure_session=ensure_session)
    own += [*memory_tools(memory), *skills.tools(), *plan_tools(log, lambda: runner.state())]  # noqa: PLW0108 - no runner yet
    tools, faults = build_tools(
        toolbox, [*own, *handed], inside=inside, kept=partial(find_result, log.blobs), egress=egress, spec=spec
    )
    registry, ignored = _build_registry(tools, toolbox, servers, skills)
    shared: dict[str, Any] = {"registry": registry, "egress": egress, "privacy": privacy, "spec": spec}
    shared |= {"servers": servers, "skills": skills}
    judging = ActionPolicy(
        **shared,
        inside=inside,
        handed=names,
        rules=user_rules(),
        grants=Grants(),
        guards=_guards(config.run),
        flows=toolbox.flows,
    )
    runner = SandboxActionRunner(
        **shared,
        provider=resolved.provider,
        log=log,
        judging=judging,
        catalogue=Catalogue(registry, servers),
        output=config.limits,
        closing=(skills.close, *((databases.close,) if databases else ())),
    )
    runner.adapt_to_model(small=small)
    return runner, faults + ignored


_PROMPT = """\
You are Pinfold and work by writing Python. Variables, imports and files stay. You see only what code prints, its \
last expression and errors: print what you need and no more.
The workspace, and current folder, is {workspace}.
{mounts}\
When done, answer in words, or sooner: code that knows the result ends with `answer(f"...")`.
"""


_SMALL = """\
You are Pinfold. You solve tasks with Python in the current folder; variables and files stay between runs.
{mounts}\
"""


class ModelSwitcher:
    """The models of a session, and the system prompt for the current one."""

    def __init__(self, asked: SessionModels, options: Options) -> None:
        self.asked = asked
        """The models in use now."""
        self.runner: SandboxActionRunner | None = None
        """Set once it is built; it is adapted to the model."""
        self.said = ""
        """Instructions of the client, added to the prompt."""
        self._options = options
        self._before: list[SessionModels] = []

    def prompt(self) -> str:
        """Return the system prompt."""
        assert self.runner is not None
        spec, form, is_small = self.runner.spec, self._options.form, self.asked.profile == "small"
        lines = [f"Read-only data: {path}\n" for path in data_inside(spec.data, self.runner.provider.capabilities)]
        lines += [f"{'Also writable' if mount.writable else 'Also read-only'}: {mount.path}\n" for mount in spec.mounts]
        if self.runner.has_servers and not is_small and (catalogue := self.runner.registry.catalogue()):
            lines.append(f"{catalogue}\n")
        if self.runner.skills:
            has_mounts = self.runner.provider.capabilities.mounts
            place = SKILLS if has_mounts else str(spec.skills)
            lines.append(self.runner.skills.prompt(place, can_call=self.runner.has_servers, small=is_small))
        if self.runner.registry.get("agents.run") and not is_small:
            lines.append(describe_definitions(load_definitions(self._options.toolbox.loaded.obeyed).values()))
        workspace = self._options.workspace_inside or spec.workspace
        text = (_SMALL if is_small else _PROMPT).format(workspace=workspace, mounts="".join(lines))
        wanted = format_instructions(self._options.instructions, SMALL_BYTES if is_small else TOLD_BYTES)
        wanted += f"The program that works with you says:\n{self.said}\n" if self.said else ""
        return text + wanted + (form.describe_schema() if form else "")

    def choose(self, model: str) -> Choice:
        """Switch to this model. Raises ModelError."""
        asked = select_models(model, "", (), self._options.calling.with_stored_keys())
        if self.runner and asked.profile != self.asked.profile:
            self.runner.adapt_to_model(small=asked.profile == "small")
        self._before.append(self.asked)
        self.asked = asked
        return Choice(model=asked.model, prompt=self.prompt())

    async def close(self) -> None:
        for asked in (*self._before, self.asked):
            await asked.close()


def opened_event(
    options: Options, runner: SandboxActionRunner, switching: ModelSwitcher, **became: Json
) -> SessionOpened:
    """Build the event. `became` holds its remaining fields: what was restored, and where the session comes from."""
    provider = runner.provider
    return SessionOpened(
        version=__version__,
        workspace=str(options.workspace),
        model=switching.asked.model.name,
        mode=options.mode or "auto",
        # `auto` stays `auto`: when the session is resumed, another sandbox may be available.
        sandbox="auto" if isinstance(provider, Auto) else provider.name,
        prompt=switching.prompt(),
        data={name: str(path) for name, path in (options.data or {}).items()},
        mounts={str(mount.path): mount.writable for mount in options.mounts or ()},
        **became,
    )


async def report_restored(runner: SandboxActionRunner, state: State, entries: Iterable[Entry]) -> dict[str, Json]:
    """Restore the variables. Returns the fields of SessionOpened that report the result."""
    if not state.cells:
        return {}
    try:
        back = await runner.restore_variables()
    except SandboxUnavailable as error:
        return {"lost": (f"all Python variables ({error})",)}
    if back is None:
        return {"lost": ("all Python variables",)}
    lost = [f"{it.name} ({it.reason})" for it in back.labels if it.status == "lost"]
    if back.missing:
        names = ", ".join(sorted(_find_changed_names(entries, {*back.missing})))
        lost.append(f"what {join_numbers('cell', back.missing)} did to variables{f' ({names})' if names else ''}")
    # Names that begin with `_` are not listed as variables, but their loss is reported.
    listed = [it for it in back.labels if not it.name.startswith("_")]
    return {
        "restored": tuple(it.name for it in listed if it.status == "restored"),
        "replayed": tuple(it.name for it in listed if it.status == "replayed"),
        "lost": tuple(lost),
    }


def _find_changed_names(entries: Iterable[Entry], cells: Collection[int]) -> set[str]:
    """Return the names that these cells added or changed, as far as recorded."""
    ids: set[ActionId] = set()
    names: set[str] = set()
    for event in (entry.event for entry in entries):
        if isinstance(event, ActionStarted) and event.cell in cells:
            ids.add(event.id)
        elif isinstance(event, ActionFinished) and event.id in ids and event.variables:
            names |= {*event.variables.added, *event.variables.changed}
    return names
