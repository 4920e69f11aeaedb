"""Which model, when nobody said: a server on this machine, then `builtin` if it is here. Never a provider unasked."""

from __future__ import annotations

from dataclasses import dataclass

from pinfold.app.errors import ConfigError
from pinfold.app.models.local_models import Reachable, reachable_models

SUGGESTED = {
    "anthropic": "anthropic:claude-sonnet-4-5",
    "openai": "openai:gpt-5-mini",
    "google": "google:gemini-2.5-flash",
}
"""A model to begin with, by provider, in the order they are offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
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
