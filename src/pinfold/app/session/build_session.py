"""From options and a session's past to its parts: where cells run, the tools, the models, the system prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from pinfold._version import __version__
from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import CallOptions, SessionModels, select_models
from pinfold.app.paths import config_dir, input_of, up_dir, warm_dir
from pinfold.app.session.action_runner import SandboxActionRunner
from pinfold.app.session.build_runner import build_runner
from pinfold.app.session.environment import python_for_cells
from pinfold.app.session.mcp.server_requests import ServerContext, project_file
from pinfold.app.session.options import Options, data_inside, refuse_overlap
from pinfold.app.session.toolbox import ToolOptions
from pinfold.app.trust.instructions import ALL_BYTES, SMALL_BYTES, Instruction, format_instructions
from pinfold.engine import Choice
from pinfold.events import Mode, SessionOpened
from pinfold.log import Log
from pinfold.model import Profile
from pinfold.sandbox import Mount, Provider, Spec, is_built_in, provider_named
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.sandbox.providers.auto import Auto
from pinfold.sandbox.providers.launcher import look_in

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers


class ResolvedSandbox(Struct, frozen=True, kw_only=True):
    """What cells run on."""

    provider: Provider
    python: Path | None = None
    """None where only the provider knows."""
    site: Path | None = None
    """Where packages are installed for this session alone."""
    notices: tuple[str, ...] = ()
    scratch: TemporaryFolder | None = None
    """Goes with a session that leaves nothing behind."""


async def resolve_sandbox(options: Options, past: SessionOpened | None, folder: Path | None) -> ResolvedSandbox:
    look_in(up_dir(), warm_dir())
    wanted = options.sandbox or (past.sandbox if past else "auto")
    if not isinstance(wanted, str) or not is_built_in(wanted):
        provider = provider_named(wanted) if isinstance(wanted, str) else wanted
        return ResolvedSandbox(provider=provider, notices=(provider.notice,) if provider.notice else ())
    writable = [workspace_of(options, past), *(mount.path for mount in options.mounts or () if mount.writable)]
    cells = await python_for_cells(options.packages, options.python, make=options.make_environment, writable=writable)
    provider = provider_named(wanted, python=cells.python, allow_unmasked=options.allow_unmasked)
    if isinstance(provider, Auto) and _has_mounts(options, past):
        await provider.resolve()  # where they are is told to the model first of all
    notices = tuple(filter(None, (provider.notice, cells.notice)))
    if not provider.capabilities.site:
        return ResolvedSandbox(provider=provider, python=cells.python, notices=notices)
    if folder:
        return ResolvedSandbox(provider=provider, python=cells.python, site=folder / "site", notices=notices)
    scratch = TemporaryFolder("site")
    return ResolvedSandbox(provider=provider, python=cells.python, site=scratch.path, notices=notices, scratch=scratch)


def _has_mounts(options: Options, past: SessionOpened | None) -> bool:
    data = options.data if options.data is not None else past and past.data
    mounts = options.mounts if options.mounts is not None else past and past.mounts
    return bool(data or mounts)


def build_server_context(
    options: Options, log: Log, past: SessionOpened | None, ground: ResolvedSandbox, asked: SessionModels
) -> ServerContext:
    return ServerContext(
        workspace=workspace_of(options, past),
        provider=ground.provider,
        limits=options.limits,
        asked=asked,
        calling=options.calling,
        journal=log,
    )


async def servers_for(
    options: ToolOptions, around: ServerContext, tasks: TaskGroup
) -> tuple[SessionServers | None, tuple[str, ...]]:
    """The MCP servers, which live among `tasks`, and a line for each that cannot be used. Raises ConfigError."""
    if options.mcp is None and options.more_mcp is None and not (config_dir() / "mcp.json").exists():
        return None, ()
    from pinfold.app.session.mcp.files import load_servers
    from pinfold.app.session.mcp.servers import serve

    named = load_servers(options.mcp, project_file(around.workspace), options.more_mcp)
    return await tasks.start(serve, named, around) if named.specs else None, named.faults


def workspace_of(options: Options, past: SessionOpened | None) -> Path:
    workspace = options.workspace or (Path(past.workspace) if past else None)
    if workspace is None or not workspace.is_dir():
        raise ConfigError(f"the workspace {workspace} is gone; name another with --workspace")
    return workspace


class SessionParts(Struct, frozen=True, kw_only=True):
    hands: SandboxActionRunner
    opened: SessionOpened
    prompt: Callable[[Profile], str]
    """What a model of this kind is told first."""
    faults: tuple[str, ...] = ()
    """A line for each tool that could not be had."""


def build_session_parts(
    options: Options,
    log: Log,
    past: SessionOpened | None,
    ground: ResolvedSandbox,
    asked: SessionModels,
    *,
    servers: SessionServers | None,
) -> SessionParts:
    provider, small = ground.provider, asked.profile == "small"
    workspace = workspace_of(options, past)
    mode: Mode = options.mode or (past.mode if past else "auto")
    can_write = mode != "read-only"
    if not can_write and not provider.capabilities.isolated:
        raise ConfigError(f"{provider.name} cannot keep the workspace read-only; choose another mode or sandbox")
    data = _data(options, past, provider, log.folder)
    mounts = _mounts(options, past, provider, workspace)
    allowed = tuple(replace(mount, writable=mount.writable and can_write) for mount in mounts)
    spec = Spec(
        workspace=workspace,
        writable=can_write,
        data=data,
        mounts=allowed,
        limits=options.limits,
        site=ground.site,
        servers=ground.site / ".servers" if ground.site else None,
        view=options.view,
        state=log.folder / "state" if log.folder else None,
    )
    given = (options.toolbox, options.tools, spec, log)
    hands, faults = build_runner(*given, provider=provider, python=ground.python, small=small, servers=servers)

    told = options.form.describe_schema() if options.form else ""

    def prompt(profile: Profile) -> str:
        catalogue = hands.registry.catalogue() if hands.has_servers else ""
        shown, wanted = data_inside(data, provider.capabilities), options.instructions
        return system_prompt(workspace, shown, allowed, profile, catalogue, form=told, instructions=wanted)

    opened = SessionOpened(
        version=__version__,
        workspace=str(workspace),
        model=asked.model.name,
        mode=mode,
        # What was asked for, not what came of it: where the session goes on, something else may be had.
        sandbox="auto" if isinstance(provider, Auto) else provider.name,
        prompt=prompt(asked.profile),
        data={name: str(path) for name, path in data.items()},
        mounts={str(mount.path): mount.writable for mount in mounts},
    )
    return SessionParts(hands=hands, opened=opened, prompt=prompt, faults=faults)


def _data(options: Options, past: SessionOpened | None, provider: Provider, folder: Path | None) -> Mapping[str, Path]:
    """What is asked for now, else what the session had."""
    known = {name: _resolve_piped_input(Path(path), folder) for name, path in past.data.items()} if past else {}
    data, has = known if options.data is None else options.data, provider.capabilities
    if data and not has.mounts and (has.remote or not has.isolated):
        raise ConfigError(f"{provider.name} cannot mount data; put the files into the workspace")
    return data


def _resolve_piped_input(path: Path, folder: Path | None) -> Path:
    """What was piped into the session that this one was forked from is here too, and may be gone there."""
    if folder is None or path.parent.name != input_of(folder).name:
        return path
    ours = input_of(folder) / path.name
    return ours if ours.exists() else path


def _mounts(options: Options, past: SessionOpened | None, provider: Provider, workspace: Path) -> tuple[Mount, ...]:
    """Those asked for now, else those the session had."""
    mounts = options.mounts
    if mounts is None:
        had = past.mounts if past else {}
        mounts = tuple(Mount(path=Path(path), writable=writable) for path, writable in had.items())
    can = provider.capabilities
    if mounts and not (can.mounts or (can.isolated and not can.remote)):
        raise ConfigError(
            f"{provider.name} cannot keep to what is mounted; leave --mount out or choose another sandbox"
        )
    refuse_overlap(mounts, workspace)
    return mounts


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


def system_prompt(
    workspace: Path,
    data: Iterable[str] = (),
    mounts: Iterable[Mount] = (),
    profile: Profile = "full",
    catalogue: str = "",
    *,
    form: str = "",
    instructions: tuple[Instruction, ...] = (),
) -> str:
    """`data`: the paths by which the session reads it. `catalogue`: a line on tools that are not told in full.

    `form`: what the final answer must be, if not any words will do.
    """
    lines = [f"Read-only data: {path}\n" for path in data]
    lines += [f"{'Also writable' if mount.writable else 'Also read-only'}: {mount.path}\n" for mount in mounts]
    if catalogue and profile != "small":
        lines.append(f"{catalogue}\n")
    template = _SMALL if profile == "small" else _PROMPT
    wanted = format_instructions(instructions, SMALL_BYTES if profile == "small" else ALL_BYTES)
    return template.format(workspace=workspace, mounts="".join(lines)) + wanted + form


class ModelSwitcher:
    def __init__(self, asked: SessionModels, calling: CallOptions) -> None:
        self.asked = asked
        """The last."""
        self.made: SessionParts | None = None
        """Once it is: what must fit the model."""
        self._calling = calling
        self._before: list[SessionModels] = []

    def choose(self, model: str) -> Choice:
        """Raises ModelError."""
        assert self.made is not None
        asked = select_models(model, "", (), self._calling.with_stored_keys())
        if asked.profile != self.asked.profile:
            self.made.hands.adapt_to_model(small=asked.profile == "small")
        self._before.append(self.asked)
        self.asked = asked
        return Choice(model=asked.model, prompt=self.made.prompt(asked.profile))

    async def close(self) -> None:
        for asked in (*self._before, self.asked):
            await asked.close()
