"""Tokens that MCP servers gave the user: kept as secrets are, each for the one host it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from pinfold.app.errors import ConfigError
from pinfold.app.session.mcp.variables import host_of
from pinfold.app.trust.secrets import SHORTEST, Secrets
from pinfold.text import keep_own_secret
from pinfold.tools.mcp.spec import ServerSpec

_NAME = 64
"""Characters a secret's name may have."""
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

    def forget(self, server: str) -> None:
        self.put(server, None)


def _name(server: str) -> str:
    return f"mcp.{server}"[:_NAME]


def _hide(text: str) -> None:
    """What in it is a secret by itself: the whole text is one already."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError("these credentials are no JSON; sign in again") from error
    keep_own_secret(*_secrets_in(content))


def _secrets_in(value: Any, *, is_secret: bool = False) -> list[str]:
    match value:
        case dict():
            table = cast("dict[str, Any]", value)
            return [
                one
                for key, item in table.items()
                for one in _secrets_in(item, is_secret=any(word in key.lower() for word in _SECRETS))
            ]
        case list():
            return [one for item in cast("list[Any]", value) for one in _secrets_in(item, is_secret=is_secret)]
        case str() if is_secret and len(value) >= SHORTEST:
            return [value]
        case _:
            return []
