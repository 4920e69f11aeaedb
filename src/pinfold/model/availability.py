"""Whether a model can be had, without asking it anything: its server says what it has, which costs nothing."""

from __future__ import annotations

import difflib

from pinfold.events import RequestFailed
from pinfold.model.chain import model_named
from pinfold.model.errors import UnknownModel
from pinfold.model.names import Access, address_of, key_for, key_hint, parse_model_name
from pinfold.model.services import DIRECT


async def check_reachable(name: str, access: Access, *, limit_s: float) -> str:
    """Where it is, in words. Raises ModelError, RequestFailed."""
    meant = parse_model_name(name, access)
    if meant.provider in ("scripted", "replay"):
        model_named(name, access=access)
        return f"reads {meant.model}"
    if meant.provider == "builtin":
        return _inside(meant.model, access)
    key = key_for(meant, access)
    if meant.provider in DIRECT:
        check_installed(name, access)
        return f"{meant.provider} wants a key, and one is set; it is not asked"
    from pinfold.model.wire.http import Patience, Wire
    from pinfold.model.wire.payload import a_list, a_text, an_object

    place = address_of(meant, access)
    wire = Wire(place, patience=Patience(connect_s=limit_s), key=key)
    is_ollama = meant.provider == "ollama"
    try:
        said = an_object(await wire.ask("api/tags" if is_ollama else "models", limit_s=limit_s))
    except RequestFailed as error:
        if error.status in (401, 403):
            words = str(error).removesuffix("check the key") + key_hint(meant, access)
            raise RequestFailed(words, status=error.status) from error
        if error.status is not None:
            return f"answers at {place}; it does not say which models it has"
        raise
    finally:
        await wire.aclose()
    listed = a_list(said.get("models" if is_ollama else "data"))
    known = [a_text(an_object(one).get("name" if is_ollama else "id")) for one in listed]
    if known and meant.model not in known and f"{meant.model}:latest" not in known:
        near = difflib.get_close_matches(meant.model, known, n=1, cutoff=0.5) or known[:1]
        raise UnknownModel(f"{place} has no model {meant.model!r}; did you mean {near[0]!r}?")
    return f"answers at {place}"


def check_installed(name: str, access: Access) -> None:
    """Looks only. Raises NotInstalled, which names the extra; UnknownModel."""
    provider = parse_model_name(name, access).provider
    if provider in DIRECT:
        from pinfold.model.providers import provider_registry

        provider_registry.check_installed(provider_registry.provider_named(provider))


def check_usable(name: str, access: Access) -> None:
    """Raises ModelError for what no server need be asked about: its name, what it needs installed, its key."""
    check_installed(name, access)
    key_for(parse_model_name(name, access), access)


def _inside(model: str, access: Access) -> str:
    from pinfold.model.local import weights_at, weights_named

    weights = weights_named(model)
    if access.data is None or weights_at(weights, access.data / "models") is None:
        raise UnknownModel(f"{model} is not here yet ({weights.megabytes}); pinfold model pull {model}")
    return "is here, and runs inside Pinfold"
