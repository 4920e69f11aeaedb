"""Hooks: your own code, called at three points, and some ready-made hooks.

A hook is any object with one or more of these, async or not:

    on_event(event)           sees every event and delta
    before_action(action)     returns None, Deny(reason) or another action
    before_model(request)     returns the request to send
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal, TextIO

from msgspec.structs import replace

from pinfold.events import Delta, Deny, Event, ModelReplied, Request, Usage

__all__ = ["AnthropicPromptCache", "Deny", "MessageCleanup", "TokenTracker"]


@dataclass(frozen=True, slots=True)
class AnthropicPromptCache:
    """Sets how long Anthropic caches the prompt: five minutes without this hook; "off" disables caching."""

    keep: Literal["5m", "1h", "off"] = "5m"

    def before_model(self, request: Request) -> Request:
        cache = False if self.keep == "off" else self.keep
        return replace(request, settings={**request.settings, "prompt_cache": cache})


@dataclass(frozen=True, slots=True)
class MessageCleanup:
    """Normalises messages for strict providers: no empty text, alternating roles, a result for each call."""

    def before_model(self, request: Request) -> Request:
        from pinfold.model.wire.conversation import normalize_request

        return normalize_request(request)


@dataclass(slots=True)
class TokenTracker:
    """Counts tokens and cost by model."""

    name: str = "tokens"
    calls: int = field(default=0, init=False)
    usage: Usage = field(default_factory=Usage, init=False)
    by_model: dict[str, Usage] = field(default_factory=dict[str, Usage], init=False)
    cost: float | None = field(default=0.0, init=False)
    """In US dollars; None if the price of any reply is unknown."""

    async def on_event(self, event: Event | Delta) -> None:
        if not isinstance(event, ModelReplied):
            return
        self.calls += 1
        self.usage += event.usage
        self.by_model[event.model] = self.by_model.get(event.model, Usage()) + event.usage
        self.cost = None if self.cost is None or event.cost is None else self.cost + event.cost

    def summary(self) -> str:
        price = "unknown" if self.cost is None else f"${self.cost:.4f}"
        lines = [f"{self.name}: {self.calls} calls, {_format_usage(self.usage)}, cost {price}"]
        lines += [f"  {model}: {_format_usage(usage)}" for model, usage in self.by_model.items()]
        return "\n".join(lines)

    def print_summary(self, file: TextIO | None = None) -> None:
        print(self.summary(), file=file or sys.stdout)


def _format_usage(usage: Usage) -> str:
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"
