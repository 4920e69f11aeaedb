"""Keys of model providers that the user keeps as secrets, by the name of the variable that would hold them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.trust.secrets import Secrets
from pinfold.model import DIRECT, SERVICES

_HOSTS = {"anthropic": "api.anthropic.com", "google": "generativelanguage.googleapis.com", "cohere": "api.cohere.com"}
"""Of providers that are reached through the extra `providers`."""


class ProviderKey(Struct, frozen=True, kw_only=True):
    provider: str
    variable: str
    host: str
    """The only one it is sent to."""


def provider_keys(environment: Mapping[str, str] = os.environ) -> Iterator[ProviderKey]:
    """All there could be; none of a provider whose address the environment changes."""
    for provider, service in SERVICES.items():
        if not (service.address and environment.get(service.address)):
            host = urlsplit(service.url).hostname or ""
            yield from (ProviderKey(provider=provider, variable=key, host=host) for key in service.keys)
    for provider, host in _HOSTS.items():
        yield from (ProviderKey(provider=provider, variable=key, host=host) for key in DIRECT[provider])


def read_secret_keys() -> dict[str, str]:
    """By variable."""
    found: dict[str, str] = {}
    with contextlib.suppress(ConfigError):  # `pinfold secret list` says what is wrong with it
        secrets = Secrets()
        kept = {one.name for one in secrets.all()}
        for key in provider_keys():
            if key.variable in kept and (value := secrets.get(key.variable, key.host)):
                found[key.variable] = value
    return found


def missing_key(provider: str, keys: Mapping[str, str]) -> ProviderKey | None:
    """What this provider wants and is not among the keys."""
    wanted = [key for key in provider_keys() if key.provider == provider]
    return wanted[0] if wanted and not any(keys.get(key.variable) for key in wanted) else None
