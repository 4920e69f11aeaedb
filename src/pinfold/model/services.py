"""Where models are served: addresses, and the variables their keys are in."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

_OLLAMA_PORT = 11434
ANSWER_FORM = "answer_form"
"""The setting with a schema for answers. Whoever wants one checks it all the same, so that it can be gone without."""


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
DIRECT: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "google-vertex": (),
    "bedrock": (),
    "cohere": ("CO_API_KEY",),
}
"""Reached through the extra `providers`, by the variables that may hold their keys."""
ALSO: Mapping[str, str] = {
    "gemini": "google",
    "google-gla": "google",
    "lm-studio": "lmstudio",
    "llama.cpp": "llamacpp",
    "hf": "huggingface",
}
"""Other names of theirs."""
BARE: Mapping[str, str] = {
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude-": "anthropic",
    "gemini-": "google",
}
"""Whose a name without a provider is, by its beginning."""


def key_variables(provider: str, key_env: str = "") -> tuple[str, ...]:
    """Those that may hold its key, the first that is set counts. `key_env` is for a model that is named by its address."""
    if provider == "url":
        return (key_env,) if key_env else ()
    service = SERVICES.get(provider)
    return service.keys if service else DIRECT.get(provider, ())


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
