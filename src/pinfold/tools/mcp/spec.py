"""An MCP server as the user configured it. Starts nothing."""

from __future__ import annotations

import difflib
import json
import keyword
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast

from pinfold.events import Json, Reach
from pinfold.net import BadDestination, Url, parse_url, why_special
from pinfold.text import presentable_line

Transport: TypeAlias = Literal["stdio", "http", "sse"]
Grant: TypeAlias = Literal["code", "client_credentials"]
"""`code`: the user signs in with a browser. `client_credentials`: the server knows a secret of ours."""
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """What the user configured about a server's sign-in. All of it is optional: most servers provide it themselves."""

    grant: Grant = "code"
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    issuer: str = ""
    """The authorisation server that the secret is for, and the only one it is sent to."""
    callback_port: int = 0
    """Port on the loopback address to which the browser returns; 0: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One entry of `mcpServers`."""

    name: str
    """The module of `servers` in which code finds its tools."""
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
    """Use plain http with another machine, so that anyone on the way can read and change everything."""
    reach: Reach | None = None
    """What the user says it needs. With `nothing`, `workspace`, or `network` and hosts, it runs in its own sandbox."""
    hosts: tuple[str, ...] = ()
    """Hosts the sandboxed server may contact."""
    timeout_s: float = TIMEOUT_S
    origin: str = ""
    """The file that names it."""
    is_confined: bool = False
    """A project file names it, and the user gave it no more than a sandbox with the project's folder."""
    wants: str = ""
    """What it asks for beyond what it was given."""
    gives: str = ""
    """The options of `pinfold mcp trust` that would give it that."""

    def folders(self) -> list[Path]:
        """Folders that its arguments name: it should work there, not in the current folder."""
        named = (Path(argument) for argument in self.args)
        return [path for path in named if path.is_absolute() and path.is_dir()]


def module_name(entry: str) -> str:
    """The name in Python of an entry of `mcpServers`: `brave-search` is `servers.brave_search`; empty if it has none."""
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
_REACHES: tuple[Reach, ...] = ("nothing", "files", "workspace", "network", "outside")
_GRANTS: tuple[Grant, ...] = ("code", "client_credentials")
_KEYS = (
    *("command", "args", "env", "cwd", "url", "headers", "type", "oauth", "allow_http"),
    *("reach", "hosts", "timeout_s", "disabled"),
)
_OTHERS = frozenset(
    {
        *("transport", "alwaysAllow", "autoApprove", "description", "disabledTools", "enabled", "envFile"),
        *("gallery", "icon", "id", "name", "note", "timeout", "tools", "trust", "version", "$schema"),
    }
)
"""Keys of other clients: ignored, and no fault."""
_TAKEN = frozenset({"search"})
"""Names that the package `servers` uses itself."""
_NAMES = {"env": re.compile(r"[^=\0]+"), "headers": re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")}
_KINDS: Mapping[type, str] = {
    type(None): "nothing",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}
_Choice = TypeVar("_Choice", bound=str)


class _Fault(Exception):
    """One line for the user."""


class _Twice:
    """Stands for the value of a key that is there more than once."""


def read_servers(data: bytes, origin: str) -> tuple[tuple[ServerSpec, ...], tuple[str, ...]]:
    """The servers of a file, and one line for each thing that is wrong with it. A bad entry spoils no other."""
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
            if _flag(table, "disabled"):
                continue
            found[name] = _spec(name, table, origin)
        except _Fault as fault:
            faults.append(_line(where, str(fault)))
            continue
        for key in [key for key in table if key not in _KEYS and key not in _OTHERS]:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            faults.append(_line(where, f"`{key}` is not understood here{hint}"))
    return tuple(found.values()), tuple(faults)


def is_loopback(url: Url) -> bool:
    host = url.destination.host
    return host == "localhost" or (url.destination.address is not None and ip_address(host).is_loopback)


def why_not_led_to(url: Url, home: Url) -> str | None:
    """Why a server at `home` may not send Pinfold or a browser there; None if it may.

    Any https address is fine, but this machine and its network only if the server is there itself.
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
        raise _Fault("is not UTF-8; save it as that") from None
    except json.JSONDecodeError as error:
        raise _Fault(f"is no JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except (RecursionError, ValueError):
        raise _Fault("is no JSON that can be read") from None
    table = _table(content, "")
    if "mcpServers" not in table:
        more = "; rename `servers`" if "servers" in table else ""
        raise _Fault(f"has no `mcpServers`{more}")
    return _table(table["mcpServers"], "mcpServers")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in pairs:
        found[key] = _Twice() if key in found else value
    return found


def _name(entry: str, found: Mapping[str, ServerSpec]) -> str:
    name = module_name(entry)
    if not name:
        raise _Fault("cannot be a server's name: use letters, digits, `-` and `_`, at most 64")
    if name in _TAKEN:
        raise _Fault(f"`servers.{name}` is something else; give it another name")
    if name in found:
        raise _Fault(f"another server is `servers.{name}` in Python already; rename one")
    return name


def _spec(name: str, table: Mapping[str, Json], origin: str) -> ServerSpec:
    transport = _transport(table)
    timeout_s = table.get("timeout_s", TIMEOUT_S)
    if type(timeout_s) not in (int, float) or not math.isfinite(timeout_s):
        raise _Fault(f"`timeout_s` should be a number of seconds, not {_kind(timeout_s)}")
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise _Fault(f"`timeout_s` should be more than 0 and at most {LONGEST_TIMEOUT_S:g}, not {timeout_s:g}")
    hosts = _texts(table, "hosts")
    reach = _choice(table, "reach", _REACHES) if table.get("reach") is not None else None
    if hosts and reach not in (None, "network"):
        raise _Fault(f"`hosts` goes with reach `network`, not `{reach}`; drop one of the two")
    shared: dict[str, Any] = {
        "name": name,
        "transport": transport,
        "reach": "network" if hosts else reach,
        "hosts": hosts,
        "timeout_s": float(timeout_s),
        "origin": origin,
    }
    if transport == "stdio":
        _none_of(table, ("url", "headers", "oauth", "allow_http"), "a command")
        return ServerSpec(
            **shared,
            command=_text(table, "command"),
            args=_texts(table, "args"),
            env=_pairs(table, "env"),
            cwd=_text(table, "cwd") if "cwd" in table else "",
        )
    _none_of(table, ("command", "args", "env", "cwd"), "a URL")
    allow_http = _flag(table, "allow_http")
    return ServerSpec(
        **shared,
        url=_url(_text(table, "url"), allow_http=allow_http),
        headers=_pairs(table, "headers"),
        oauth=_oauth(table),
        allow_http=allow_http,
    )


def _transport(table: Mapping[str, Json]) -> Transport:
    said = table.get("type", table.get("transport"))
    if said is None:
        if not table.keys() & {"command", "url"}:
            raise _Fault("says neither `command` nor `url`; give it one of them")
        return "stdio" if "command" in table else "http"
    if not isinstance(said, str) or said not in _TRANSPORTS:
        raise _Fault(f"`type` should be stdio, http or sse, not {_short(said)}")
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
        raise _Fault(
            f"{key} is plain http to another machine, which anybody on the way can read and change; "
            'write https, or add `"allow_http": true`'
        )
    return text


def _oauth(table: Mapping[str, Json]) -> OAuth | None:
    if table.get("oauth") is None:
        return None
    given = _table(table["oauth"], "oauth")
    known = ("grant", "client_id", "client_secret", "scope", "issuer", "callback_port")
    if unknown := [key for key in given if key not in known]:
        raise _Fault(f"`oauth` has no `{unknown[0]}`; it takes {', '.join(known)}")
    port = given.get("callback_port", 0)
    if type(port) is not int or not 0 <= port < 1 << 16:
        raise _Fault(f"`oauth.callback_port` should be a port, not {_short(port)}")
    made = OAuth(
        grant=_choice(given, "grant", _GRANTS) if "grant" in given else "code",
        **_given_texts(given, "client_id", "client_secret", "scope"),
        issuer=_url(_text(given, "issuer"), allow_http=False, key="`oauth.issuer`") if "issuer" in given else "",
        callback_port=port,
    )
    if made.grant == "client_credentials" and not (made.client_id and made.client_secret and made.issuer):
        raise _Fault("`oauth` with client_credentials needs `client_id`, `client_secret` and `issuer`")
    if made.client_secret and not made.issuer:
        raise _Fault("`oauth` with `client_secret` needs `issuer`, the one server that may see it")
    return made


def _none_of(table: Mapping[str, Json], keys: Sequence[str], kind: str) -> None:
    for key in keys:
        if key in table:
            raise _Fault(f"`{key}` does not go with {kind}; drop one of the two")


def _table(content: Json, key: str) -> Mapping[str, Json]:
    if isinstance(content, _Twice):
        raise _Fault(f"{f'`{key}` ' if key else ''}stands there twice; remove one")
    if not isinstance(content, dict):
        raise _Fault(f"{f'`{key}` ' if key else ''}should be an object, not {_kind(content)}")
    return cast("dict[str, Json]", content)


def _flag(table: Mapping[str, Json], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise _Fault(f"`{key}` should be true or false, not {_short(value)}")
    return value


def _text(table: Mapping[str, Json], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _Fault(f"`{key}` should be a text, not {_short(value)}")
    if "\0" in value:
        raise _Fault(f"`{key}` holds a NUL character")
    return value


def _given_texts(table: Mapping[str, Json], *keys: str) -> dict[str, str]:
    return {key: _text(table, key) for key in keys if key in table}


def _texts(table: Mapping[str, Json], key: str) -> tuple[str, ...]:
    value = table.get(key)
    if not isinstance(value, list | None):
        raise _Fault(f'`{key}` should be a list of texts such as ["a", "b"], not {_kind(value)}')
    return tuple(_plain(item, key) for item in cast("list[Json]", value or []))


def _pairs(table: Mapping[str, Json], key: str) -> dict[str, str]:
    if table.get(key) is None:
        return {}
    found = {name: _plain(item, f"{key}.{name}") for name, item in _table(table[key], key).items()}
    for name in found:
        if not _NAMES[key].fullmatch(name):
            raise _Fault(f"`{key}`: {_short(name)} cannot be a name there")
    if key == "headers" and any(set(text) & set("\r\n") for text in found.values()):
        raise _Fault("`headers`: a value holds a line break")
    return found


def _plain(value: Json, key: str) -> str:
    """Numbers as they are written: `"PORT": 3000` means what it says."""
    if type(value) in (int, float):
        return str(value)
    if not isinstance(value, str) or "\0" in value:
        raise _Fault(f"`{key}` should hold texts, not {_kind(value)}; put it in quotes")
    return value


def _choice(table: Mapping[str, Json], key: str, choices: Sequence[_Choice]) -> _Choice:
    value = table.get(key)
    found = next((choice for choice in choices if choice == value), None)
    if found is None:
        raise _Fault(f"`{key}` should be one of {', '.join(choices)}, not {_short(value)}")
    return found


def _kind(value: Json) -> str:
    return _KINDS.get(type(cast("object", value)), "a key that stands there twice")


def _short(value: Json) -> str:
    return repr(value[:40]) if isinstance(value, str) else _kind(value)


def _line(where: str, words: str) -> str:
    return presentable_line(f"{where}: {words}")
