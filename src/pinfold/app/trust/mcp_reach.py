"""How far a project's servers reach, unless the user grants more for exactly this entry; and a server described before it is started.

Each described line is fit to print. Secrets are not shown, but named.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from pinfold.app.paths import data_dir, hold_file_lock, read_store, write_private
from pinfold.app.trust.secrets import secrets_in
from pinfold.events import Reach
from pinfold.text import exact_line, redact
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
    return read_store(_path(), dict[str, _GrantedReach], "remove it and say again what servers may reach")


_BLANKS = re.compile(r"\s{20,}")
_WORD = re.compile(r"(?:(?:Bearer|Basic|Token) )?[\w+/=.:-]+")
"""What a secret looks like; anything with more to it may be a command, and is shown."""
_SECRET_HEADERS = re.compile(r"authorization|cookie|.*(?:token|key|secret|password)", re.IGNORECASE)


def describe_server(spec: ServerSpec) -> tuple[str, ...]:
    """Its name and how it is reached or started, then a line for each thing it is given."""
    return tuple(map(_line, _lines(spec)))


def _lines(spec: ServerSpec) -> Iterator[str]:
    # Each word by itself: quoted, a key would not be known for one.
    words = (redact(word) for word in (spec.command, *spec.args))
    yield f"{redact(spec.name)}: {redact(spec.url) if spec.url else shlex.join(words)}"
    for name, value in spec.env.items():
        is_secret = bool(secrets_in({name: value}))
        yield f"    env {name}={_value(value, is_secret=is_secret)}"
    for name, value in spec.headers.items():
        is_secret = _SECRET_HEADERS.fullmatch(name) is not None
        yield f"    header {name}: {_value(value, is_secret=is_secret)}"
    if spec.cwd:
        yield f"    starts in {spec.cwd}"
    if spec.oauth:
        known = f", client {spec.oauth.client_id}" if spec.oauth.client_id else ""
        yield f"    signs in by OAuth ({spec.oauth.grant}{known}{f', {spec.oauth.issuer}' if spec.oauth.issuer else ''})"
    if not spec.url:
        yield f"    runs {_place(spec)}"
    if spec.wants:
        yield f"    wants {spec.wants}; to give it that: pinfold mcp trust {spec.name} {spec.gives}"


def _place(spec: ServerSpec) -> str:
    if not is_sandboxed(spec):
        return "on this machine, as you, with all your files and the network"
    files = "may change this folder" if spec.reach == "workspace" else "may read this folder"
    files += " and its own program" if spec.is_confined else ", its own program and the paths it names"
    network = f"may reach {', '.join(spec.hosts)}" if spec.hosts else "has no network"
    return f"in a sandbox of its own: {files}, {network}"


def _value(value: str, *, is_secret: bool) -> str:
    if is_secret and _WORD.fullmatch(value):
        return f"(a secret of {len(value)} characters, not shown)"
    return redact(value)


def _line(text: str) -> str:
    """All of it, with blanks that would push the rest out of sight counted instead."""
    short = _BLANKS.sub(lambda found: f"[{len(found[0]):,} blanks]", text)
    return exact_line(short).replace("\t", "\\t")
