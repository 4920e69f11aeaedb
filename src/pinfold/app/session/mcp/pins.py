"""What each server offered when the user agreed to it, in a folder that no session can see. Compares nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.app.paths import data_dir
from pinfold.app.private_files import hold_file_lock, read_private, write_private
from pinfold.app.session.mcp.files import user_file
from pinfold.app.trust.secrets import secrets_in
from pinfold.events import Json
from pinfold.tools.mcp.spec import ServerSpec


class _Pin(msgspec.Struct, frozen=True, kw_only=True):
    identity: str
    """Of the entry that was agreed to: another program under the same name is another server."""
    trusted: bool = False
    manifest: dict[str, Json] | None = None


class FilePins:
    """A file for each server; one that a workspace names is another than the user's own of that name."""

    def __init__(self, specs: Iterable[ServerSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self.folder = data_dir() / "mcp" / "pins"

    def get(self, server: str) -> Mapping[str, Json] | None:
        """Raises ConfigError."""
        pin = self._read(server)
        return pin.manifest if pin else None

    def put(self, server: str, manifest: Mapping[str, Json]) -> None:
        """What it says of its tools counts for nothing until that is trusted as well. Raises ConfigError."""
        with hold_file_lock(self._path(server)):
            self._write(server, _Pin(identity=self._identity(server), manifest=dict(manifest)))

    def is_trusted(self, server: str) -> bool:
        pin = self._read(server)
        return pin is not None and pin.trusted

    def trust(self, server: str) -> None:
        """From now on its annotations count. Raises ConfigError."""
        with hold_file_lock(self._path(server)):
            pin = self._read(server) or _Pin(identity=self._identity(server))
            self._write(server, msgspec.structs.replace(pin, trusted=True))

    def forget(self, server: str) -> None:
        with suppress(OSError):
            self._path(server).unlink()

    def _read(self, server: str) -> _Pin | None:
        path = self._path(server)
        data = read_private(path)
        if data is None:
            return None
        try:
            pin = msgspec.json.decode(data, type=_Pin)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} is damaged; remove it, and look at {server} again: pinfold mcp trust") from error
        return pin if pin.identity == self._identity(server) else None

    def _write(self, server: str, pin: _Pin) -> None:
        write_private(self._path(server), msgspec.json.encode(pin))

    def _path(self, server: str) -> Path:
        origin = self._specs[server].origin
        elsewhere = "" if origin == str(user_file()) else f"-{_digest(origin)[:16]}"
        return self.folder / f"{server}{elsewhere}.json"

    def _identity(self, server: str) -> str:
        return identity(self._specs[server])


def identity(spec: ServerSpec) -> str:
    """Of how it is started or reached. A key may change, other variables may decide what runs."""
    known: list[Json] = [spec.transport, spec.command, list(spec.args), spec.cwd, spec.url]
    if variables := {name: value for name, value in spec.env.items() if not secrets_in({name: value})}:
        known.append(variables)
    return _digest(json.dumps(known, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
