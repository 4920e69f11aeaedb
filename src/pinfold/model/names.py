"""What the name of a model means: its provider, its address, its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct, field

from pinfold.model.errors import NoKey, UnknownModel
from pinfold.model.services import ALSO, BARE, DIRECT, SERVICES, key_variables, ollama_url
from pinfold.model.traits import Profile, Traits, traits_of

Protocol: TypeAlias = Literal["auto", "native", "text"]
BUILTIN = ("builtin", "builtin-small", "smollm2")
"""Those whose weights can be pulled."""
FILES = ("scripted", "replay")
"""Those that are read from a file."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ALIASES = 8
"""How often one alias may lead to another."""


def _nowhere() -> None:
    pass


def _silent(text: str) -> None:
    del text


class Access(Struct, frozen=True, kw_only=True):
    """What models are reached with, and how they are to be treated."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Keys and addresses by the variable they are in."""
    key_env: str = ""
    """The variable with the key for a model that is named by its address."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    data: Path | None = None
    """Where weights and runtimes are kept."""
    state: Path | None = None
    """Where running servers are known."""
    replies: Path | None = None
    """Where replies to deterministic requests are remembered; None: nowhere."""
    uv: Callable[[], Path | None] = _nowhere
    """Finds what installs the runtime of a local model."""
    protocol: Protocol = "auto"
    profile: Profile | Literal["auto"] = "auto"
    warm: bool = True
    """What takes long to load is loaded at once, beside everything else."""
    notice: Callable[[str], None] = _silent
    """Hears what the user should know while a model is made ready."""


class ModelRef(Struct, frozen=True):
    """What a name means."""

    provider: str
    model: str
    url: str = ""
    """Where it is served, if the name says so itself."""


def parse_model_name(name: str, access: Access | None = None) -> ModelRef:
    """Raises UnknownModel."""
    aliases = (access or Access()).aliases
    seen: list[str] = []
    while name in aliases and len(seen) <= _ALIASES:
        seen.append(name)
        name = aliases[name]
    if len(seen) > _ALIASES:
        raise UnknownModel(f"the alias {seen[0]!r} leads round in a circle; see [models.aliases]")
    if not name:
        raise UnknownModel("no model is configured; name one with --model, e.g. --model builtin")
    if name in BUILTIN:
        return ModelRef("builtin", name)
    if name.startswith(("http://", "https://")):
        url, _, model = name.partition("#")
        if not model:
            raise UnknownModel(f"{name} does not say which model; write {url}#MODEL")
        return ModelRef("url", model, url.rstrip("/"))
    for separator in (":", "/"):
        scheme, found, rest = name.partition(separator)
        provider = ALSO.get(scheme, scheme)
        if found and rest and (provider in (*SERVICES, *DIRECT, *FILES, "ollama")):
            return ModelRef(provider, rest)
    for beginning, provider in BARE.items():
        if name.startswith(beginning):
            return ModelRef(provider, name)
    raise UnknownModel(f"no model is called {name!r}; {_hint(name, aliases)}")


def _hint(name: str, aliases: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    scheme = name.partition(":")[0]
    providers = (*SERVICES, *DIRECT, *ALSO, *FILES, "ollama")
    if near := get_close_matches(scheme, (*providers, *BUILTIN, *aliases), n=1):
        what = "FILE" if near[0] in FILES else "MODEL" if near[0] in providers else ""
        return f"did you mean {near[0]}{what and f':{what}'}?"
    first, dash, rest = name.partition("-")
    families = [beginning.removesuffix("-") for beginning in BARE if beginning.endswith("-")]
    if dash and (near := get_close_matches(first, families, n=1)):
        return f"did you mean {near[0]}-{rest}?"
    return "write PROVIDER:MODEL, http://HOST:PORT/v1#MODEL or builtin; `pinfold model list` shows what is here"


def full_name(name: str) -> str:
    """The same name from every folder: a relative file becomes an absolute one."""
    scheme, colon, rest = name.partition(":")
    return f"{scheme}:{Path(rest).absolute()}" if colon and rest and scheme in FILES else name


def profile_of(name: str, access: Access) -> Profile:
    """How a session with this model is best set up."""
    try:
        return traits_for(parse_model_name(name, access), access).profile
    except UnknownModel:
        return "full" if access.profile == "auto" else access.profile


def traits_for(meant: ModelRef, access: Access) -> Traits:
    """By its name, unless the user has said otherwise."""
    if meant.provider in FILES:
        calls, profile = Traits("native", "full")
    elif meant.provider == "builtin":
        calls, profile = Traits("text", "small")
    else:
        calls, profile = traits_of(meant.model)
    return Traits(
        "native" if meant.provider in DIRECT else calls if access.protocol == "auto" else access.protocol,
        profile if access.profile == "auto" else access.profile,
    )


def key_for(meant: ModelRef, access: Access) -> str | None:
    """What the provider wants to see; None where it wants nothing. Raises NoKey."""
    wanted = key_variables(meant.provider, access.key_env)
    for variable in wanted:
        if key := access.keys.get(variable):
            return key
    service = SERVICES.get(meant.provider)
    # Another server in the provider's place may well want none.
    if not wanted or (service and (service.is_local or access.keys.get(service.address))):
        return None
    raise NoKey(f"{meant.provider} wants a key: set {' or '.join(wanted)}, or choose another model")


def key_hint(meant: ModelRef, access: Access) -> str:
    """What to do when a server does not take the key it was shown."""
    wanted = key_variables(meant.provider, access.key_env)
    if not wanted:
        return "check the key: put it into a variable and name that, `pinfold config set model.key_env VARIABLE`"
    return f"check the key in {' or '.join(wanted)}"


def address_of(meant: ModelRef, access: Access) -> str:
    if meant.url:
        return meant.url
    if meant.provider == "ollama":
        return ollama_url(access.keys)
    service = SERVICES[meant.provider]
    return (access.keys.get(service.address, "") if service.address else "").rstrip("/") or service.url


def destination_of(name: str, access: Access) -> str:
    """Where a conversation with this model goes: `host:port`, a provider; the name itself where nobody knows more.

    Empty for one that runs on this machine.
    """
    if name in FILES:
        return ""
    try:
        meant = parse_model_name(name, access)
    except UnknownModel:
        return name
    if meant.provider in ("builtin", *FILES):
        return ""
    if meant.provider in DIRECT:
        return meant.provider
    parts = urlsplit(address_of(meant, access))
    host = parts.hostname or name
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return "" if host in LOOPBACK or host.startswith("127.") else f"{host}:{port}"
