"""Configuration in layers, each value with its origin: defaults, user file, trusted project file, environment, flags."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from pinfold.app.config.databases import DataConfig, check_data
from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir
from pinfold.app.trust.dotenv import keys_of
from pinfold.app.trust.project_files import SETTINGS, VARIABLES
from pinfold.app.trust.workspace_trust import TrustedFiles, read_trusted_files
from pinfold.events import Mode
from pinfold.sandbox import Limits, default_memory
from pinfold.sandbox.environment import EnvironmentFailed, normalise_package

Values: TypeAlias = dict[str, dict[str, Any]]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
_SETTINGS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "stop")


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model, and the settings sent with every request."""

    name: str = ""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Any] = {}
    protocol: Literal["auto", "native", "text"] = "auto"
    """How it calls tools."""
    profile: Literal["auto", "full", "small"] = "auto"
    """How much it can be told at once."""
    key_env: str = ""
    """The variable with the key for a model named by its address."""
    cache: bool = True
    """Whether replies to deterministic requests are remembered."""

    def settings(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _SETTINGS}
        return {**{name: value for name, value in given.items() if value not in (None, ())}, **self.extra}


class ModelsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models besides the one that is asked."""

    fallback: tuple[str, ...] = ()
    """Asked in this order when it cannot be."""
    escalate: str = ""
    """Asked when it goes round in circles."""
    aliases: dict[str, str] = {}


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be spent beyond one turn; costs are in US dollars."""

    session_tokens: int | None = None
    session_cost: float | None = None
    day_tokens: int | None = None
    day_cost: float | None = None


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a turn may go."""

    mode: Mode = "auto"
    guards: Literal["off", "strict"] = "off"
    """Guard rails for code; no boundary, which is the sandbox."""
    imports: tuple[str, ...] | None = None
    """The only modules that code may import, with what is in them: a guard rail too. Any unless set."""
    max_steps: int = 20
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None


class ToolsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be called, by names or patterns such as `web_*`."""

    enable: tuple[str, ...] | None = None
    """Nothing but these; all unless set."""
    disable: tuple[str, ...] = ()
    """Not these; a project's come on top of the user's."""


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where code and tools may go."""

    allow: tuple[str, ...] = ()
    """Hosts that are reached without asking in the modes auto and full: `api.github.com`, `*.example.org`, `10.0.0.0/8`."""


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session may take of the machine, besides what `[sandbox]` bounds."""

    disk_mb: int | None = None
    """By which the workspace and writable mounts may grow; the smaller of 10,000 and half of the free disk unless set."""
    output_bytes: int | None = None
    """Of one result, that the model sees; 10,000 characters unless set. All of it is kept."""
    output_lines: int | None = None
    output_tokens: int | None = None
    """About four bytes each."""


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where code runs."""

    provider: str = "auto"
    packages: tuple[str, ...] = ()
    """Added to those every environment has; a project's come on top of the user's."""
    python: str = ""
    """Runs the cells instead of the environment's."""
    build: Literal["auto", "off"] = "auto"
    """Build the environment when code first needs it, or only by `pinfold env build`."""
    warm: Literal["auto", "off"] = "auto"
    """The warm helper, which the first command leaves behind so that later ones start faster."""
    cell_s: float = 120.0
    shell_s: float = 30.0
    interrupt_grace_s: float = 0.4
    start_s: float = 30.0
    reply_s: float = 10.0
    memory_mb: int = msgspec.field(default_factory=lambda: default_memory() >> 20)
    """The smaller of 4096 and half of the machine's memory unless set."""
    processes: int = 256
    output_mb: int = 64
    file_mb: int = 64

    def limits(self, more: LimitsConfig = LimitsConfig()) -> Limits:  # noqa: B008 - frozen
        return Limits(
            cell_s=self.cell_s,
            shell_s=self.shell_s,
            interrupt_grace_s=self.interrupt_grace_s,
            start_s=self.start_s,
            reply_s=self.reply_s,
            memory_bytes=self.memory_mb << 20,
            processes=self.processes,
            output_bytes=self.output_mb << 20,
            file_bytes=self.file_mb << 20,
            disk_bytes=None if more.disk_mb is None else more.disk_mb << 20,
        )


class SessionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long sessions are kept; `pinfold sessions gc` removes what is beyond."""

    keep_days: float = 30.0
    quota_gb: float = 10.0


class CheckpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of the workspace besides what undo keeps."""

    git: bool = False
    """Commits on a side ref after each cell that changed files."""


PictureMode: TypeAlias = Literal["auto", "kitty", "iterm", "sixel", "blocks", "path"]


class ChatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session looks like in the terminal."""

    pictures: PictureMode = "auto"
    """How they are drawn; `path` only says where they are, `auto` goes by what the terminal is."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operator log, for finding faults in Pinfold itself."""

    level: LogLevel = "warning"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: ModelConfig = ModelConfig()
    models: ModelsConfig = ModelsConfig()
    budget: BudgetConfig = BudgetConfig()
    run: RunConfig = RunConfig()
    tools: ToolsConfig = ToolsConfig()
    network: NetworkConfig = NetworkConfig()
    sandbox: SandboxConfig = SandboxConfig()
    limits: LimitsConfig = LimitsConfig()
    sessions: SessionsConfig = SessionsConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    chat: ChatConfig = ChatConfig()
    log: LogConfig = LogConfig()
    data: dict[str, DataConfig] = {}


NAMED: Mapping[str, type[msgspec.Struct]] = {"data": DataConfig}
"""Sections of tables that the user names: `[data.NAME]`."""

_LIMITS = (
    *("limits.output_bytes", "limits.output_lines", "limits.output_tokens"),
    "run.max_steps",
    "run.max_tokens",
    "run.max_cost",
    "run.max_seconds",
    "budget.session_tokens",
    "budget.session_cost",
    "budget.day_tokens",
    "budget.day_cost",
    "sandbox.cell_s",
    "sandbox.shell_s",
    "sandbox.interrupt_grace_s",
    "sandbox.start_s",
    "sandbox.reply_s",
    "sandbox.memory_mb",
    "sandbox.processes",
    "sandbox.output_mb",
    "sandbox.file_mb",
    "limits.disk_mb",
)
"""What a project's own file may set, and only downwards: it may come from a stranger."""

_PACKAGES = "sandbox.packages"
_ADDED_TO = ("tools.disable", "network.allow")
"""Lists that a flag adds to: one that switches a tool off must not switch others on."""
_ADDED = (_PACKAGES, "tools.disable")
"""Lists that a project's own file may add to: neither gives the agent more than it has."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    origins: Mapping[str, str]
    obeyed: Mapping[str, bytes] = {}
    """Files of the workspace that the user has trusted, by their path there."""
    notice: str = ""
    """What of the workspace is not obeyed, and why; for the user."""

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Every key with its value and where that came from."""
        for section in Config.__struct_fields__:
            if section in NAMED:
                continue
            for key, value in msgspec.to_builtins(getattr(self.config, section)).items():
                yield f"{section}.{key}", value, self.origins.get(f"{section}.{key}", "default")
        for name, table in self.config.data.items():
            for key, value in table.rows().items():
                yield f"data.{name}.{key}", value, self.origins.get(f"data.{name}.{key}", "default")

    def keys(self) -> dict[str, str]:
        """Keys for models that a trusted `.env` gives."""
        return keys_of(self.obeyed.get(VARIABLES, b""))


def load_config(workspace: Path | None = None, flags: Mapping[str, Any] | None = None) -> Loaded:
    """All layers, checked. `flags` are by dotted key; None means not given. Raises ConfigError."""
    values: Values = {}
    origins: dict[str, str] = {}
    user_file = config_dir() / "config.toml"
    _overlay(values, origins, _read_toml(user_file), str(user_file))
    project = read_trusted_files(workspace) if workspace is not None else TrustedFiles(files={})
    if workspace is not None and (data := project.files.get(SETTINGS)) is not None:
        project_file = workspace / SETTINGS
        limits = _project_limits(_parse_toml(data, project_file), project_file, _validate_config(values, origins))
        _overlay(values, origins, limits, str(project_file))
    _overlay_environment(values, origins)
    for dotted, value in (flags or {}).items():
        if value is not None:
            section, key = dotted.split(".")
            more = values.get(section, {}).get(key, ()) if dotted in _ADDED_TO else ()
            _overlay(values, origins, {section: {key: (*more, *value) if dotted in _ADDED_TO else value}}, "flag")
    return Loaded(
        config=_validate_config(values, origins), origins=origins, obeyed=project.files, notice=project.notice
    )


def check_user(data: bytes, path: Path) -> None:
    """Whether the user's file may hold this. Raises ConfigError."""
    values: Values = {}
    origins: dict[str, str] = {}
    _overlay(values, origins, _parse_toml(data, path), str(path))
    _validate_config(values, origins)


def check_project(data: bytes, path: Path) -> None:
    """Whether a project's own file may hold this, beside what the user's holds. Raises ConfigError."""
    values: Values = {}
    origins: dict[str, str] = {}
    user_file = config_dir() / "config.toml"
    _overlay(values, origins, _read_toml(user_file), str(user_file))
    limits = _project_limits(_parse_toml(data, path), path, _validate_config(values, origins))
    _overlay(values, origins, limits, str(path))
    _validate_config(values, origins)


def config_schema() -> dict[str, Any]:
    """JSON schema of config.toml."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Config)}


def _read_toml(path: Path) -> Values:
    try:
        return _parse_toml(path.read_bytes(), path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _parse_toml(data: bytes, path: Path) -> Values:
    import tomllib

    try:
        parsed = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        mend = "pinfold config edit" if path.parent == config_dir() else "change it, or take it away"
        raise ConfigError(f"{path} is not valid TOML: {error}; mend it: {mend}") from error
    for section, content in parsed.items():
        if section not in Config.__struct_fields__:
            raise ConfigError(f"{path}: unknown section [{section}]{_nearest(section, Config.__struct_fields__)}")
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: {section} must be a section: write [{section}] and its keys below")
        if section in NAMED:
            _check_tables(path, section, cast(dict[str, Any], content))
        else:
            _check_keys(path, section, cast(dict[str, Any], content), _fields(getattr(Config(), section)))
    return parsed


def _check_tables(path: Path, section: str, tables: dict[str, Any]) -> None:
    for name, content in tables.items():
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: [{section}] holds tables with a name: write [{section}.NAME] and {name} below")
        _check_keys(path, f"{section}.{name}", cast(dict[str, Any], content), _fields(NAMED[section]))


def _check_keys(path: Path, section: str, content: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in content:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r} in [{section}]{_nearest(key, known)}")


def _fields(section: Any) -> tuple[str, ...]:
    return section.__struct_fields__


def _nearest(name: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"


def _project_limits(given: Values, path: Path, above: Config) -> Values:
    for section, content in given.items():
        for key, value in content.items():
            dotted = f"{section}.{key}"
            if section in NAMED:
                raise _project_key_error(path, dotted)
            ceiling = getattr(getattr(above, section), key)
            if dotted in _ADDED and isinstance(value, list):
                content[key] = [*ceiling, *cast(list[Any], value)]
                continue
            if dotted not in (*_LIMITS, *_ADDED):
                raise _project_key_error(path, dotted)
            if not isinstance(value, int | float) or (ceiling is not None and value > ceiling):
                raise ConfigError(f"{path}: a project may only lower {dotted}; it is {ceiling}")
    return given


def _project_key_error(path: Path, dotted: str) -> ConfigError:
    return ConfigError(f"{path}: a project may not set {dotted}; put it into {config_dir()}/config.toml")


def _overlay(values: Values, origins: dict[str, str], layer: Values, origin: str) -> None:
    for section, content in layer.items():
        for key, value in content.items():
            if section in NAMED:
                values.setdefault(section, {}).setdefault(key, {}).update(value)
                origins.update({f"{section}.{key}.{inner}": origin for inner in value})
            else:
                values.setdefault(section, {})[key] = value
                origins[f"{section}.{key}"] = origin


def _overlay_environment(values: Values, origins: dict[str, str]) -> None:
    for section in Config.__struct_fields__:
        if section in NAMED:
            for name in values.get(section, {}):
                given = _from_environment(f"{section}_{name}".replace("-", "_"), NAMED[section])
                for variable, key, value in given:
                    _overlay(values, origins, {section: {name: {key: value}}}, variable)
            continue
        for variable, key, value in _from_environment(section, getattr(Config(), section)):
            _overlay(values, origins, {section: {key: value}}, variable)


def _from_environment(prefix: str, section: Any) -> Iterator[tuple[str, str, Any]]:
    for name in section.__struct_fields__:
        variable = f"PINFOLD_{prefix}_{name}".upper()
        if (text := os.environ.get(variable)) is None:
            continue
        kind = next(field.type for field in msgspec.structs.fields(section) if field.name == name)
        try:
            value = msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError:
            try:
                value = _parse_list(text, kind)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"the environment variable {variable}={text!r} is wrong: {error}") from error
        yield variable, name, value


def _parse_list(text: str, kind: Any) -> Any:
    """JSON; or, for a list of names, these with commas between them. Raises MsgspecError."""
    if not text.lstrip().startswith(("[", "{", '"', "null")):
        with suppress(msgspec.ValidationError):
            return msgspec.convert([name.strip() for name in text.split(",") if name.strip()], kind)
    return msgspec.json.decode(text, type=kind)


def _validate_config(values: Values, origins: Mapping[str, str]) -> Config:
    for name, table in values.get("data", {}).items():
        _check_database(name, table, origins)
    try:
        config = msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        dotted = where.rstrip("`")
        raise ConfigError(f"{origins.get(dotted, 'configuration')}: {dotted}: {message}") from error
    for dotted in (*_LIMITS, "sessions.keep_days", "sessions.quota_gb"):
        section, key = dotted.split(".")
        value = getattr(getattr(config, section), key)
        if value is not None and not (value > 0 and math.isfinite(value)):
            origin = origins.get(dotted, "configuration")
            raise ConfigError(f"{origin}: {dotted} must be more than 0 and finite, not {value}")
    try:
        for package in config.sandbox.packages:
            normalise_package(package)
    except EnvironmentFailed as error:
        raise ConfigError(f"{origins.get(_PACKAGES, 'configuration')}: {_PACKAGES}: {error}") from error
    return config


def _check_database(name: str, table: Any, origins: Mapping[str, str]) -> None:
    origin = next((origins[key] for key in origins if key.startswith(f"data.{name}.")), "configuration")
    try:
        check_data(name, msgspec.convert(table, DataConfig))
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise ConfigError(f"{origin}: data.{name}{where.rstrip('`')}: {message}") from error
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error
