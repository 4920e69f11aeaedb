"""The user's databases, parsed from the configured URLs, and the messages between host and worker.

Passwords are taken out of the URLs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from pinfold.events import Json

Kind: TypeAlias = Literal["postgresql", "sqlite", "duckdb"]
MAX_ROWS = 1_000_000
MAX_MB = 256
TIMEOUT_S = 60.0
TABLES = 300
"""Maximum number listed per database; one more is read to know whether there are more."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SCHEMES: dict[str, Kind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
_WRITE = "write postgresql://user@host/name, sqlite:///whole/path or duckdb:///whole/path"
_PASSWORDS = ("password", "sslpassword", "passfile")


class BadAddress(ValueError):
    """The message says what is wrong with a URL but never quotes it, because it may hold a password."""


class Address(Struct, frozen=True, kw_only=True):
    kind: Kind
    where: str
    """The URL for the driver, without a password, or the path of a file."""
    password: str = ""
    hosts: tuple[str, ...] = ()
    """Hosts of the server; empty for a file. A unix socket counts as `localhost`."""
    port: int = 0

    def __repr__(self) -> str:
        return f"Address({self.kind}, {self.where!r})"


class Source(Struct, frozen=True, kw_only=True):
    """A database that code may read."""

    name: str
    address: Address
    max_rows: int = MAX_ROWS
    max_bytes: int = MAX_MB << 20
    timeout_s: float = TIMEOUT_S
    functions: tuple[str, ...] = ()
    """Functions that the user allows although the server declares them volatile."""
    changeable: tuple[str, ...] = ()
    """Folders that the session's code can write to: files in them may be forged."""

    @property
    def kind(self) -> Kind:
        return self.address.kind


class WorkerRequest(Struct, frozen=True, kw_only=True):
    """A request from the host. If `sql` is None, it asks for the list of tables."""

    source: Source
    sql: str | None = None
    params: Json = None


class WorkerReply(Struct, frozen=True, kw_only=True):
    """The worker's reply. A table, if any, is passed in the shared file."""

    text: str = ""
    """Text for the model."""
    value: Json = None
    """The result, if it is not a table."""
    size: int = 0
    """Bytes of the table in the shared file."""
    table: bytes = b""
    """The table as an Arrow stream. The host fills it in from the shared file."""
    came: int = 0
    """Bytes of rows received from the database."""
    refused: str = ""
    """Why the statement was not run, or failed."""


def read_address(url: str) -> Address:
    """Parse a database URL. Raises BadAddress."""
    scheme, sign, rest = url.partition("://")
    kind = _SCHEMES.get(scheme.strip().lower().partition("+")[0])
    if kind is None or not sign:
        raise BadAddress(f"is not a database address; {_WRITE}")
    if any(ord(letter) < 32 for letter in url) or "${" in url:
        what = "has `${...}` in it; that goes into `password`" if "${" in url else "has control characters"
        raise BadAddress(f"{what}; {_WRITE}")
    return _server(f"postgresql://{rest}") if kind == "postgresql" else _file(kind, rest)


def _file(kind: Kind, rest: str) -> Address:
    host, slash, path = rest.partition("/")
    path = unquote(path).lstrip("/")
    if host or not slash or not path or path == ":memory:":
        raise BadAddress(f"names no file; write {kind}:///whole/path")
    return Address(kind=kind, where=str(Path(path).expanduser()) if path.startswith("~/") else f"/{path}")


def _server(url: str) -> Address:
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadAddress(f"cannot be read; {_WRITE}") from error
    account, _, places = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    given = dict(options)
    password = unquote(given.get("password", "")) or unquote(password)
    options = [(key, value) for key, value in options if key not in _PASSWORDS]
    if any(key in given for key in _PASSWORDS[1:]):
        raise BadAddress("has a password of a certificate or a file of passwords; leave that to libpq's own")
    hosts = _hosts(given.get("host") or places, bool(given.get("host")))
    more = f"?{urlencode(options, quote_via=quote)}" if options else ""
    where = f"postgresql://{user}{'@' if user else ''}{places}{parts.path}{more}"
    port = given.get("port") or places.rpartition(":")[2]
    return Address(
        kind="postgresql",
        where=where,
        password=password,
        hosts=hosts,
        port=int(port) if port.isascii() and port.isdigit() else 5432,
    )


def _hosts(places: str, is_bare: bool) -> tuple[str, ...]:
    hosts: list[str] = []
    for place in unquote(places).split(","):
        host = place if is_bare else re.sub(r":\d*$", "", place)
        hosts.append("localhost" if not host or host.startswith(("/", "@")) else host)
    return tuple(dict.fromkeys(hosts))


def show_address(url: str) -> str:
    """Return the URL without its password."""
    try:
        address = read_address(url)
    except BadAddress:
        return "(not readable)"
    return address.where if address.kind == "postgresql" else f"{address.kind}://{address.where}"
