"""What can be known of a model from its name alone."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

Calls: TypeAlias = Literal["native", "text", "unknown"]
"""How it calls tools: by itself, in its text, or nobody knows until it does."""
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
