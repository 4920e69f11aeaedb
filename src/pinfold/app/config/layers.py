"""Configuration in layers, each value with its origin: defaults, user file, trusted project file, environment, flags."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from pinfold.app.config.databases import DataConfig, check_data
from pinfold.app.config.schema import NAMED, Config
from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir
from pinfold.app.trust.project_files import SETTINGS, VARIABLES
from pinfold.app.trust.project_formats import keys_of
from pinfold.app.trust.workspace_trust import TrustedFiles, read_trusted_files
from pinfold.sandbox.environment import EnvironmentFailed, normalise_package

Values: TypeAlias = dict[str, dict[str, Any]]
_LIMITS = (
    *(f"limits.{key}" for key in ("disk_mb", "output_bytes", "output_lines", "output_tokens")),
    *(f"run.{key}" for key in ("max_steps", "max_tokens", "max_cost", "max_seconds")),
    *(f"budget.{key}" for key in ("session_tokens", "session_cost", "day_tokens", "day_cost")),
    *(f"sandbox.{key}" for key in ("cell_s", "shell_s", "interrupt_grace_s", "start_s", "reply_s")),
    *(f"sandbox.{key}" for key in ("memory_mb", "processes", "output_mb", "file_mb")),
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
    values, origins = _load_user_file()
    project = read_trusted_files(workspace) if workspace is not None else TrustedFiles(files={})
    if workspace is not None and (data := project.files.get(SETTINGS)) is not None:
        _overlay_project(values, origins, data, workspace / SETTINGS)
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
    values, origins = _load_user_file()
    _overlay_project(values, origins, data, path)
    _validate_config(values, origins)


def config_schema() -> dict[str, Any]:
    """JSON schema of config.toml."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Config)}


def _load_user_file() -> tuple[Values, dict[str, str]]:
    """Values and their origins."""
    values: Values = {}
    origins: dict[str, str] = {}
    path = config_dir() / "config.toml"
    _overlay(values, origins, _read_toml(path), str(path))
    return values, origins


def _overlay_project(values: Values, origins: dict[str, str], data: bytes, path: Path) -> None:
    limits = _project_limits(_parse_toml(data, path), path, _validate_config(values, origins))
    _overlay(values, origins, limits, str(path))


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
