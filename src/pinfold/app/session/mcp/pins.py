"""Stored facts on MCP servers: what each offered when the user agreed, and its last failure. Hidden from sessions."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from pinfold.app.paths import data_dir, hold_file_lock, private_dir, read_store, state_dir, write_private
from pinfold.app.session.mcp.files import user_file
from pinfold.app.trust.secrets import secrets_in
from pinfold.events import Json, decode_json
from pinfold.tools.mcp.spec import ServerSpec


class _Pin(msgspec.Struct, frozen=True, kw_only=True):
    identity: str = ""
    """Identity of the entry that was agreed to: another program under the same name is another server."""
    trusted: bool = False
    manifest: dict[str, Json] | None = None


class FilePins:
    """One file per server; a workspace's server and the user's own of the same name have different files."""

    def __init__(self, specs: Iterable[ServerSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self.folder = data_dir() / "mcp" / "pins"

    def get(self, server: str) -> Mapping[str, Json] | None:
        """Raises ConfigError."""
        pin = self._read(server)
        return pin.manifest if pin else None

    def put(self, server: str, manifest: Mapping[str, Json]) -> None:
        """Store what the server offers. Its annotations count only after `trust`. Raises ConfigError."""
        with hold_file_lock(self._path(server)):
            self._write(server, _Pin(identity=identity(self._specs[server]), manifest=dict(manifest)))

    def is_trusted(self, server: str) -> bool:
        pin = self._read(server)
        return pin is not None and pin.trusted

    def trust(self, server: str) -> None:
        """Let the server's annotations count from now on. Raises ConfigError."""
        with hold_file_lock(self._path(server)):
            pin = self._read(server) or _Pin(identity=identity(self._specs[server]))
            self._write(server, msgspec.structs.replace(pin, trusted=True))

    def forget(self, server: str) -> None:
        with suppress(OSError):
            self._path(server).unlink()

    def _read(self, server: str) -> _Pin | None:
        fix = f"remove it, and look at {server} again: pinfold mcp trust"
        pin = read_store(self._path(server), _Pin, fix)
        return pin if pin.identity == identity(self._specs[server]) else None

    def _write(self, server: str, pin: _Pin) -> None:
        write_private(self._path(server), msgspec.json.encode(pin))

    def _path(self, server: str) -> Path:
        origin = self._specs[server].origin
        elsewhere = "" if origin == str(user_file()) else f"-{_digest(origin)[:16]}"
        return self.folder / f"{server}{elsewhere}.json"


def identity(spec: ServerSpec) -> str:
    """Hash how a server is started or reached, with variables that may decide what runs; without keys, which change."""
    known: list[Json] = [spec.transport, spec.command, list(spec.args), spec.cwd, spec.url]
    if variables := {name: value for name, value in spec.env.items() if not secrets_in({name: value})}:
        known.append(variables)
    return _digest(json.dumps(known, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_WORDS = 500


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    why: str
    at: float
    """Seconds since the epoch."""
    until: float = 0.0
    """The session in which it failed does not start it again before this time; 0 if it may."""


def _failure_path(server: str) -> Path:
    return state_dir() / "mcp" / f"{server}.json"


def failure_of(server: str) -> Failure | None:
    with suppress(OSError, msgspec.MsgspecError):
        return decode_json(_failure_path(server).read_bytes(), Failure)
    return None


def note_failure(server: str, why: str, pause_s: float = 0.0) -> None:
    now = time.time()
    failure = Failure(why=why[:_WORDS], at=now, until=now + pause_s if pause_s else 0.0)
    # A note that cannot be written must not stop anything.
    with suppress(OSError):
        private_dir(_failure_path(server).parent)
        _failure_path(server).write_bytes(msgspec.json.encode(failure))


def note_success(server: str) -> None:
    with suppress(OSError):
        _failure_path(server).unlink(missing_ok=True)
