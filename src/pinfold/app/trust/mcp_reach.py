"""How far a project's servers reach: no further than a sandbox, unless the user has said so for exactly this entry."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.app.paths import data_dir
from pinfold.app.private_files import hold_file_lock, read_private, write_private
from pinfold.events import Reach
from pinfold.tools.mcp.spec import ServerSpec

_BOXED = ("nothing", "files", "workspace", "network")

DEFAULT: Reach = "nothing"
_WITHIN = ("nothing", "files", "workspace")
"""What a project may ask for by itself: its own folder, which its code can change anyway, and no network."""


def is_sandboxed(spec: ServerSpec) -> bool:
    """Whether it runs in a sandbox of its own: the user has said how little it needs."""
    return spec.transport == "stdio" and spec.reach in _BOXED


class _GrantedReach(msgspec.Struct, frozen=True, kw_only=True):
    entry: str
    """Of all that the project says of the server: another entry was not agreed to."""
    reach: Reach
    hosts: tuple[str, ...] = ()


def apply_reach(spec: ServerSpec) -> ServerSpec:
    """A project's server as it runs here. Raises ConfigError."""
    if spec.transport != "stdio":
        return spec
    given = _read().get(_key(spec))
    if given and given.entry == _digest(spec):
        return replace(spec, reach=given.reach, hosts=given.hosts)
    if spec.reach in _WITHIN:
        return replace(spec, is_confined=True)
    wants, gives = "", ""
    if spec.hosts:
        wants = f"to reach {', '.join(spec.hosts)}"
        gives = " ".join(f"--host {host}" for host in spec.hosts)
    elif spec.reach is not None:
        wants, gives = "to run on this machine itself", "--reach outside"
    return replace(spec, reach=DEFAULT, hosts=(), is_confined=True, wants=wants, gives=gives)


def grant_reach(spec: ServerSpec, reach: Reach, hosts: tuple[str, ...]) -> None:
    """`spec` is as the project has it. Raises ConfigError."""
    with hold_file_lock(_path()):
        given = _GrantedReach(entry=_digest(spec), reach=reach, hosts=hosts)
        write_private(_path(), msgspec.json.encode({**_read(), _key(spec): given}))


def _digest(spec: ServerSpec) -> str:
    fields = {name: getattr(spec, name) for name in ("command", "args", "env", "cwd", "reach", "hosts")}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=dict).encode()).hexdigest()


def _key(spec: ServerSpec) -> str:
    return f"{spec.origin}#{spec.name}"


def _path() -> Path:
    return data_dir() / "mcp" / "reach.json"


def _read() -> dict[str, _GrantedReach]:
    data = read_private(_path())
    try:
        return {} if data is None else msgspec.json.decode(data, type=cast(Any, dict[str, _GrantedReach]))
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{_path()} is damaged; remove it and say again what servers may reach") from error
