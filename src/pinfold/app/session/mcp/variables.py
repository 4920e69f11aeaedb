"""`${NAME}` in a server's arguments, environment and headers: secrets and variables of the user's, for their own servers."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from pinfold.app.trust.secrets import Secrets, secrets_in
from pinfold.text import keep_own_secret
from pinfold.tools.mcp.spec import ServerSpec

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
LOCAL = "{}.mcp"
"""Stands for the host where a secret is for a program of this machine: `pinfold secret set TOKEN --host github.mcp`."""


class NotSet(Exception):
    """What is missing, and how to give it."""


def has_variables(spec: ServerSpec) -> bool:
    secret = spec.oauth.client_secret if spec.oauth else ""
    texts = (spec.command, *spec.args, *spec.env.values(), *spec.headers.values(), secret)
    return any(_VARIABLE.search(text) for text in texts)


def fill_variables(spec: ServerSpec) -> ServerSpec:
    """Raises NotSet, ConfigError."""
    if not has_variables(spec):
        return spec
    host = _host(spec)

    def fill(text: str) -> str:
        return _VARIABLE.sub(lambda found: _value(found[1], found[2], host), text)

    oauth = spec.oauth
    if oauth is not None:
        oauth = replace(oauth, client_secret=fill(oauth.client_secret))
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


def _host(spec: ServerSpec) -> str:
    return host_of(spec.url) if spec.url else LOCAL.format(spec.name)


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
