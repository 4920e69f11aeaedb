"""What the name of a model means: its provider, its address, its key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct, field

from pinfold.model.errors import NoKey, UnknownModel
from pinfold.model.wire.conversation import NO_PICTURES, Pictures

_OLLAMA_PORT = 11434
ANSWER_FORM = "answer_form"
"""The setting with a schema for answers. A server may ignore it: answers are checked against the schema anyway."""


class Service(Struct, frozen=True, kw_only=True):
    """Speaks the OpenAI wire."""

    url: str
    keys: tuple[str, ...] = ()
    """Variables that may hold its key."""
    is_local: bool = False
    """A server of the user's own: it may want a key, and seldom does."""
    address: str = ""
    """The variable that may name another address."""
    max_tokens: str = "max_tokens"


SERVICES: Mapping[str, Service] = {
    "openai": Service(
        url="https://api.openai.com/v1",
        keys=("OPENAI_API_KEY",),
        address="OPENAI_BASE_URL",
        max_tokens="max_completion_tokens",
    ),
    "openrouter": Service(url="https://openrouter.ai/api/v1", keys=("OPENROUTER_API_KEY",)),
    "groq": Service(url="https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",)),
    "mistral": Service(url="https://api.mistral.ai/v1", keys=("MISTRAL_API_KEY",)),
    "deepseek": Service(url="https://api.deepseek.com/v1", keys=("DEEPSEEK_API_KEY",)),
    "together": Service(url="https://api.together.xyz/v1", keys=("TOGETHER_API_KEY",)),
    "fireworks": Service(url="https://api.fireworks.ai/inference/v1", keys=("FIREWORKS_API_KEY",)),
    "cerebras": Service(url="https://api.cerebras.ai/v1", keys=("CEREBRAS_API_KEY",)),
    "xai": Service(url="https://api.x.ai/v1", keys=("XAI_API_KEY",)),
    "moonshot": Service(url="https://api.moonshot.ai/v1", keys=("MOONSHOT_API_KEY",)),
    "huggingface": Service(url="https://router.huggingface.co/v1", keys=("HF_TOKEN",)),
    "lmstudio": Service(url="http://127.0.0.1:1234/v1", keys=("LMSTUDIO_API_KEY",), is_local=True),
    "llamacpp": Service(url="http://127.0.0.1:8080/v1", keys=("LLAMA_API_KEY",), is_local=True),
    "vllm": Service(url="http://127.0.0.1:8000/v1", keys=("VLLM_API_KEY",), is_local=True),
}


class SdkProvider(Struct, frozen=True):
    """Spoken to through its SDK."""

    name: str
    """As users type it before the colon."""
    inner: str
    """As pydantic-ai calls it; its settings for it begin so, too."""
    sdk: str
    """The module that must be there."""
    keys: tuple[str, ...] = ()
    """Variables that may hold its key."""
    forgets_connections: bool = False
    """Its SDK does not close an answer that is not read to its end."""
    extra: str = "providers"
    """That brings it."""
    pictures: Pictures = NO_PICTURES


_GOOGLE_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_WEB = ("image/jpeg", "image/png", "image/webp")
_ANTHROPIC = Pictures(kinds=(*_WEB, "image/gif"), most=100)
_GOOGLE = Pictures(kinds=(*_WEB, "image/heic", "image/heif"), most=100)
_VERTEX = Pictures(kinds=_WEB, most=100)
_BEDROCK = Pictures(kinds=(*_WEB, "image/gif"), most=20)
_ALL = (
    SdkProvider("anthropic", "anthropic", "anthropic", ("ANTHROPIC_API_KEY",), pictures=_ANTHROPIC),
    SdkProvider("google", "google", "google.genai", _GOOGLE_KEYS, forgets_connections=True, pictures=_GOOGLE),
    SdkProvider("google-vertex", "google-cloud", "google.genai", forgets_connections=True, pictures=_VERTEX),
    SdkProvider("bedrock", "bedrock", "boto3", pictures=_BEDROCK),
    SdkProvider("cohere", "cohere", "cohere", ("CO_API_KEY",), extra="cohere"),
)
DIRECT: Mapping[str, SdkProvider] = {provider.name: provider for provider in _ALL}
"""By name; reached through the extra `providers`."""
ALSO: Mapping[str, str] = {
    "gemini": "google",
    "google-gla": "google",
    "lm-studio": "lmstudio",
    "llama.cpp": "llamacpp",
    "hf": "huggingface",
}
"""Aliases of providers."""
BARE: Mapping[str, str] = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "gemini-": "google",
}
"""The provider of a name without one, by how the name begins."""


def key_variables(provider: str, key_env: str = "") -> tuple[str, ...]:
    """Those that may hold its key, the first that is set counts. `key_env` is for a model that is named by its address."""
    if provider == "url":
        return (key_env,) if key_env else ()
    known = SERVICES.get(provider) or DIRECT.get(provider)
    return known.keys if known else ()


def ollama_url(environ: Mapping[str, str]) -> str:
    """Where Ollama listens, by OLLAMA_HOST as its own programs read it."""
    given = environ.get("OLLAMA_HOST", "").strip()
    parts = urlsplit(given if "://" in given else f"http://{given}")
    host = parts.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # noqa: S104 - where it listens, not where one asks
        host = "127.0.0.1"
    usual = {"http": 80, "https": 443}.get(parts.scheme, _OLLAMA_PORT) if "://" in given else _OLLAMA_PORT
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{parts.port or usual}{parts.path.rstrip('/')}"


Calls: TypeAlias = Literal["native", "text", "unknown"]
"""How it calls tools: natively, in its text, or unknown until it does."""
Profile: TypeAlias = Literal["full", "small"]
SMALL_B = 4.0
"""Up to so many billions of parameters a model is treated as small."""

_NATIVE = re.compile(
    r"^(gpt-|chatgpt-|o\d|claude|gemini|grok|command-[ar]|mistral-(small|medium|large)|ministral|devstral|"
    r"deepseek-(chat|reasoner|v3|v4|r1-0528)|kimi|glm-[4-9]|qwen-?(3|max|plus|turbo)|llama-?(3\.[13]|4)|gpt-oss|minimax)"
)
_TEXT = re.compile(
    r"(qwen2\.?5-?coder|codellama|code-?llama|starcoder|deepseek-coder|codegemma|gemma-?[123]\b|phi-?[1234]|"
    r"smollm|tinyllama|stablelm|vicuna|wizard|zephyr|llama-?2)"
)
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)(b|m)(?![a-z0-9])")


class Traits(NamedTuple):
    calls: Calls
    profile: Profile


def ignores_declared_tools(model: str) -> bool:
    """It was not trained on tool calls, whatever its template says: told by that one, it repeats a call that was answered."""
    return bool(_TEXT.search(_plain_name(model)))


def _plain_name(model: str) -> str:
    return model.lower().rpartition("/")[2].replace("_", "-")


def traits_of(model: str) -> Traits:
    """By the id a server knows it by, with or without the maker's name in front."""
    name = _plain_name(model)
    size = _SIZE.search(name.replace(":", "-"))
    billions = None if size is None else float(size[1]) / (1 if size[2] == "b" else 1000)
    small = billions is not None and billions <= SMALL_B
    if _TEXT.search(name):
        return Traits("text", "small" if small else "full")
    if _NATIVE.match(name) and not small:
        return Traits("native", "full")
    return Traits("text" if small else "unknown", "small" if small else "full")


Protocol: TypeAlias = Literal["auto", "native", "text"]
BUILTIN = ("builtin", "builtin-small", "smollm2")
"""Those whose weights can be pulled."""
FILES = ("scripted", "replay")
"""Those that are read from a file."""
_ALIASES = 8
"""How often one alias may lead to another."""


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
    uv: Callable[[], Path | None] = lambda: None
    """Finds what installs the runtime of a local model."""
    protocol: Protocol = "auto"
    profile: Profile | Literal["auto"] = "auto"
    warm: bool = True
    """What takes long to load is loaded at once, beside everything else."""
    notice: Callable[[str], None] = lambda _text: None
    """Gets what the user should know while a model is made ready."""


class ModelRef(Struct, frozen=True):
    """What a name means."""

    provider: str
    model: str
    url: str = ""
    """Where it is served, if the name says so itself."""


def parse_model_name(name: str, access: Access | None = None) -> ModelRef:
    """Raises UnknownModel."""
    aliases = (access or Access()).aliases
    given = name
    for _ in range(_ALIASES):
        name = aliases.get(name, name)
    if name in aliases:
        raise UnknownModel(f"the alias {given!r} leads round in a circle; see [models.aliases]")
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
    """Where a conversation with this model goes: `host:port`, or a provider; the name itself if it cannot be resolved.

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
    return "" if is_loopback(host) else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
