"""The providers that are spoken to through their SDKs: what each is called, needs and allows."""

from __future__ import annotations

import difflib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from pinfold.model.errors import ModelError, NoKey, NotInstalled, UnknownModel
from pinfold.model.names import ALSO, DIRECT, SERVICES
from pinfold.model.wire.conversation import NO_PICTURES, Pictures


@dataclass(frozen=True, slots=True)
class Provider:
    name: str
    """As users type it before the colon."""
    inner: str
    """As pydantic-ai calls it; its settings for it begin so, too."""
    sdk: str
    """The module that must be there."""
    keys: tuple[str, ...] = ()
    """Variables that may hold the key, the first that is set counts."""
    _: KW_ONLY
    finds_credentials: bool = False
    """Without a key the SDK looks for credentials itself: profiles, roles, a login on this machine."""
    takes_address: bool = True
    forgets_connections: bool = False
    """Its SDK does not close an answer that is not read to its end."""
    extra: str = "providers"
    """That brings it."""
    pictures: Pictures = NO_PICTURES
    id_length: int | None = None
    """Exactly as many letters and digits as an id of a call must have."""


_WEB = ("image/jpeg", "image/png", "image/webp")
_WEB_AND_GIF = (*_WEB, "image/gif")
_GOOGLE = Pictures(kinds=(*_WEB, "image/heic", "image/heif"), most=100)
_MISTRAL = Pictures(kinds=_WEB_AND_GIF, most=8)
_ALL = (
    Provider(
        "anthropic", "anthropic", "anthropic", DIRECT["anthropic"], pictures=Pictures(kinds=_WEB_AND_GIF, most=100)
    ),
    Provider("google", "google", "google.genai", DIRECT["google"], forgets_connections=True, pictures=_GOOGLE),
    Provider(
        "google-vertex",
        "google-cloud",
        "google.genai",
        finds_credentials=True,
        forgets_connections=True,
        pictures=Pictures(kinds=_WEB, most=100),
    ),
    Provider(
        "bedrock",
        "bedrock",
        "boto3",
        keys=("AWS_BEARER_TOKEN_BEDROCK",),
        finds_credentials=True,
        pictures=Pictures(kinds=_WEB_AND_GIF, most=20),
    ),
    Provider("groq", "groq", "groq", SERVICES["groq"].keys, pictures=Pictures(kinds=_WEB, most=5)),
    Provider("mistral", "mistral", "mistralai", SERVICES["mistral"].keys, pictures=_MISTRAL, id_length=9),
    Provider("cohere", "cohere", "cohere", DIRECT["cohere"], takes_address=False, extra="cohere"),
)
PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _ALL}
_ALSO = {**ALSO, "google-cloud": "google-vertex", "vertex": "google-vertex"}


def provider_named(name: str) -> Provider:
    found = PROVIDERS.get(_ALSO.get(name, name))
    if found is None:
        near = difflib.get_close_matches(name, [*PROVIDERS, *_ALSO], n=1)
        hint = f"did you mean {near[0]}?" if near else "known are " + ", ".join(PROVIDERS)
        raise UnknownModel(f"no provider is called {name!r}; {hint}")
    return found


def check_installed(provider: Provider) -> None:
    """Looks only; imports nothing of weight."""
    if not (_is_there("pydantic_ai") and _is_there(provider.sdk)):
        raise NotInstalled(f"{provider.name}: models need", provider.extra)


@dataclass(frozen=True, slots=True)
class Key:
    value: str | None
    """None where the SDK finds credentials itself."""
    words: str
    """What to call it, with the variable it belongs in."""


def find_key(provider: Provider, given: str | None) -> Key:
    variables = " or ".join(provider.keys)
    if given:
        return Key(given, f"the key ({variables})" if variables else "the key")
    for variable in provider.keys:
        if value := os.environ.get(variable):
            return Key(value, f"the key in {variable}")
    if not provider.finds_credentials:
        raise NoKey(f"{provider.name}: no key is set; put it into {variables}")
    return Key(None, "the login on this machine")


def check_address(provider: Provider, base_url: str | None) -> None:
    if base_url and not provider.takes_address:
        raise ModelError(f"{provider.name}: is asked at its own address only; take {base_url!r} out")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package it would be in
        return False
