"""Puts a model together: the wire it is on, the protocol it speaks, what small ones need, and the memory of replies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from pinfold.events import Reply, Request, Thought
from pinfold.model.errors import UnknownModel
from pinfold.model.names import FILES, Access, ModelRef, address_of, key_for, key_hint, parse_model_name, traits_for
from pinfold.model.replay import ReplayModel
from pinfold.model.scripted import ScriptedModel
from pinfold.model.services import DIRECT, SERVICES


class Model(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        """Pieces of text and reasoning as they come, then the whole reply. Raises RequestFailed."""
        ...

    async def aclose(self) -> None: ...


def model_named(name: str, served: Sequence[str] = (), access: Access | None = None) -> Model:
    """The model called `name`; `served` are the request ids it gave out earlier in the session. Raises ModelError."""
    access = access or Access()
    meant = parse_model_name(name, access)
    if meant.provider in FILES:
        kind = ScriptedModel if meant.provider == "scripted" else ReplayModel
        return kind.from_file(Path(meant.model), served)
    return _build(name, meant, access)


def _build(name: str, meant: ModelRef, access: Access) -> Model:
    calls, profile = traits_for(meant, access)
    model = _add_prices(_make_wire_model(name, meant, access), meant)
    if calls != "native":
        from pinfold.model.protocol import InText

        model = InText(model, style=profile, when="always" if calls == "text" else "unless-native")
    if access.replies:
        from pinfold.model.reply_cache import ReplyCache

        at = address_of(meant, access) if meant.provider in (*SERVICES, "ollama") else ""
        model = ReplyCache(model, access.replies, at=at)
    if profile == "small":
        from pinfold.model.small_model_prompts import SmallModelLayer

        model = SmallModelLayer(model)
    if meant.provider == "builtin":
        from pinfold.model.local.builtin import Repeatable

        model = Repeatable(model)  # outside: a seed that Coached sets is not the user's
    return model


def _add_prices(model: Model, meant: ModelRef) -> Model:
    if meant.provider in ("builtin", "url", *DIRECT):
        return model  # known to the model itself, or to nobody
    from pinfold.model.prices import PriceLayer

    paid = meant.provider in SERVICES and not SERVICES[meant.provider].is_local
    return PriceLayer(model, meant.provider if paid else None, meant.model)


def _make_wire_model(name: str, meant: ModelRef, access: Access) -> Model:
    if meant.provider == "builtin":
        from pinfold.model.local import BuiltinModel

        if access.data is None or access.state is None:
            raise UnknownModel(f"{name} needs a place for its weights, and there is none")
        return BuiltinModel(
            name=meant.model, folder=access.data, state=access.state, uv=access.uv(), pull=True, notice=access.notice
        )
    if meant.provider == "ollama":
        from pinfold.model.wire.ollama import OllamaModel

        return OllamaModel(name=name, base_url=address_of(meant, access), model=meant.model)
    if meant.provider in DIRECT:
        from pinfold.model.providers import direct, provider_registry

        # Before a key is asked for that would be of no use yet.
        provider_registry.check_installed(provider_registry.provider_named(meant.provider))
        made = direct(meant.provider, meant.model, name=name, key=key_for(meant, access))
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
