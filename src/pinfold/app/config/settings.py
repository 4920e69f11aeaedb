"""Change one configuration key, keeping comments and order. Checks are the same as on loading."""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from pinfold.app.config.layers import check_project, check_user, config_file, load_config, parse_value
from pinfold.app.config.schema import NAMED, SECTIONS
from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, hold_file_lock, private_dir, write_whole
from pinfold.app.trust.project_files import SETTINGS
from pinfold.events import Json


class Change(Struct, frozen=True, kw_only=True):
    path: Path
    line: int
    """Line of the key; 0 if it was removed."""
    before: Json
    after: Json
    """None if the key is not set in the file."""
    wins: str = ""
    """Origin that sets the same key and takes precedence, if any."""


def value_of(key: str, workspace: Path) -> tuple[Json, str]:
    """Return the value in force and its origin. Raises ConfigError."""
    loaded = load_config(workspace)
    for dotted, value, origin in loaded.rows():
        if dotted == key:
            return value, origin
    _type_of(key)  # raises with the nearest key if it is unknown
    raise ConfigError(f"{key} is not set")


def set_value(key: str, text: str | None, *, project: Path | None = None) -> Change:
    """Set `key` to `text` in the user's file, or a project's; None removes it. Raises ConfigError."""
    field = _type_of(key)
    value = None if text is None else _read(key, text, field)
    path = config_file() if project is None else project / SETTINGS
    if project is not None and path.is_symlink():
        raise ConfigError(f"{path} is a link; edit the file that it points to by hand")
    with hold_file_lock(path) if project is None else contextlib.nullcontext():
        document = _read_document(path)
        text_before = document.as_string()
        before = _put(document, key.split("."), value)
        written = document.as_string()
        data = written.encode()
        if project is None:
            check_user(data, path)
        else:
            check_project(data, path)
        if written != text_before:
            _write(path, data)
    return Change(path=path, line=_line_of(written, key), before=before, after=value, wins=_winner(key, path, project))


def replace_config(data: bytes) -> None:
    """Replace the user's file. Raises ConfigError and changes nothing if the content is not valid."""
    path = config_file()
    check_user(data, path)
    with hold_file_lock(path):
        _write(path, data)


def _read(key: str, text: str, field: Any) -> Json:
    """Raises ConfigError."""
    try:
        return parse_value(text, field)
    except msgspec.ValidationError as error:
        is_choice = get_origin(field) is Literal
        problem = f"it is one of {', '.join(map(str, get_args(field)))}" if is_choice else str(error)
        raise ConfigError(f"{key} cannot be {text!r}: {problem}") from error


def _read_document(path: Path) -> Json:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; fix it: pinfold config edit") from error
    except TOMLKitError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}; fix it: pinfold config edit") from error


def _put(document: Json, parts: list[str], value: Json) -> Json:
    """Set a value, or remove it if None. Return the previous value."""
    import tomlkit

    table = document
    for place, part in enumerate(parts[:-1]):
        if part not in table:
            if value is None:
                return None
            # Write `[data.NAME]` without an empty `[data]` before it.
            is_outer = place < len(parts) - 2
            table[part] = tomlkit.table(is_super_table=is_outer)
        table = table[part]
    before = table.get(parts[-1])
    before = before.unwrap() if hasattr(before, "unwrap") else before
    if value is None:
        table.pop(parts[-1], None)
    else:
        table[parts[-1]] = value
    return before


def _write(path: Path, data: bytes) -> None:
    """Write atomically. An existing file keeps its mode, and links stay links; a new file is private."""
    place = path.resolve() if path.is_symlink() else path
    if place.parent == config_dir():
        private_dir(place.parent)
    write_whole(place, data, place.stat().st_mode & 0o777 if place.exists() else 0o600)


def _line_of(text: str, key: str) -> int:
    """Return the line of a key; 0 if it is not found."""
    *section, last = key.split(".")
    here: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("[") and not bare.startswith("[["):
            here = [part.strip().strip("\"'") for part in bare[1:].split("]")[0].split(".")]
        name = bare.split("=")[0].strip().strip("\"'")
        if [*here, *name.split(".")] == [*section, last]:
            return number
    return 0


def _winner(key: str, path: Path, project: Path | None) -> str:
    """Return the origin that sets the key and takes precedence over the file, if any."""
    with contextlib.suppress(ConfigError):
        for dotted, _, origin in load_config(project).rows():
            goes_before = origin.startswith("PINFOLD_") or (project is None and Path(origin).name == SETTINGS)
            if dotted == key and goes_before and origin != str(path):
                return origin
    return ""


def all_keys() -> list[str]:
    """Return every key that can be set, except keys below user-chosen names."""
    return [
        f"{section}.{field.name}"
        for section, table in SECTIONS.items()
        if section not in NAMED
        for field in msgspec.structs.fields(table)
    ]


def _type_of(key: str) -> Any:
    """Return the type of a key. Raises ConfigError naming the nearest key."""
    section, _, inner = key.partition(".")
    fields = msgspec.structs.fields(SECTIONS[section]) if section in SECTIONS else ()
    if section in NAMED:
        name, _, inner = inner.partition(".")
        for field in fields if name else ():
            if field.name == inner:
                return field.type
        names = ", ".join(field.name for field in fields)
        raise ConfigError(f"there is no key {key!r}; write {section}.NAME.KEY, with one of {names}")
    for field in fields:
        if field.name == inner:
            return field.type
        # `[models.aliases]` and `[model.extra]` are tables with user-chosen keys.
        if inner.startswith(f"{field.name}.") and get_origin(field.type) is dict:
            return get_args(field.type)[1]
    same = [one for one in all_keys() if one.partition(".")[2] == key.rpartition(".")[2]]
    near = same or difflib.get_close_matches(key, all_keys(), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "`pinfold config show` lists them"
    raise ConfigError(f"there is no key {key!r}; {hint}")
