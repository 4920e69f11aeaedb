"""Builds a model by name: its wire client, the text protocol, the small-model layer and the reply cache."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pinfold.events import RequestFailed
from pinfold.model.errors import NotInstalled, UnknownModel
from pinfold.model.names import (
    DIRECT,
    FILES,
    SERVICES,
    Access,
    ModelRef,
    address_of,
    key_for,
    key_hint,
    parse_model_name,
    traits_for,
)
from pinfold.model.scripted import ReplayModel, ScriptedModel
from pinfold.text import closest

if TYPE_CHECKING:
    from pinfold.model.layers import Model


def model_named(name: str, served: Sequence[str] = (), access: Access | None = None) -> Model:
    """Build the model `name`. `served` are the request ids of its earlier replies in the session. Raises ModelError."""
    access = access or Access()
    meant = parse_model_name(name, access)
    if meant.provider in FILES:
        kind = ScriptedModel if meant.provider == "scripted" else ReplayModel
        return kind.from_file(Path(meant.model), served)
    calls, profile = traits_for(meant, access)
    model = _make_wire_model(name, meant, access)
    if meant.provider not in ("builtin", "url", *DIRECT):  # these add the cost themselves, or have no known price
        from pinfold.model.layers import PriceLayer

        paid = meant.provider in SERVICES and not SERVICES[meant.provider].is_local
        model = PriceLayer(model, meant.provider if paid else None, meant.model)
    if calls != "native":
        from pinfold.model.protocol import TextCallLayer

        model = TextCallLayer(model, style=profile, when="always" if calls == "text" else "unless-native")
    if access.replies:
        from pinfold.model.layers import ReplyCache

        at = address_of(meant, access) if meant.provider in (*SERVICES, "ollama") else ""
        model = ReplyCache(model, access.replies, at=at)
    if profile == "small":
        from pinfold.model.small_model_prompts import SmallModelLayer

        model = SmallModelLayer(model)
    if meant.provider == "builtin":
        from pinfold.model.local.builtin import SeededLayer

        model = SeededLayer(model)  # outermost, so that it sees the user's seed and not one that SmallModelLayer sets
    return model


def _make_wire_model(name: str, meant: ModelRef, access: Access) -> Model:
    if meant.provider == "builtin":
        from pinfold.model.local.builtin import BuiltinModel

        if access.data is None or access.state is None:
            raise UnknownModel(f"{name} needs a folder for its weights, and none is set")
        return BuiltinModel(
            name=meant.model, folder=access.data, state=access.state, uv=access.uv(), notice=access.notice
        )
    if meant.provider == "ollama":
        from pinfold.model.wire.ollama import OllamaModel

        return OllamaModel(name=name, base_url=address_of(meant, access), model=meant.model)
    if meant.provider in DIRECT:
        from pinfold.model.providers import DirectModel

        _check_sdk(meant.provider)  # first: without the SDK a key would be of no use
        made = DirectModel(meant.provider, meant.model, name=name, key=key_for(meant, access))
        if access.warm:
            made.warm()
        return made
    from pinfold.model.wire.openai import OpenAIModel

    service = SERVICES.get(meant.provider)
    return OpenAIModel(
        name=name,
        base_url=address_of(meant, access),
        model=meant.model,
        key=key_for(meant, access),
        max_tokens_name=service.max_tokens if service else "max_tokens",
        key_hint=key_hint(meant, access),
    )


async def check_reachable(name: str, access: Access, *, limit_s: float) -> str:
    """Check that the model can be reached; return a phrase that says where. Raises ModelError, RequestFailed."""
    meant = parse_model_name(name, access)
    if meant.provider in ("scripted", "replay"):
        model_named(name, access=access)
        return f"reads {meant.model}"
    if meant.provider == "builtin":
        from pinfold.model.local.weights import weights_at, weights_named

        weights = weights_named(meant.model)
        if access.data is None or weights_at(weights, access.data / "models") is None:
            raise UnknownModel(f"{meant.model} is not here yet ({weights.megabytes}); pinfold model pull {meant.model}")
        return "is here, and runs inside Pinfold"
    key = key_for(meant, access)
    if meant.provider in DIRECT:
        _check_sdk(meant.provider)
        return f"{meant.provider} needs a key, and one is set (not tested)"
    from pinfold.model.wire.http import Patience, Wire
    from pinfold.model.wire.payload import as_text, objects_in

    place = address_of(meant, access)
    is_ollama = meant.provider == "ollama"
    try:
        async with aclosing(Wire(place, patience=Patience(connect_s=limit_s), key=key)) as wire:
            said = await wire.ask("api/tags" if is_ollama else "models", limit_s=limit_s)
    except RequestFailed as error:
        if error.status in (401, 403):
            words = str(error).removesuffix("check the key") + key_hint(meant, access)
            raise RequestFailed(words, status=error.status) from error
        if error.status is not None:
            return f"answers at {place}; it does not list its models"
        raise
    listed = objects_in(said, "models" if is_ollama else "data")
    known = [as_text(one.get("name" if is_ollama else "id")) for one in listed]
    if known and meant.model not in known and f"{meant.model}:latest" not in known:
        near = closest(meant.model, known, 0.5) or known[0]
        raise UnknownModel(f"{place} has no model {meant.model!r}; did you mean {near!r}?")
    return f"answers at {place}"


def check_installed(name: str, access: Access) -> None:
    """Check that the provider's SDK is installed, without importing it. Raises NotInstalled, UnknownModel."""
    _check_sdk(parse_model_name(name, access).provider)


def _check_sdk(provider: str) -> None:
    known = DIRECT.get(provider)
    if known and not (_is_there("pydantic_ai") and _is_there(known.sdk)):
        raise NotInstalled(f"{provider}: models need", known.extra)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def check_usable(name: str, access: Access) -> None:
    """Check the name, the installed packages and the key, without network. Raises ModelError."""
    check_installed(name, access)
    key_for(parse_model_name(name, access), access)
