"""Models of this machine, and which one is used if none is named: a local server, then `builtin`. Never a provider unasked."""

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
    """Where weights are, once for this user."""
    return private_dir(data_dir()) / "models"


async def pull_model(name: str, on_progress: OnPulling) -> Path | None:
    """Fetch weights by name, or let Ollama fetch `ollama:NAME`; the file, if it is ours. Raises PinfoldError."""
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
    """A provider that can be reached with a key of the user's, by the variable that holds it."""

    provider: str
    variable: str


class Reachable(Struct, frozen=True, kw_only=True):
    """Everything that could answer."""

    inside: tuple[BuiltinModel, ...]
    servers: tuple[FoundServer, ...]
    keys: tuple[Key, ...]


async def reachable_models() -> Reachable:
    """What is here, what answers on this machine, and whose keys are set. No provider is asked."""
    return replace(models_here(), servers=await probe(os.environ))


def models_here() -> Reachable:
    """What is known without asking any server."""
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
    """Of the environment, of this folder's `.env` if that is trusted, and secrets of the user's."""
    try:
        of_folder = keys_of(read_trusted_files(current_folder()).files.get(VARIABLES, b""))
    except ConfigError:  # reported when the configuration is used
        of_folder = {}
    return {**load_stored_keys(), **of_folder, **os.environ}


def find_weights(name: str) -> tuple[Weights, Path | None]:
    """The weights of this name, and where they are if they are here."""
    weights = weights_named(name)
    return weights, weights_at(weights, models_dir())


def list_model_names() -> list[str]:
    """Names of models that are known without asking a server: aliases, what is here, and whose keys are set."""
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
    """Raises ConfigError, which names what could be had and how."""
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
        ways.append(f"{key.variable} is set: `--model {model}` sends what the model is told to {key.provider}")
    raise ConfigError(
        "no model is configured, and none of Ollama, LM Studio, llama.cpp and vLLM answers here; " + "; ".join(ways)
    )
