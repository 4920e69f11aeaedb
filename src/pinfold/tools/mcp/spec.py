"""Reads the user's configuration of MCP servers. Starts nothing."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct, ValidationError

from pinfold.events import Json, Reach, convert
from pinfold.net import BadDestination, Url, parse_url, why_special
from pinfold.text import closest, presentable_line
from pinfold.tools.arguments import describe_misfit

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Grant: TypeAlias = Literal["code", "client_credentials"]
"""`code`: the user signs in with a browser. `client_credentials`: sign-in with a shared secret."""
TIMEOUT_S = 60.0


class OAuth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's settings for a server's sign-in. All are optional: most servers announce them."""

    grant: Grant = "code"
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    issuer: str = ""
    """The authorisation server that the secret is for, and the only one it is sent to."""
    callback_port: Annotated[int, Meta(ge=0, lt=1 << 16)] = 0
    """Loopback port to which the browser returns; 0 for any free one."""

    def __repr__(self) -> str:
        return f"OAuth({self.grant})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One entry of `mcpServers`."""

    name: str
    """The module of `servers` with its tools."""
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str = ""
    """Its working folder; empty means the home folder, where the agent cannot write."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuth | None = None
    allow_http: bool = False
    """Allow plain http to another machine, although others on the network can then read and change everything."""
    reach: Reach | None = None
    """Reach given by the user. With `nothing`, `workspace`, or `network` and hosts, it runs in its own sandbox."""
    hosts: tuple[str, ...] = ()
    """Hosts the sandboxed server may contact."""
    timeout_s: float = TIMEOUT_S
    origin: str = ""
    """The file that configures it."""
    is_confined: bool = False
    """True if a project file configures it and the user granted only a sandbox with the project's folder."""
    wants: str = ""
    """What it requests beyond what it was granted."""
    gives: str = ""
    """The options of `pinfold mcp trust` that would grant it that."""

    def folders(self) -> list[Path]:
        """Return the folders named in its arguments: it should work there, not in the current folder."""
        named = (Path(argument) for argument in self.args)
        return [path for path in named if path.is_absolute() and path.is_dir()]


def module_name(entry: str) -> str:
    """Return the Python name of an `mcpServers` entry: `brave-search` is `servers.brave_search`; empty if none."""
    name = re.sub(r"[-. ]", "_", entry)
    if name[:1].isdigit():
        name = f"_{name}"
    is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) and not name.startswith("__")
    return f"{name}_" if is_name and keyword.iskeyword(name) else name if is_name else ""


FILE_BYTES = 1_000_000
LONGEST_TIMEOUT_S = 3600.0
_TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_OTHERS = frozenset(
    {
        *("transport", "alwaysAllow", "autoApprove", "description", "disabledTools", "enabled", "envFile"),
        *("gallery", "icon", "id", "name", "note", "timeout", "tools", "trust", "version", "$schema"),
    }
)
"""Keys of other MCP clients, ignored without a warning."""
_TAKEN = frozenset({"search"})
"""Names that the package `servers` uses itself."""
_NAMES = {"env": re.compile(r"[^=\0]+"), "headers": re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")}
_Plain: TypeAlias = str | int | float
"""A text, or a number to be used as text, as in `"PORT": 3000`."""


class _Entry(Struct):
    command: str = ""
    args: tuple[_Plain, ...] | None = ()
    env: dict[str, _Plain] | None = None
    cwd: str = ""
    url: str = ""
    headers: dict[str, _Plain] | None = None
    type: str | None = None
    oauth: OAuth | None = None
    allow_http: bool = False
    reach: Literal["nothing", "files", "workspace", "network", "outside"] | None = None
    hosts: tuple[str, ...] | None = ()
    timeout_s: Annotated[float, Meta(gt=0, le=LONGEST_TIMEOUT_S)] = TIMEOUT_S
    disabled: bool = False


class _Fault(Exception):
    """One line for the user."""


class _Duplicate:
    """Stands for the value of a duplicate key."""


def read_servers(data: bytes, origin: str) -> tuple[tuple[ServerSpec, ...], tuple[str, ...]]:
    """Read the servers of a file; return them and one line for each fault. A bad entry does not affect the others."""
    faults: list[str] = []
    found: dict[str, ServerSpec] = {}
    try:
        entries = _entries(data)
    except _Fault as fault:
        return (), (_line(origin, str(fault)),)
    for entry, content in entries.items():
        where = f"{origin}: {entry}"
        try:
            name = _name(entry, found)
            table = _table(content, "")
            given = _read_entry(table)
            if given.disabled:
                continue
            found[name] = _spec(name, table, given, origin)
        except _Fault as fault:
            faults.append(_line(where, str(fault)))
            continue
        for key in [key for key in table if key not in _Entry.__struct_fields__ and key not in _OTHERS]:
            near = closest(key, _Entry.__struct_fields__)
            hint = f"; did you mean `{near}`?" if near else ""
            faults.append(_line(where, f"`{key}` is not understood here{hint}"))
    return tuple(found.values()), tuple(faults)


def _read_entry(table: Mapping[str, Json]) -> _Entry:
    if twice := next((key for key, value in table.items() if isinstance(value, _Duplicate)), None):
        raise _Fault(f"`{twice}` is given twice; remove one")
    try:
        return convert(table, _Entry)
    except ValidationError as error:
        key, words = describe_misfit(error, _Entry)
        raise _Fault(f"`{key}` {words}") from None


def is_loopback(url: Url) -> bool:
    address = url.destination.address
    return address.is_loopback if address else url.destination.host == "localhost"


def why_redirect_refused(url: Url, home: Url) -> str | None:
    """Return why a server at `home` may not direct Pinfold or a browser to `url`; None if it may.

    Any https address is allowed, except this machine and its network, unless the server itself runs there.
    """
    to = url.destination
    if to == home.destination and url.scheme == home.scheme:
        return None
    is_here = is_loopback(url) or to.host.endswith(".localhost")
    if is_here and is_loopback(home):
        return None
    if url.scheme != "https":
        return "plain http, where others could read what is sent"
    if is_here or (to.address and why_special(to.address)):
        return "an address of your own machine or network, where this server is not"
    return None


def _entries(data: bytes) -> Mapping[str, Json]:
    if len(data) > FILE_BYTES:
        raise _Fault(f"is larger than {FILE_BYTES:,} bytes; it should only list servers")
    try:
        content = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise _Fault("is not UTF-8; save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise _Fault(f"is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except (RecursionError, ValueError):
        raise _Fault("is not JSON that can be read") from None
    table = _table(content, "")
    if "mcpServers" not in table:
        more = "; rename `servers`" if "servers" in table else ""
        raise _Fault(f"has no `mcpServers`{more}")
    return _table(table["mcpServers"], "mcpServers")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        found[key] = _Duplicate() if key in found else value
    return found


def _name(entry: str, found: Mapping[str, ServerSpec]) -> str:
    name = module_name(entry)
    if not name:
        raise _Fault("cannot be a server's name: use letters, digits, `-` and `_`, at most 64")
    if name in _TAKEN:
        raise _Fault(f"`servers.{name}` is taken; give it another name")
    if name in found:
        raise _Fault(f"another server is `servers.{name}` in Python already; rename one")
    return name


def _spec(name: str, table: Mapping[str, Json], given: _Entry, origin: str) -> ServerSpec:
    transport = _transport(table)
    if given.hosts and given.reach not in (None, "network"):
        raise _Fault(f"`hosts` goes with reach `network`, not `{given.reach}`; drop one of the two")
    unfit = ("url", "headers", "oauth", "allow_http") if transport == "stdio" else ("command", "args", "env", "cwd")
    if wrong := next((key for key in unfit if key in table), None):
        kind = "a command" if transport == "stdio" else "a URL"
        raise _Fault(f"`{wrong}` does not go with {kind}; drop one of the two")
    if not (given.command or given.url).strip():
        raise _Fault("has an empty `command` or `url`; fill it in")
    _check_oauth(given.oauth or OAuth())
    return ServerSpec(
        name=name,
        transport=transport,
        command=_check_text(given.command),
        args=tuple(map(_check_text, given.args or ())),
        env=_pairs("env", given.env),
        cwd=_check_text(given.cwd),
        url=_url(given.url, allow_http=given.allow_http) if given.url else "",
        headers=_pairs("headers", given.headers),
        oauth=given.oauth,
        allow_http=given.allow_http,
        reach="network" if given.hosts else given.reach,
        hosts=given.hosts or (),
        timeout_s=float(given.timeout_s),
        origin=origin,
    )


def _transport(table: Mapping[str, Json]) -> Transport:
    said = table.get("type", table.get("transport"))
    if said is None:
        if not table.keys() & {"command", "url"}:
            raise _Fault("says neither `command` nor `url`; give it one of them")
        return "stdio" if "command" in table else "http"
    if not isinstance(said, str) or said not in _TRANSPORTS:
        raise _Fault(f"`type` should be stdio, http or sse, not {said!r}")
    needed = "command" if said == "stdio" else "url"
    if needed not in table:
        raise _Fault(f"is of type {said} and has no `{needed}`")
    return _TRANSPORTS[said]


def _url(text: str, *, allow_http: bool, key: str = "`url`") -> str:
    if "${" in text:
        raise _Fault(f"{key} takes no variables; write it out, and put the secret into `headers`")
    try:
        url = parse_url(text)
    except BadDestination as error:
        raise _Fault(f"{key}: {error}") from None
    if url.scheme == "http" and not is_loopback(url) and not allow_http:
        words = f"{key} is plain http to another machine, which others on the network can read and change"
        raise _Fault(f'{words}; write https, or add `"allow_http": true`')
    return text


def _check_oauth(made: OAuth) -> None:
    if made.issuer:
        _url(made.issuer, allow_http=False, key="`oauth.issuer`")
    if made.grant == "client_credentials" and not (made.client_id and made.client_secret and made.issuer):
        raise _Fault("`oauth` with client_credentials needs `client_id`, `client_secret` and `issuer`")
    if made.client_secret and not made.issuer:
        raise _Fault("`oauth` with `client_secret` needs `issuer`, the one server that may see it")


def _table(content: Json, key: str) -> Mapping[str, Json]:
    what = f"`{key}` " if key else ""
    if isinstance(content, _Duplicate):
        raise _Fault(f"{what}is given twice; remove one")
    try:
        return convert(content, dict[str, Json])
    except ValidationError as error:
        raise _Fault(f"{what}{describe_misfit(error, dict)[1]}") from None


def _pairs(key: Literal["env", "headers"], given: Mapping[str, _Plain] | None) -> dict[str, str]:
    found = {name: _check_text(value) for name, value in (given or {}).items()}
    if wrong := next((name for name in found if not _NAMES[key].fullmatch(name)), None):
        raise _Fault(f"`{key}`: {wrong[:40]!r} cannot be a name there")
    if key == "headers" and any(set(text) & set("\r\n") for text in found.values()):
        raise _Fault("`headers`: a value holds a line break")
    return found


def _check_text(value: _Plain) -> str:
    if "\0" in (text := str(value)):
        raise _Fault("it holds a NUL character")
    return text


def _line(where: str, words: str) -> str:
    return presentable_line(f"{where}: {words}")
