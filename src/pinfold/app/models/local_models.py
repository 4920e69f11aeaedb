"""Models on this machine, and the default: a local server, else `builtin`. A provider is never used unasked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import load_stored_keys, uv_path
from pinfold.app.paths import current_folder, data_dir, private_dir, state_dir
from pinfold.app.trust.project_files import VARIABLES
from pinfold.app.trust.project_formats import keys_of
from pinfold.app.trust.workspace_trust import read_trusted_files
from pinfold.model import DIRECT, SERVICES, key_variables, ollama_url
from pinfold.model.local.discovery import FoundServer, probe
from pinfold.model.local.server.model_server import ServeOptions, serve
from pinfold.model.local.weights import CATALOGUE, OnPulling, Weights, pull, pull_for_ollama, weights_at, weights_named

_ELSEWHERE = (*(name for name, service in SERVICES.items() if not service.is_local), *DIRECT)


def models_dir() -> Path:
    """Return the folder of model weights, one for each user."""
    return private_dir(data_dir()) / "models"


async def pull_model(name: str, on_progress: OnPulling) -> Path | None:
    """Fetch weights by name and return the file, or let Ollama fetch `ollama:NAME`. Raises PinfoldError."""
    scheme, colon, model = name.partition(":")
    if colon and scheme == "ollama" and model:
        await pull_for_ollama(model, ollama_url(os.environ), on_progress)
        return None
    return await pull(weights_named(name), models_dir(), on_progress)


async def serve_model(
    serving: ServeOptions, notice: Callable[[str], None], on_ready: Callable[[str, str], None]
) -> None:
    """Serve a model of this machine until a signal ends it. Raises PinfoldError."""
    folder, state = private_dir(data_dir()), private_dir(state_dir())
    await serve(serving, folder=folder, state=state, uv=uv_path(), notice=notice, on_ready=on_ready)


class BuiltinModel(Struct, frozen=True, kw_only=True):
    """A model that Pinfold runs itself."""

    weights: Weights
    path: Path | None
    """None if it is not here yet."""


class Key(Struct, frozen=True, kw_only=True):
    """A provider for which the user has a key, and the variable that holds the key."""

    provider: str
    variable: str


class Reachable(Struct, frozen=True, kw_only=True):
    """All models that could answer."""

    inside: tuple[BuiltinModel, ...]
    servers: tuple[FoundServer, ...]
    keys: tuple[Key, ...]


async def reachable_models() -> Reachable:
    """Return built-in models, local servers that answer, and providers whose keys are set. Contacts no provider."""
    return replace(models_here(), servers=await probe(os.environ))


def models_here() -> Reachable:
    """Return what is known without contacting any server."""
    folder, keys = models_dir(), _keys()
    return Reachable(
        inside=tuple(BuiltinModel(weights=of, path=weights_at(of, folder)) for of in CATALOGUE.values()),
        servers=(),
        keys=tuple(
            Key(provider=provider, variable=variable)
            for provider in _ELSEWHERE
            for variable in key_variables(provider)
            if keys.get(variable, "").strip()
        ),
    )


def _keys() -> Mapping[str, str]:
    """Return keys from the environment, from this folder's `.env` if it is trusted, and from the user's secrets."""
    try:
        of_folder = keys_of(read_trusted_files(current_folder()).files.get(VARIABLES, b""))
    except ConfigError:  # reported when the configuration is used
        of_folder = {}
    return {**load_stored_keys(), **of_folder, **os.environ}


def find_weights(name: str) -> tuple[Weights, Path | None]:
    """Return the weights of this name, and their path if they were fetched."""
    weights = weights_named(name)
    return weights, weights_at(weights, models_dir())


def list_model_names() -> list[str]:
    """List model names known without contacting a server: configured, aliases, built-in, and providers with a key."""
    from pinfold.app.config.layers import load_config

    config = load_config().config
    keys = [f"{key.provider}:" for key in models_here().keys]
    names = [config.model.name, *config.models.aliases, *CATALOGUE, *keys]
    return list(dict.fromkeys(filter(None, names)))


SUGGESTED = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "openai": "openai:gpt-5-mini",
    "google": "google:gemini-2.5-flash",
}
"""A model to begin with, by provider, in the order they are offered."""


class ModelChoice(Struct, frozen=True, kw_only=True):
    name: str
    why: str
    """For the user."""


async def choose_model() -> ModelChoice:
    """Choose the default model. If there is none, raises ConfigError, which says how to get one."""
    return choose_among(await reachable_models())


def choose_among(there: Reachable) -> ModelChoice:
    for found in there.servers:
        if found.models and not found.needs_key:
            name = found.name_of(found.models[0])
            return ModelChoice(name=name, why=f"no model is configured; using {name}, which {found.kind} serves here")
    builtin = there.inside[0]
    if builtin.path:
        return ModelChoice(name="builtin", why="no model is configured and no local server answers; using builtin")
    ways = [f"`--model builtin` fetches one that runs here ({builtin.weights.megabytes})"]
    for key in there.keys:
        model = SUGGESTED.get(key.provider, f"{key.provider}:MODEL")
        ways.append(f"{key.variable} is set: `--model {model}` sends the conversation to {key.provider}")
    raise ConfigError(
        "no model is configured, and none of Ollama, LM Studio, llama.cpp and vLLM answers here; " + "; ".join(ways)
    )
