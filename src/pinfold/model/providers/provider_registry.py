"""The providers that are spoken to through their SDKs: what each is called, needs and allows."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from pinfold.model.errors import NotInstalled
from pinfold.model.wire.conversation import NO_PICTURES, Pictures


@dataclass(frozen=True, slots=True)
class Provider:
    name: str
    """As users type it before the colon."""
    inner: str
    """As pydantic-ai calls it; its settings for it begin so, too."""
    sdk: str
    """The module that must be there."""
    _: KW_ONLY
    forgets_connections: bool = False
    """Its SDK does not close an answer that is not read to its end."""
    extra: str = "providers"
    """That brings it."""
    pictures: Pictures = NO_PICTURES


_WEB = ("image/jpeg", "image/png", "image/webp")
_ANTHROPIC = Pictures(kinds=(*_WEB, "image/gif"), most=100)
_GOOGLE = Pictures(kinds=(*_WEB, "image/heic", "image/heif"), most=100)
_VERTEX = Pictures(kinds=_WEB, most=100)
_BEDROCK = Pictures(kinds=(*_WEB, "image/gif"), most=20)
_ALL = (
    Provider("anthropic", "anthropic", "anthropic", pictures=_ANTHROPIC),
    Provider("google", "google", "google.genai", forgets_connections=True, pictures=_GOOGLE),
    Provider("google-vertex", "google-cloud", "google.genai", forgets_connections=True, pictures=_VERTEX),
    Provider("bedrock", "bedrock", "boto3", pictures=_BEDROCK),
    Provider("cohere", "cohere", "cohere", extra="cohere"),
)
PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}


def check_installed(name: str) -> None:
    """Looks only; imports nothing of weight. Raises NotInstalled."""
    provider = PROVIDERS[name]
    if not (_is_there("pydantic_ai") and _is_there(provider.sdk)):
        raise NotInstalled(f"{name}: models need", provider.extra)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package it would be in
        return False
