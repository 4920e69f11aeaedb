"""Secrets for MCP servers: tokens that they issued, each for its host; `${NAME}` in entries of the user's servers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

from msgspec import structs

from pinfold.app.errors import ConfigError
from pinfold.app.trust.secrets import SHORTEST, Secrets, secrets_in
from pinfold.events import Json
from pinfold.text import keep_own_secret
from pinfold.tools.mcp.spec import ServerSpec

_NAME = 64
"""Longest name of a secret, in characters."""
_SECRETS = ("token", "secret", "code")


class StoredCredentials:
    def __init__(self, specs: Iterable[ServerSpec]) -> None:
        self._hosts = {spec.name: host_of(spec.url) for spec in specs if spec.url}

    def get(self, server: str) -> str | None:
        """Raises ConfigError."""
        text = Secrets().get(_name(server), self._hosts[server])
        if text is not None:
            _hide(text)
        return text

    def put(self, server: str, text: str | None) -> None:
        """Raises ConfigError."""
        if server not in self._hosts:
            return  # a program of this machine signs in by itself
        if text is None:
            if any(one.name == _name(server) for one in Secrets().all()):
                Secrets().remove(_name(server))
            return
        _hide(text)
        Secrets().set(_name(server), text, [self._hosts[server]])


def _name(server: str) -> str:
    return f"mcp.{server}"[:_NAME]


def _hide(text: str) -> None:
    """Redact the secrets inside the text too: the whole text is redacted already."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError("these credentials are not JSON; sign in again") from error
    keep_own_secret(*_secrets_in(content))


def _secrets_in(value: Json, *, is_secret: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in cast("dict[str, Json]", value).items():
            yield from _secrets_in(item, is_secret=any(word in key.lower() for word in _SECRETS))
    elif isinstance(value, list):
        for item in cast("list[Json]", value):
            yield from _secrets_in(item, is_secret=is_secret)
    elif is_secret and isinstance(value, str) and len(value) >= SHORTEST:
        yield value


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
LOCAL = "{}.mcp"
"""Used as the host if a secret is for a local program: `pinfold secret set TOKEN --host github.mcp`."""


class NotSet(Exception):
    """A variable is not set. Says which, and how to set it."""


def has_variables(spec: ServerSpec) -> bool:
    secret = spec.oauth.client_secret if spec.oauth else ""
    texts = (spec.command, *spec.args, *spec.env.values(), *spec.headers.values(), secret)
    return any(_VARIABLE.search(text) for text in texts)


def fill_variables(spec: ServerSpec) -> ServerSpec:
    """Fill in `${NAME}` from secrets or the environment. Raises NotSet, ConfigError."""
    if not has_variables(spec):
        return spec
    host = host_of(spec.url) if spec.url else LOCAL.format(spec.name)

    def fill(text: str) -> str:
        return _VARIABLE.sub(lambda found: _value(found[1], found[2], host), text)

    oauth = spec.oauth and structs.replace(spec.oauth, client_secret=fill(spec.oauth.client_secret))
    return replace(
        spec,
        command=fill(spec.command),
        args=tuple(map(fill, spec.args)),
        env={name: fill(text) for name, text in spec.env.items()},
        headers={name: fill(text) for name, text in spec.headers.items()},
        oauth=oauth,
    )


def host_of(url: str) -> str:
    from pinfold.net import parse_url

    return parse_url(url).destination.host


def _value(name: str, default: str | None, host: str) -> str:
    if (secret := Secrets().get(name, host)) is not None:
        return secret
    value = os.environ.get(name)
    if value:
        keep_own_secret(*secrets_in({name: value}))
        return value
    if default is not None:
        return default
    raise NotSet(f"{name} is not set; give it: pinfold secret set {name} --host {host}")
