"""The user's databases as configured. Their passwords are looked up here and stay on the host."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.trust.secrets import Secrets, is_recognisable
from pinfold.events import Json
from pinfold.text import keep_own_secret
from pinfold.tools import AnyTool, BadCall
from pinfold.tools.sql.sources import (
    MAX_MB,
    MAX_ROWS,
    NAME,
    TIMEOUT_S,
    Address,
    BadAddress,
    Source,
    read_address,
    show_address,
)

_REFERENCE = re.compile(r"\$\{secret:([^}]*)\}")
_HIDDEN = "(hidden)"


class DataConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database that code may read: `[data.NAME]`."""

    url: str
    """postgresql://user@host/name, sqlite:///whole/path or duckdb:///whole/path."""
    password: str = ""
    """Best written as `${secret:NAME}`; set it with `pinfold secret set NAME --host HOST`."""
    max_rows: int = MAX_ROWS
    max_mb: int = MAX_MB
    timeout_s: float = TIMEOUT_S
    functions: tuple[str, ...] = ()
    """Functions of the database that the user knows to change nothing, though the server calls them volatile."""

    def __repr__(self) -> str:
        return f"DataConfig(url={show_address(self.url)!r})"

    def rows(self) -> dict[str, Json]:
        """Return the fields for display, with the password hidden."""
        fields = msgspec.to_builtins(self)
        is_open = not self.password or _REFERENCE.fullmatch(self.password)
        return {**fields, "url": show_address(self.url), "password": self.password if is_open else _HIDDEN}


def check_data(name: str, given: DataConfig) -> None:
    """Check a database section. Raises ConfigError that does not name the origin."""
    where = f"data.{name}"
    if not NAME.fullmatch(name):
        raise ConfigError(f"{where}: a database's name is letters, digits, dashes and underscores")
    try:
        address = read_address(given.url)
    except BadAddress as error:
        raise ConfigError(f"{where}.url {error}") from error
    if given.password and not address.hosts:
        raise ConfigError(f"{where}.password: a {address.kind} file has no password; leave it out")
    if "${" in given.password and not _REFERENCE.fullmatch(given.password):
        raise ConfigError(f"{where}.password: write ${{secret:NAME}} and nothing else, or the password itself")
    for key in ("max_rows", "max_mb", "timeout_s"):
        value = getattr(given, key)
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{where}.{key} must be more than 0 and finite, not {value}")


class ConfiguredDatabases:
    """The databases of one session, and the processes that query them."""

    def __init__(
        self, data: Mapping[str, DataConfig], folders: tuple[Path, ...], about_to_read: Callable[[], Awaitable[None]]
    ) -> None:
        """`folders`: those that the session's code can write to."""
        from pinfold.tools.sql.workers import Workers

        self._data = data
        self._folders = tuple(map(str, folders))
        self._about_to_read = about_to_read
        self.workers = Workers()
        self.close = self.workers.close

    @property
    def names(self) -> Mapping[str, str]:
        return {name: read_address(given.url).kind for name, given in self._data.items()}

    @property
    def longest_s(self) -> float:
        return max(given.timeout_s for given in self._data.values())

    async def source(self, name: str) -> Source:
        from pinfold.tools.sql.tools import no_such

        given = self._data.get(name)
        if given is None:
            raise no_such(name, self.names)
        return Source(
            name=name,
            address=_with_password(name, read_address(given.url), given.password),
            max_rows=given.max_rows,
            max_bytes=given.max_mb << 20,
            timeout_s=given.timeout_s,
            functions=given.functions,
            changeable=self._folders,
        )

    async def about_to_read(self) -> None:
        """Note that private data is about to be read: a database's content always counts as the user's."""
        await self._about_to_read()

    def tools(self) -> list[AnyTool]:
        from pinfold.tools.sql.tools import sql_tools

        return sql_tools(self, self.workers)


def keep_passwords(data: Mapping[str, DataConfig]) -> None:
    """Redact the passwords from now on, except words such as `postgres`, which would garble other text."""
    for given in data.values():
        for password in (given.password, read_address(given.url).password):
            if is_recognisable(password):
                keep_own_secret(password)


def _with_password(name: str, address: Address, password: str) -> Address:
    """Return the address with its password. Raises BadCall if the secret is not set for the host."""
    found = _REFERENCE.fullmatch(password)
    if not found:
        return replace(address, password=password or address.password)
    values = {Secrets().get(found[1], host) for host in address.hosts}
    if len(values) != 1 or (value := values.pop()) is None:
        hosts = " ".join(f"--host {host}" for host in address.hosts)
        raise BadCall(
            f"{name} needs the secret {found[1]}, which is not set for its host; the user can: "
            f"pinfold secret set {found[1]} {hosts}"
        )
    return replace(address, password=value)
