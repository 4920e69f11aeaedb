"""Models of this machine: what the command line may ask of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pinfold.app.paths import data_dir, private_dir, state_dir
from pinfold.model.local import (
    BuiltinModel,
    OnPulling,
    Pulling,
    Weights,
    ollama_url,
    pull,
    pull_for_ollama,
    weights_at,
    weights_named,
)
from pinfold.sandbox.environment import EnvironmentFailed
from pinfold.sandbox.environment.uv import find_uv

__all__ = ["Pulling", "builtin_model", "models_dir", "pull_model", "pulled"]


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


def builtin_model(name: str, *, pull: bool, notice: Callable[[str], None]) -> BuiltinModel:
    """`builtin` or another of its kind; with `pull` it fetches what is missing when it is first asked."""
    try:
        uv = Path(find_uv())
    except EnvironmentFailed:
        uv = None
    return BuiltinModel(
        name=name,
        folder=private_dir(data_dir()),
        state=private_dir(state_dir()),
        uv=uv,
        pull=pull,
        notice=notice,
    )


def pulled(name: str) -> tuple[Weights, Path | None]:
    """The weights of this name, and where they are if they are here."""
    weights = weights_named(name)
    return weights, weights_at(weights, models_dir())
