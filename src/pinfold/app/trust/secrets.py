"""The user's secrets: stored on the host, looked up by name, and used only for the hosts they are listed for.

They are in the system keyring if that works, else in a file that only the user can read. They never go into a session, an
event or a log: only Pinfold's own code gets one, to send it to a listed host. If one appears all the same, printed by a
program that found it or returned by a server, `RedactingLog` keeps it out of events and blobs.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, hold_file_lock, read_store, write_private
from pinfold.events import (
    Arrow,
    BlobId,
    Delta,
    Event,
    Json,
    SessionId,
    decode_line,
    decode_object,
    encode,
    map_leaves,
    parse_json,
    plain_json,
)
from pinfold.log import Batch, Blobs, Log
from pinfold.text import keep_own_secret, keep_secret, keeps_own, without_own

T = TypeVar("T")
Where: TypeAlias = Literal["keyring", "file"]
SHORTEST = 6
"""Minimum length. Shorter values occur in too much text to be redacted."""
_SERVICE = "pinfold"
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}:[ -~]*\{\}[ -~]*"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_LABELS = 21
_IPV6 = r"\[[0-9a-f:.]{2,45}\]"
_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PASSWD", "_PAT", "_CREDENTIALS")
_ALSO = ("PGPASSWORD", "MYSQL_PWD", "TOKEN", "SECRET", "PASSWORD")


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    hosts: tuple[str, ...] = ()
    value: str | None = None
    """None if it is in the keyring."""
    header: str = ""
    """Header in which `fetch` sends it to its hosts; empty if it does not."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    secrets: dict[str, _Stored] = {}


class SecretListing(Struct, frozen=True, kw_only=True):
    """A secret without its value."""

    name: str
    hosts: tuple[str, ...]
    where: Where
    header: str = ""


class Secrets:
    def __init__(self) -> None:
        self.path = config_dir() / "secrets.json"

    def get(self, name: str, host: str) -> str | None:
        """Return the secret of this name if it may be used for this host. Raises ConfigError."""
        stored = self._read().secrets.get(name)
        return self._value(name, stored) if stored and _is_for(stored, host) else None

    def headers_for(self, host: str) -> dict[str, str]:
        """Return the headers that `fetch` sends to this host for the user. Raises ConfigError."""
        found: dict[str, str] = {}
        for name, stored in self._read().secrets.items():
            if stored.header and _is_for(stored, host):
                field, _, form = stored.header.partition(":")
                found[field] = form.strip().replace("{}", self._value(name, stored))
        return found

    def set(self, name: str, value: str, hosts: Iterable[str] = (), header: str = "") -> SecretListing:
        """Store a secret. Hosts or header that are not given stay unchanged. Raises ConfigError."""
        if not re.fullmatch(_NAME, name):
            raise ConfigError(f"{name!r} cannot be a secret's name: use letters, digits, dots, dashes, underscores")
        if len(value) < SHORTEST or "\0" in value:
            raise ConfigError(
                f"the value of {name} is too short to be a secret (at least 6 characters), or has a NUL character"
            )
        if header and not re.fullmatch(_HEADER, header):
            raise ConfigError(
                f"{header!r} is not a header with {{}} in place of the secret; write 'Authorization: Bearer {{}}'"
            )
        patterns = tuple(dict.fromkeys(map(host_pattern, hosts)))
        keep_own_secret(value)
        with hold_file_lock(self.path):
            known = self._read()
            before = known.secrets.get(name, _Stored(value=""))
            kept = None if _into_keyring(name, value) else value
            if before.value is None and kept:
                _out_of_keyring(name)
            stored = _Stored(hosts=patterns or before.hosts, value=kept, header=header or before.header)
            self._write({**known.secrets, name: stored})
        return _describe(name, stored)

    def remove(self, name: str) -> None:
        """Remove a secret. Raises ConfigError, also if it does not exist."""
        with hold_file_lock(self.path):
            secrets = dict(self._read().secrets)
            stored = secrets.pop(name, None)
            if stored is None:
                there = ", ".join(secrets) or "none"
                raise ConfigError(f"there is no secret {name!r}; there are: {there}")
            if stored.value is None:
                _out_of_keyring(name)
            self._write(secrets)

    def all(self) -> tuple[SecretListing, ...]:
        """Return all secrets by name. Raises ConfigError."""
        return tuple(_describe(name, stored) for name, stored in sorted(self._read().secrets.items()))

    def hide_values(self) -> None:
        """Redact secrets in the file from all that this process shows; those in a keyring are redacted once used."""
        values = (stored.value for stored in self._read().secrets.values())
        keep_own_secret(*(value for value in values if value))

    def _value(self, name: str, stored: _Stored) -> str:
        value = stored.value if stored.value is not None else _from_keyring(name)
        keep_own_secret(value)
        return value

    def _read(self) -> _File:
        return read_store(self.path, _File, "move it away and set the secrets again (pinfold secret set NAME)")

    def _write(self, secrets: Mapping[str, _Stored]) -> None:
        write_private(self.path, msgspec.json.encode(_File(secrets=dict(secrets))))


def _describe(name: str, stored: _Stored) -> SecretListing:
    where: Where = "keyring" if stored.value is None else "file"
    return SecretListing(name=name, hosts=stored.hosts, where=where, header=stored.header)


def hide_process_secrets() -> None:
    """Redact secrets of the environment and of the file from everything shown or logged from now on."""
    keep_secret(*secrets_in(os.environ))
    with contextlib.suppress(ConfigError):  # reported when a secret is used
        Secrets().hide_values()


def secrets_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return values of variables with secret names, except words such as `none` or `ollama`, and existing paths."""
    return tuple(
        value
        for name, value in environment.items()
        if (name.upper().endswith(_ENDINGS) or name.upper() in _ALSO)
        and is_recognisable(value)
        and not (value.startswith(("/", "~")) and Path(value).expanduser().exists())
    )


def is_recognisable(value: str) -> bool:
    """True if the value is distinctive enough to be redacted everywhere, unlike an everyday word."""
    return len(value) >= 8 and (len(value) >= 20 or any(letter.isdigit() for letter in value))


def host_pattern(text: str) -> str:
    """Return the normalised host, or `*.` followed by a domain. Raises ConfigError."""
    given = text.strip().lower().rstrip(".")
    if _is_host(given) or (given.startswith("*.") and "." in given[2:] and _is_name(given[2:])):
        return given
    raise ConfigError(
        f"{text!r} is not a host name: write api.example.org, or *.example.org for its subdomains; "
        "leave out scheme, port and path, and write other alphabets as xn--"
    )


def _is_host(text: str) -> bool:
    return _is_name(text) or re.fullmatch(_IPV6, text) is not None


def _is_name(text: str) -> bool:
    labels = text.split(".")
    return len(labels) <= _LABELS and all(re.fullmatch(_LABEL, label) for label in labels)


def _is_for(stored: _Stored, host: str) -> bool:
    wanted = host.lower().removesuffix(".")
    return _is_host(wanted) and any(
        wanted.endswith(pattern[1:]) if pattern.startswith("*.") else wanted == pattern for pattern in stored.hosts
    )


# The keyring. Whatever a backend raises, the file is the fallback.


def _use_keyring(use: Callable[[ModuleType], T]) -> T | None:
    """Call `use` with the keyring module; None if it is not installed, has no safe backend, or fails."""
    try:
        import keyring

        return use(keyring) if keyring.get_keyring().priority >= 1 else None
    except Exception:  # noqa: BLE001 - third-party backends
        return None


def _into_keyring(name: str, value: str) -> bool:
    def keep(keyring: ModuleType) -> bool:
        keyring.set_password(_SERVICE, name, value)
        return keyring.get_password(_SERVICE, name) == value

    return _use_keyring(keep) is True


def _from_keyring(name: str) -> str:
    value: str | None = _use_keyring(lambda keyring: keyring.get_password(_SERVICE, name))
    if value is None:
        raise ConfigError(
            f"the keyring did not return {name}; unlock it, or set the secret again: pinfold secret set {name}"
        )
    return value


def _out_of_keyring(name: str) -> None:
    _use_keyring(lambda keyring: keyring.delete_password(_SERVICE, name))


class RedactingLog(Log):
    def __init__(self, folder: Path | None, session: SessionId) -> None:
        super().__init__(folder, session)
        self.blobs = _RedactingBlobs(folder / "blobs" if folder else None)

    def queue_events(self, events: tuple[Event, ...]) -> Batch:
        return super().queue_events(tuple(map(_redact_event, events)) if keeps_own() else events)

    def broadcast(self, delta: Delta) -> None:
        super().broadcast(_redact_delta(delta) if keeps_own() else delta)


class _RedactingBlobs(Blobs):
    def put(self, data: bytes) -> BlobId:
        if not keeps_own():
            return super().put(data)
        text = data.decode("utf-8", "surrogateescape")
        clean = without_own(text)
        return super().put(data if clean is text else clean.encode("utf-8", "surrogateescape"))


def _redact_event(event: Event) -> Event:
    text = encode(event)
    return event if without_own(text) is text else decode_object(remove_own_secrets(parse_json(text)))


def _redact_delta(delta: Delta) -> Delta:
    text = encode(delta)
    if without_own(text) is text:
        return delta
    return cast(Delta, decode_line(plain_json(remove_own_secrets(parse_json(text)))))


def remove_own_secrets(value: Json) -> Json:
    """Return the value with the user's secrets redacted."""
    return map_leaves(value, _without_own)


def _without_own(value: Json) -> Json:
    if isinstance(value, bytes) and keeps_own() and not isinstance(value, Arrow):
        return without_own(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return without_own(value) if isinstance(value, str) else value
