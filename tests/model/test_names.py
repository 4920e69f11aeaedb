"""Names of models: what each means, what it is reached with, and what is said of one that means nothing."""

from __future__ import annotations

import pytest

from pinfold.model import Access, NoKey, UnknownModel, parse_model_name, profile_of
from pinfold.model.names import ModelRef, address_of, key_for, traits_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("builtin", ModelRef("builtin", "builtin")),
        ("openai:gpt-5", ModelRef("openai", "gpt-5")),
        ("openai/gpt-5", ModelRef("openai", "gpt-5")),
        ("gpt-5-mini", ModelRef("openai", "gpt-5-mini")),
        ("o3", ModelRef("openai", "o3")),
        ("claude-opus-4", ModelRef("anthropic", "claude-opus-4")),
        ("gemini-2.5-pro", ModelRef("google", "gemini-2.5-pro")),
        ("gemini:gemini-2.5-pro", ModelRef("google", "gemini-2.5-pro")),
        ("openrouter:anthropic/claude-x:free", ModelRef("openrouter", "anthropic/claude-x:free")),
        ("openrouter/qwen/qwen3-32b", ModelRef("openrouter", "qwen/qwen3-32b")),
        ("ollama:qwen2.5-coder:7b", ModelRef("ollama", "qwen2.5-coder:7b")),
        ("ollama/llama3.1", ModelRef("ollama", "llama3.1")),
        ("http://10.0.0.2:9000/v1#a/b", ModelRef("url", "a/b", "http://10.0.0.2:9000/v1")),
        ("https://x.example/v1/#m", ModelRef("url", "m", "https://x.example/v1")),
        ("scripted:a.jsonl", ModelRef("scripted", "a.jsonl")),
        ("fast", ModelRef("groq", "llama-3.1-8b")),
        ("mine", ModelRef("groq", "llama-3.1-8b")),
    ],
)
def test_a_name_means_a_provider_and_a_model(name: str, meant: ModelRef) -> None:
    assert parse_model_name(name, Access(aliases={"fast": "groq:llama-3.1-8b", "mine": "fast"})) == meant


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "no model is configured"),
        ("opnai:gpt-5", "did you mean openai:MODEL?"),
        ("scriptd:x", "did you mean scripted:FILE?"),
        ("buildin", "did you mean builtin?"),
        ("nonsense", "write PROVIDER:MODEL, http://HOST:PORT/v1#MODEL or builtin"),
        ("openai:", "did you mean openai:MODEL?"),
        ("http://127.0.0.1:8000/v1", "write http://127.0.0.1:8000/v1#MODEL"),
        ("a", "leads back to itself"),
    ],
)
def test_a_name_that_means_nothing_says_what_would(name: str, words: str) -> None:
    with pytest.raises(UnknownModel) as error:
        parse_model_name(name, Access(aliases={"a": "b", "b": "a"}))
    assert words in str(error.value)


def test_a_key_goes_only_to_the_provider_it_is_for() -> None:
    access = Access(keys={"OPENAI_API_KEY": "sk-o", "GROQ_API_KEY": "gsk"})
    assert key_for(parse_model_name("gpt-5"), access) == "sk-o"
    assert key_for(parse_model_name("groq:llama"), access) == "gsk"
    assert key_for(parse_model_name("http://elsewhere/v1#gpt-5"), access) is None
    assert key_for(parse_model_name("ollama:llama3"), access) is None
    own = Access(keys={"MY_KEY": "mine"}, key_env="MY_KEY")
    assert key_for(parse_model_name("http://elsewhere/v1#gpt-5"), own) == "mine"


def test_a_missing_key_is_named() -> None:
    with pytest.raises(NoKey, match="google needs a key: set GEMINI_API_KEY or GOOGLE_API_KEY"):
        key_for(parse_model_name("gemini-2.5-pro"), Access())
    assert key_for(parse_model_name("gemini-2.5-pro"), Access(keys={"GOOGLE_API_KEY": "k"})) == "k"


def test_addresses_come_from_the_name_then_the_variable_then_the_provider() -> None:
    assert address_of(parse_model_name("gpt-5"), Access()) == "https://api.openai.com/v1"
    there = Access(keys={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1/"})
    assert address_of(parse_model_name("gpt-5"), there) == "http://127.0.0.1:1/v1"
    assert key_for(parse_model_name("gpt-5"), there) is None
    assert address_of(parse_model_name("ollama:x"), Access()) == "http://127.0.0.1:11434"
    assert address_of(parse_model_name("ollama:x"), Access(keys={"OLLAMA_HOST": "box:1"})) == "http://box:1"


@pytest.mark.parametrize(
    ("model", "calls", "profile"),
    [
        ("gpt-5", "native", "full"),
        ("claude-opus-4", "native", "full"),
        ("meta-llama/Llama-3.1-70B-Instruct", "native", "full"),
        ("qwen2.5-coder:1.5b", "text", "small"),
        ("qwen2.5-coder-32b-instruct", "text", "full"),
        ("Qwen/Qwen3-32B", "native", "full"),
        ("qwen3:1.7b", "text", "small"),
        ("SmolLM2-135M-Instruct", "text", "small"),
        ("llama3.2:3b", "text", "small"),
        ("m", "unknown", "full"),
        ("my-finetune-7b", "unknown", "full"),
    ],
)
def test_a_model_is_known_by_its_name(model: str, calls: str, profile: str) -> None:
    assert traits_of(model) == (calls, profile)


def test_the_profile_can_be_said() -> None:
    assert profile_of("builtin", Access()) == "small"
    assert profile_of("builtin", Access(profile="full")) == "full"
    assert profile_of("scripted:135m.jsonl", Access()) == "full"
