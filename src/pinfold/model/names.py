"""Resolves the name of a model to its provider, address and key."""

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
from pinfold.text import closest

_OLLAMA_PORT = 11434
ANSWER_FORM = "answer_form"
"""The setting that holds a JSON schema for answers. Servers may ignore it, so answers are checked in any case."""


class Service(Struct, frozen=True, kw_only=True):
    """A provider with an OpenAI-compatible API."""

    url: str
    keys: tuple[str, ...] = ()
    """Environment variables that may hold its key."""
    is_local: bool = False
    """The server runs on the user's machine and seldom needs a key."""
    address: str = ""
    """Environment variable that overrides `url`."""
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
    """A provider reached through its own SDK."""

    name: str
    """The prefix users type before the colon."""
    inner: str
    """pydantic-ai's name for it; pydantic-ai's settings for this provider start with it."""
    sdk: str
    """The module that must be installed."""
    keys: tuple[str, ...] = ()
    """Environment variables that may hold its key."""
    forgets_connections: bool = False
    """True if its SDK leaves a response open that is not read to its end."""
    extra: str = "providers"
    """The extra of Pinfold that installs the SDK."""
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
"""SDK providers by name."""
PROVIDER_ALIASES: Mapping[str, str] = {
    "gemini": "google",
    "google-gla": "google",
    "lm-studio": "lmstudio",
    "llama.cpp": "llamacpp",
    "hf": "huggingface",
}
"""Other names for providers."""
PROVIDER_BY_PREFIX: Mapping[str, str] = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "gemini-": "google",
}
"""The provider of a model name without a provider, by its prefix."""


def key_variables(provider: str, key_env: str = "") -> tuple[str, ...]:
    """Environment variables for the provider's key; the first one set is used. `key_env` is for models given by URL."""
    if provider == "url":
        return (key_env,) if key_env else ()
    known = SERVICES.get(provider) or DIRECT.get(provider)
    return known.keys if known else ()


def ollama_url(environ: Mapping[str, str]) -> str:
    """Return the URL of Ollama, read from OLLAMA_HOST as Ollama's own programs read it."""
    given = environ.get("OLLAMA_HOST", "").strip()
    parts = urlsplit(given if "://" in given else f"http://{given}")
    host = parts.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # noqa: S104 - where it listens, not where one asks
        host = "127.0.0.1"
    usual = {"http": 80, "https": 443}.get(parts.scheme, _OLLAMA_PORT) if "://" in given else _OLLAMA_PORT
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{parts.port or usual}{parts.path.rstrip('/')}"


Calls: TypeAlias = Literal["native", "text", "unknown"]
"""How the model calls tools: natively, as text, or unknown until its first native call."""
Profile: TypeAlias = Literal["full", "small"]
SMALL_B = 4.0
"""Models with at most this many billion parameters are treated as small."""

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
    """True if the model was not trained on tool calls. If its template lists tools, it repeats calls already answered."""
    return bool(_TEXT.search(_plain_name(model)))


def _plain_name(model: str) -> str:
    return model.lower().rpartition("/")[2].replace("_", "-")


def traits_of(model: str) -> Traits:
    """Return the traits of a model by its id on the server, with or without the maker's prefix."""
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
"""Models whose weights can be pulled."""
FILES = ("scripted", "replay")
"""Providers whose replies are read from a file."""
_ALIASES = 8
"""Maximum length of a chain of aliases."""


class Access(Struct, frozen=True, kw_only=True):
    """How to reach models: keys, folders, and the user's choices."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Keys and addresses by environment variable."""
    key_env: str = ""
    """Environment variable with the key for a model given by URL."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    data: Path | None = None
    """Folder for weights and runtimes."""
    state: Path | None = None
    """Folder for the locks, addresses and logs of running model servers."""
    replies: Path | None = None
    """Folder of the reply cache; None for no cache."""
    uv: Callable[[], Path | None] = lambda: None
    """Returns the path of `uv`, which installs the runtime of a local model."""
    protocol: Protocol = "auto"
    profile: Profile | Literal["auto"] = "auto"
    warm: bool = True
    """Load slow SDKs right away, in the background."""
    notice: Callable[[str], None] = lambda _text: None
    """Called with messages for the user while a model is prepared."""


class ModelRef(Struct, frozen=True):
    """A resolved model name."""

    provider: str
    model: str
    url: str = ""
    """The server's URL, if the name contains one."""


def parse_model_name(name: str, access: Access | None = None) -> ModelRef:
    """Resolve a model name. Raises UnknownModel."""
    aliases = (access or Access()).aliases
    given = name
    for _ in range(_ALIASES):
        name = aliases.get(name, name)
    if name in aliases:
        raise UnknownModel(f"the alias {given!r} leads back to itself; see [models.aliases]")
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
        provider = PROVIDER_ALIASES.get(scheme, scheme)
        if found and rest and (provider in (*SERVICES, *DIRECT, *FILES, "ollama")):
            return ModelRef(provider, rest)
    for beginning, provider in PROVIDER_BY_PREFIX.items():
        if name.startswith(beginning):
            return ModelRef(provider, name)
    raise UnknownModel(f"no model is called {name!r}; {_hint(name, aliases)}")


def _hint(name: str, aliases: Mapping[str, str]) -> str:
    scheme = name.partition(":")[0]
    providers = (*SERVICES, *DIRECT, *PROVIDER_ALIASES, *FILES, "ollama")
    if near := closest(scheme, (*providers, *BUILTIN, *aliases)):
        what = "FILE" if near in FILES else "MODEL" if near in providers else ""
        return f"did you mean {near}{what and f':{what}'}?"
    first, dash, rest = name.partition("-")
    families = [beginning.removesuffix("-") for beginning in PROVIDER_BY_PREFIX if beginning.endswith("-")]
    if dash and (near := closest(first, families)):
        return f"did you mean {near}-{rest}?"
    return "write PROVIDER:MODEL, http://HOST:PORT/v1#MODEL or builtin; `pinfold model list` shows what is here"


def full_name(name: str) -> str:
    """Make a relative file in the name absolute, so that the name works from every folder."""
    scheme, colon, rest = name.partition(":")
    return f"{scheme}:{Path(rest).absolute()}" if colon and rest and scheme in FILES else name


def profile_of(name: str, access: Access) -> Profile:
    """Return the profile for a session with this model; an unknown model gets the configured one, else "full"."""
    try:
        return traits_for(parse_model_name(name, access), access).profile
    except UnknownModel:
        return "full" if access.profile == "auto" else access.profile


def traits_for(meant: ModelRef, access: Access) -> Traits:
    """Return the model's traits, by its name unless the user has set them."""
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
    """Return the key for the provider; None if it needs none. Raises NoKey."""
    wanted = key_variables(meant.provider, access.key_env)
    for variable in wanted:
        if key := access.keys.get(variable):
            return key
    service = SERVICES.get(meant.provider)
    # A server that the user put in the provider's place may need no key.
    if not wanted or (service and (service.is_local or access.keys.get(service.address))):
        return None
    raise NoKey(f"{meant.provider} needs a key: set {' or '.join(wanted)}, or choose another model")


def key_hint(meant: ModelRef, access: Access) -> str:
    """Return advice for when a server rejects the key."""
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
    """Return where a conversation with this model is sent: `host:port`, or the provider's name for SDK providers.

    Empty for a model on this machine; the name itself if it cannot be resolved.
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
