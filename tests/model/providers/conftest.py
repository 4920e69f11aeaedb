"""Models that are asked over loopback, through the real SDKs."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import pytest
from tests.model.providers.loopback import Answer, Asked, Loopback, loopback

from pinfold.model.providers import DirectModel


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, address or proxy of the person running the tests."""
    for variable in [
        name
        for name in os.environ
        if name.startswith(("ANTHROPIC_", "GOOGLE_", "GEMINI_", "AWS_")) or name.lower().endswith("_proxy")
    ]:
        monkeypatch.delenv(variable)


@pytest.fixture
def serve() -> Generator[Callable[[Callable[[Asked], Answer]], Loopback]]:
    with ExitStack() as servers:
        yield lambda answer: servers.enter_context(loopback(answer))


@pytest.fixture
async def ask(anyio_backend: str) -> AsyncGenerator[Callable[..., DirectModel]]:
    """Makes a model of a provider that is asked at the server; closed with the test."""
    async with AsyncExitStack() as models:

        def make(server: Loopback | str, provider: str = "anthropic", model: str = "", **more: Any) -> DirectModel:
            name = model or {"anthropic": "claude-sonnet-4-6", "google": "gemini-3-pro-preview"}[provider]
            made = DirectModel(
                provider,
                name,
                name=f"{provider}:{name}",
                key="secret-key-of-the-test",
                base_url=server if isinstance(server, str) else server.url,
                **more,
            )
            models.push_async_callback(made.aclose)
            return made

        yield make
