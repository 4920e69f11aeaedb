"""Layered configuration: defaults, user file, trusted project file, environment, flags. Each value has an origin."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from pinfold.app.config.databases import DataConfig, check_data
from pinfold.app.config.schema import NAMED, SECTIONS, Config
from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, explain_errors
from pinfold.app.trust.project_files import SETTINGS, VARIABLES
from pinfold.app.trust.project_formats import keys_of
from pinfold.app.trust.workspace_trust import TrustedFiles, read_trusted_files
from pinfold.events import Json, convert
from pinfold.sandbox.environment import EnvironmentFailed, normalise_package

Values: TypeAlias = dict[str, dict[str, Json]]
_LIMITS = (
    *(f"limits.{key}" for key in ("disk_mb", "output_bytes", "output_lines", "output_tokens")),
    *(f"run.{key}" for key in ("max_steps", "max_tokens", "max_cost", "max_seconds")),
    *(f"budget.{key}" for key in ("session_tokens", "session_cost", "day_tokens", "day_cost")),
    *(f"sandbox.{key}" for key in ("cell_s", "shell_s", "interrupt_grace_s", "start_s", "reply_s")),
    *(f"sandbox.{key}" for key in ("memory_mb", "processes", "output_mb", "file_mb")),
)
"""Keys that a project's file may only lower, because it may come from a stranger."""

_PACKAGES = "sandbox.packages"
_ADDED_TO = ("tools.disable", "network.allow")
"""Lists that a flag extends, so that a flag that disables one tool does not enable others."""
_ADDED = (_PACKAGES, "tools.disable")
"""Lists that a project's file may extend, because neither gives the agent more rights."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    config: Config
    origins: Mapping[str, str]
    obeyed: Mapping[str, bytes] = {}
    """Trusted files of the workspace, by path in it."""
    notice: str = ""
    """For the user: which files of the workspace are ignored, and why."""

    def rows(self) -> Iterator[tuple[str, Json, str]]:
        """Yield every key with its value and origin."""
        tables = {
            section: msgspec.to_builtins(getattr(self.config, section)) for section in SECTIONS if section not in NAMED
        }
        tables |= {f"data.{name}": table.rows() for name, table in self.config.data.items()}
        for section, table in tables.items():
            for key, value in table.items():
                yield f"{section}.{key}", value, self.origins.get(f"{section}.{key}", "default")

    def keys(self) -> dict[str, str]:
        """Return the model keys in a trusted `.env`."""
        return keys_of(self.obeyed.get(VARIABLES, b""))


def config_file() -> Path:
    return config_dir() / "config.toml"


def load_config(workspace: Path | None = None, flags: Mapping[str, Json] | None = None) -> Loaded:
    """Load and check all layers. `flags` are by dotted key; None means not given. Raises ConfigError."""
    layers = _user_layers()
    project = read_trusted_files(workspace) if workspace is not None else TrustedFiles(files={})
    if workspace is not None and (data := project.files.get(SETTINGS)) is not None:
        layers.add_project(data, workspace / SETTINGS)
    layers.add_environment()
    for dotted, value in (flags or {}).items():
        if value is not None:
            section, key = dotted.split(".")
            before = layers.values.get(section, {}).get(key, ())
            layers.add({section: {key: (*before, *value) if dotted in _ADDED_TO else value}}, "flag")
    return Loaded(config=layers.validate(), origins=layers.origins, obeyed=project.files, notice=project.notice)


def check_user(data: bytes, path: Path) -> None:
    """Check the content of the user's file. Raises ConfigError."""
    layers = _Layers()
    layers.add(_parse_toml(data, path), str(path))
    layers.validate()


def check_project(data: bytes, path: Path) -> None:
    """Check the content of a project's file together with the user's file. Raises ConfigError."""
    layers = _user_layers()
    layers.add_project(data, path)
    layers.validate()


def config_schema() -> dict[str, Json]:
    """Return the JSON schema of config.toml."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Config)}


def parse_value(text: str, kind: Any) -> Json:
    """Parse a typed value as TOML, JSON or plain text; lists also with commas. Raises ValidationError."""
    tries: list[Json] = []
    with suppress(tomllib.TOMLDecodeError):
        tries.append(tomllib.loads(f"value = {text}")["value"])
    with suppress(msgspec.DecodeError):
        tries.append(msgspec.json.decode(text))
    for given in (*tries, text, [part.strip() for part in text.split(",") if part.strip()]):
        with suppress(msgspec.ValidationError):
            convert(given, kind)
            return given
    return msgspec.to_builtins(convert(text, kind, strict=False))


class _Layers(msgspec.Struct):
    values: Values = {}
    origins: dict[str, str] = {}

    def add(self, layer: Values, origin: str) -> None:
        for section, content in layer.items():
            for key, value in content.items():
                if section in NAMED:
                    self.values.setdefault(section, {}).setdefault(key, {}).update(value)
                    self.origins.update({f"{section}.{key}.{inner}": origin for inner in value})
                else:
                    self.values.setdefault(section, {})[key] = value
                    self.origins[f"{section}.{key}"] = origin

    def add_project(self, data: bytes, path: Path) -> None:
        self.add(_project_limits(_parse_toml(data, path), path, self.validate()), str(path))

    def add_environment(self) -> None:
        for section, kind in SECTIONS.items():
            if section in NAMED:
                for name in self.values.get(section, {}):
                    for variable, values in _from_environment(f"{section}_{name}".replace("-", "_"), kind):
                        self.add({section: {name: values}}, variable)
            else:
                for variable, values in _from_environment(section, kind):
                    self.add({section: values}, variable)

    def validate(self) -> Config:
        for name, table in self.values.get("data", {}).items():
            self._check_database(name, table)
        try:
            config = convert(self.values, Config)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$.")
            dotted = where.rstrip("`")
            raise self._error(dotted, f": {message}") from error
        for dotted in (*_LIMITS, "sessions.keep_days", "sessions.quota_gb"):
            value = config.get(dotted)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise self._error(dotted, f" must be more than 0 and finite, not {value}")
        try:
            for package in config.sandbox.packages:
                normalise_package(package)
        except EnvironmentFailed as error:
            raise self._error(_PACKAGES, f": {error}") from error
        return config

    def _error(self, dotted: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.origins.get(dotted, 'configuration')}: {dotted}{problem}")

    def _check_database(self, name: str, table: Json) -> None:
        origin = next((self.origins[key] for key in self.origins if key.startswith(f"data.{name}.")), "configuration")
        try:
            check_data(name, convert(table, DataConfig))
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            raise ConfigError(f"{origin}: data.{name}{where.rstrip('`')}: {message}") from error
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from error


def _user_layers() -> _Layers:
    layers, path = _Layers(), config_file()
    with explain_errors(f"{path} cannot be read"), suppress(FileNotFoundError):
        layers.add(_parse_toml(path.read_bytes(), path), str(path))
    return layers


def _parse_toml(data: bytes, path: Path) -> Values:
    try:
        parsed = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fix = "pinfold config edit" if path.parent == config_dir() else "change or remove it"
        raise ConfigError(f"{path} is not valid TOML: {error}; fix it: {fix}") from error
    for section, content in parsed.items():
        if section not in SECTIONS:
            raise ConfigError(f"{path}: unknown section [{section}]{_nearest(section, tuple(SECTIONS))}")
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: {section} must be a section: write [{section}] and its keys below")
        named = cast("dict[str, Json]", content)
        known = SECTIONS[section].__struct_fields__
        for name, table in named.items() if section in NAMED else [("", named)]:
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: [{section}] needs a name: write [{section}.NAME], and {name} below it")
            for key in cast("dict[str, Json]", table):
                if key not in known:
                    where = f"{section}.{name}" if name else section
                    raise ConfigError(f"{path}: unknown key {key!r} in [{where}]{_nearest(key, known)}")
    return parsed


def _nearest(name: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"


def _project_limits(given: Values, path: Path, above: Config) -> Values:
    for section, content in given.items():
        for key, value in content.items():
            dotted = f"{section}.{key}"
            if dotted not in (*_LIMITS, *_ADDED):
                raise ConfigError(f"{path}: a project may not set {dotted}; put it into {config_file()}")
            ceiling = above.get(dotted)
            if dotted in _ADDED and isinstance(value, list):
                content[key] = [*ceiling, *cast("list[Json]", value)]
            elif not isinstance(value, int | float) or (ceiling is not None and value > ceiling):
                raise ConfigError(f"{path}: a project may only lower {dotted}; it is {ceiling}")
    return given


@cache
def _fields_of(section: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(section)


def _from_environment(prefix: str, section: type[msgspec.Struct]) -> Iterator[tuple[str, dict[str, Json]]]:
    for field in _fields_of(section):
        variable = f"PINFOLD_{prefix}_{field.name}".upper()
        if (text := os.environ.get(variable)) is not None:
            try:
                yield variable, {field.name: parse_value(text, field.type)}
            except msgspec.ValidationError as error:
                raise ConfigError(f"the environment variable {variable}={text!r} is invalid: {error}") from error
