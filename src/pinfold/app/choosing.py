"""Which model, when nobody said: a server on this machine, then `builtin` if it is here. Never a provider unasked."""

from __future__ import annotations

from dataclasses import dataclass

from pinfold.app.errors import ConfigError
from pinfold.app.models import Calling
from pinfold.app.paths import data_dir
from pinfold.model import DIRECT, SERVICES
from pinfold.model.local import BUILTIN, Found, probe, weights_at

LOOKED_AT = "Ollama, LM Studio, llama.cpp and vLLM"
_SUGGESTED = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "openai": "openai:gpt-5-mini",
    "google": "google:gemini-2.5-flash",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    name: str
    why: str
    """For the user."""


async def chosen(calling: Calling) -> Chosen:
    """Raises ConfigError, which names what could be had and how."""
    for found in await probe(calling.keys):
        if found.models:
            name = name_of(found, found.models[0])
            return Chosen(
                name=name, why=f"no model is configured; using {name}, which {found.kind} serves here"
            )
    if weights_at(data_dir()):
        return Chosen(name="builtin", why="no model is configured and no local server answers; using builtin")
    ways = [f"`--model builtin` fetches one that runs here ({BUILTIN.size / 1e9:.1f} GB)"]
    ways += [f"`--model {_SUGGESTED[name]}` sends what you write to {name}" for name in with_keys(calling)]
    raise ConfigError(f"no model is configured, and none of {LOOKED_AT} answers here; {'; '.join(ways)}")


def name_of(found: Found, model: str) -> str:
    return f"ollama:{model}" if found.kind == "ollama" else f"{found.base_url}#{model}"


def with_keys(calling: Calling) -> list[str]:
    """Providers whose key is there."""
    variables = {name: service.keys for name, service in SERVICES.items()} | dict(DIRECT)
    return [name for name, keys in variables.items() if any(calling.keys.get(key) for key in keys)]
