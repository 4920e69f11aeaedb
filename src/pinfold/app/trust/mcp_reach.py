"""What a project's MCP servers may reach unless the user grants more for the exact entry; descriptions of servers.

Each line of a description is safe to print. Secrets are named but not shown.
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
"""What a project's server gets without a grant: the project's folder, which its code can change anyway, no network."""


def is_sandboxed(spec: ServerSpec) -> bool:
    """True if the server runs in its own sandbox, because its reach is limited."""
    return spec.transport == "stdio" and spec.reach in _BOXED


class _GrantedReach(msgspec.Struct, frozen=True, kw_only=True):
    entry: str
    """Digest of the server's entry in the project; the grant holds for this entry only."""
    reach: Reach
    hosts: tuple[str, ...] = ()


def apply_reach(spec: ServerSpec) -> ServerSpec:
    """Return a project's server limited to the reach it is granted. Raises ConfigError."""
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
        wants, gives = "to run outside a sandbox", "--reach outside"
    return replace(spec, reach=DEFAULT, hosts=(), is_confined=True, wants=wants, gives=gives)


def grant_reach(spec: ServerSpec, reach: Reach, hosts: tuple[str, ...]) -> None:
    """Grant a reach to `spec`, which is as the project has it. Raises ConfigError."""
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
    return read_store(_path(), dict[str, _GrantedReach], "remove it, and grant again what servers may reach")


_BLANKS = re.compile(r"\s{20,}")
_WORD = re.compile(r"(?:(?:Bearer|Basic|Token) )?[\w+/=.:-]+")
"""Shape of a secret. Other values may hold a command, so they are shown."""
_SECRET_HEADERS = re.compile(r"authorization|cookie|.*(?:token|key|secret|password)", re.IGNORECASE)


def describe_server(spec: ServerSpec) -> tuple[str, ...]:
    """Return lines: the name and how the server is reached or started, then a line for each thing it is given."""
    return tuple(map(_line, _lines(spec)))


def _lines(spec: ServerSpec) -> Iterator[str]:
    # Redact each word before quoting, since a quoted key would not be recognised.
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
        yield f"    wants {spec.wants}; to allow that: pinfold mcp trust {spec.name} {spec.gives}"


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
    """Return the whole line, with long runs of blanks counted, since they could push the rest out of sight."""
    short = _BLANKS.sub(lambda found: f"[{len(found[0]):,} blanks]", text)
    return exact_line(short).replace("\t", "\\t")
