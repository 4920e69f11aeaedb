"""Options of a new or resumed session, from configuration and flags; and the status of an open one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import asdict

from pinfold.app.config.databases import keep_passwords
from pinfold.app.config.layers import Loaded, load_config
from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import CallOptions
from pinfold.app.paths import default_workspace, is_too_wide, refuse_closed_folders, suggest_path, workspace_at
from pinfold.app.session.answers import AnswerForm
from pinfold.app.session.egress import FLOW_HOSTS, FLOW_TOOLS, Flows
from pinfold.app.session.toolbox import ToolOptions
from pinfold.app.trust.project_files import Instruction, instructions
from pinfold.app.trust.secrets import hide_process_secrets, secrets_in
from pinfold.engine import Budget, ContextLimits, Hooks, Model
from pinfold.events import Json, Mode, SessionId, ToolSchema, TurnId, convert
from pinfold.log import summarise
from pinfold.sandbox import Capabilities, Limits, Mount, Provider, data_places, not_mountable
from pinfold.text import keep_own_secret


class Options(Struct, frozen=True, kw_only=True):
    """How to open a session. A field that is None is taken from the session's past, else from the defaults."""

    workspace: Path | None = None
    model: str | Model | None = None
    mode: Mode | None = None
    sandbox: str | Provider | None = None
    title: str | None = None
    data: Mapping[str, Path] | None = None
    """Read-only mounts by name."""
    allow_unmasked: bool = False
    """Allow a sandbox that cannot hide the workspace's secret files."""
    packages: tuple[str, ...] = ()
    """Packages that the cells' environment has in addition to the usual ones."""
    make_environment: bool = False
    """Build the environment if it is missing, instead of going on without it and saying so."""
    python: str = ""
    """The Python that runs the cells, instead of the environment's."""
    limits: Limits = field(default_factory=Limits)
    mounts: tuple[Mount, ...] | None = None
    budget: Budget = field(default_factory=Budget)
    context: ContextLimits = field(default_factory=ContextLimits)
    settings: Mapping[str, Json] = field(default_factory=dict[str, Json])
    calling: CallOptions = field(default_factory=CallOptions)
    """How models are called."""
    view: Path | None = None
    """Folder that receives the session's changes in place of the workspace."""
    tools: tuple[Callable[..., object], ...] = ()
    """Functions that the user passes directly, as in `Agent(tools=...)`."""
    toolbox: ToolOptions = field(default_factory=ToolOptions)
    instructions: tuple[Instruction, ...] = ()
    """Instructions of the user and the project for the model, outermost first."""
    hooks: Hooks = field(default_factory=Hooks)
    git_checkpoints: bool | None = None
    answer_schema: Json = None
    """JSON Schema that every answer must match, or the turn fails."""
    unattended: bool = True
    verify: str = ""
    """What checks an answer: "model" or a shell command; empty for no check."""
    is_child: bool = False
    """True for the session of a sub-agent, which cannot start sub-agents itself."""
    workspace_inside: str = ""
    """Path of the workspace inside the sandbox, if it differs from the host's."""
    notices: tuple[str, ...] = ()

    @property
    def form(self) -> AnswerForm | None:
        return None if self.answer_schema is None else AnswerForm(self.answer_schema)


class CallerTerms(Struct, frozen=True, kw_only=True):
    """What a client asks for with a turn."""

    tools: tuple[ToolSchema, ...] = ()
    """Tools that the client runs itself."""
    answer_schema: Json = None
    """As in Options."""
    instructions: str = ""
    """For the model."""
    must_call: bool = False
    """The request must end in a call of one of the tools."""
    one_call: bool = False
    """No more than one call at a time."""

    @property
    def demand(self) -> str:
        """The demand shown to a model that must call a tool; empty if it need not."""
        names = ", ".join(tool.name for tool in self.tools)
        return f"The client requires a call of {names}: call it before you answer" if self.must_call else ""


class SessionStatus(Struct, frozen=True, kw_only=True):
    """The status of a session, for a front end that joins it."""

    seq: int
    """Subscribe after this to see what is new."""
    turn: TurnId | None = None
    """The last turn, if there was one."""
    end: Literal["open", "ended", "interrupted", "failed"] | None = None
    """How that turn ended; `open` while it runs or if it was cut off."""
    model: str = ""
    mode: Mode = "auto"
    sandbox: str = ""
    """Name of the sandbox provider; `auto` until one is chosen."""
    title: str = ""
    context: int = 0
    """Tokens the model can take; 0 if unknown."""
    no_model: str | None = None
    """Why no turn can run; None if one can."""
    workspace: str = ""
    data: dict[str, str] = field(default_factory=dict[str, str])
    mounts: dict[str, bool] = field(default_factory=dict[str, bool])
    outside: str = ""
    """The session's id, if it has read outside text."""


def mounts_of(items: Iterable[str | PathLike[str]]) -> tuple[Mount, ...]:
    """Each item is PATH, PATH:ro or PATH:rw; read-only unless it says otherwise. Raises ConfigError."""
    mounts: list[Mount] = []
    for item in items:
        mount = _read_mount(fspath(item))
        for other in mounts:
            if mount.path.is_relative_to(other.path) or other.path.is_relative_to(mount.path):
                raise ConfigError(f"{mount.path} and {other.path} cannot both be mounted: one lies in the other")
        mounts.append(mount)
    return tuple(mounts)


def data_inside(data: Mapping[str, Path], capabilities: Capabilities) -> list[str]:
    """Return the paths of the data as the session's code sees them."""
    return list(data_places(data)) if capabilities.mounts else [str(path) for path in data.values()]


def refuse_overlap(mounts: Iterable[Mount], workspace: Path) -> None:
    """Raise ConfigError for a mount that lies in the workspace or contains it."""
    for mount in mounts:
        if mount.path.is_relative_to(workspace):
            raise ConfigError(f"{mount.path} is part of the workspace {workspace} already and need not be mounted")
        if workspace.is_relative_to(mount.path):
            raise ConfigError(
                f"{mount.path} cannot be mounted: it contains the workspace {workspace}; mount a smaller folder"
            )


def _read_mount(text: str) -> Mount:
    writable = text.endswith(":rw")
    bare = text.removesuffix(":rw" if writable else ":ro")
    if not bare:
        raise ConfigError(f"{text!r} names no path to mount; write PATH or PATH:rw")
    try:
        path = Path(bare).absolute().resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        is_gone = isinstance(error, FileNotFoundError)
        why = f"it does not exist; {suggest_path(Path(bare)) or 'is the path right?'}" if is_gone else str(error)
        raise ConfigError(f"{bare} cannot be mounted: {why}") from error
    if is_too_wide(path):
        raise ConfigError(f"{path} cannot be mounted: it holds far more than one task; mount a part of it")
    refuse_closed_folders(path)
    mount = Mount(path=path, writable=writable)
    if why := not_mountable(mount):
        raise ConfigError(f"{path} cannot be mounted: {why}")
    return mount


IMPORTED = "imported"
"""Marks a session folder whose log came from elsewhere, until it is first opened here."""


def is_imported(folder: Path) -> bool:
    """True if its events were written elsewhere and it was not opened here yet."""
    return (folder / IMPORTED).exists()


_KEPT = {
    "model": "model.name",
    "mode": "run.mode",
    "sandbox": "sandbox.provider",
    "git_checkpoints": "checkpoint.git",
}
"""Options that a resumed session takes from its past, each with its configuration key."""


def new_session_options(session: SessionId, workspace: Path | None, flags: Mapping[str, Json]) -> Options:
    """Return the options of a new session: flags over environment over files over defaults."""
    folder, notice = default_workspace(session) if workspace is None else (workspace_at(workspace), None)
    loaded = _load_config(folder, flags)
    kept = {name: loaded.config.get(key) for name, key in _KEPT.items()}
    return _options(loaded, folder, flags, notice, workspace=folder, **kept)


def resume_options(session: SessionId, folder: Path, workspace: Path | None, flags: Mapping[str, Json]) -> Options:
    """Return the options of a resumed session, which keeps model, mode, sandbox and workspace unless a flag differs.

    An imported session that was not opened here yet is treated as new.
    """
    if is_imported(folder):
        return new_session_options(session, workspace, flags)
    place = workspace_at(workspace) if workspace is not None else None
    summary = summarise(folder)
    known = place or (Path(summary.workspace) if summary and summary.workspace else None)
    kept = {name: flags.get(key) for name, key in _KEPT.items()}
    return _options(_load_config(known, flags), known, flags, workspace=place, **kept)


def check_paths(paths: Mapping[str, Path]) -> Mapping[str, Path]:
    """Return the paths to mount. Raises ConfigError if one is missing or must not be seen by a session."""
    for path in paths.values():
        if not path.exists():
            hint = suggest_path(path) or "is the path right?"
            raise ConfigError(f"{path} does not exist, so it cannot be mounted as data; {hint}")
        refuse_closed_folders(path.resolve())
    return paths


def _load_config(workspace: Path | None, flags: Mapping[str, Json]) -> Loaded:
    """Load the configuration. From here on, the secrets this process knows are redacted from all it shows."""
    loaded = load_config(workspace, {key: value for key, value in flags.items() if key not in (FLOW_HOSTS, FLOW_TOOLS)})
    hide_process_secrets()
    return loaded


def _options(
    loaded: Loaded, place: Path | None, flags: Mapping[str, Json], notice: str | None = None, **chosen: Json
) -> Options:
    """`place`: the workspace, if it is known. `chosen`: the fields that a resumed session takes from its past."""
    config = loaded.config
    calling = CallOptions.of(config, loaded.keys())
    keep_passwords(config.data)
    keep_own_secret(*secrets_in(calling.keys), calling.keys.get(calling.key_env, ""))
    flows = Flows(hosts=tuple(flags.get(FLOW_HOSTS) or ()), tools=tuple(flags.get(FLOW_TOOLS) or ()))
    wanted, said = instructions(place, loaded.obeyed)
    return Options(
        **chosen,
        instructions=wanted,
        notices=tuple(filter(None, (notice, loaded.notice, *said))),
        limits=config.sandbox.limits(config.limits),
        packages=config.sandbox.packages,
        verify=config.run.verify,
        python=config.sandbox.python,
        budget=convert({**asdict(config.run), **asdict(config.budget)}, Budget),
        context=ContextLimits(
            auto=config.context.compact == "auto", compact_at=config.context.compact_at, window=config.model.context
        ),
        settings=config.model.settings(),
        calling=calling,
        toolbox=ToolOptions(loaded=loaded, flows=flows),
    )
