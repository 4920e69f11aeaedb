"""Pinfold through its public door, with and without a pool."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from bench.sandbox_suite.contenders import FOREVER, OUTPUT_BYTES, Answer

from pinfold.sandbox import Limits, Session, Stream, open_session
from pinfold.sandbox.providers.namespaces import Namespaces

LIMITS = Limits(stream_bytes=OUTPUT_BYTES + (1 << 20))


class Ours:
    def __init__(self, python: Path, pool: int = 0) -> None:
        self.name = "pinfold, pooled" if pool else "pinfold"
        self._provider = Namespaces(python, pool=pool)

    async def warm(self) -> None:
        """Until the pool is full."""
        await self._provider.warm()

    async def open(self) -> OurSession:
        stack = AsyncExitStack()
        opening = open_session(sandbox=self._provider, limits=LIMITS)
        return OurSession(stack, await stack.enter_async_context(opening))


class Told(Ours):
    """Under default limits: the whole output goes to a listener as it comes, and 64 MiB of it are kept."""

    def __init__(self, python: Path) -> None:
        super().__init__(python)
        self.name = "pinfold, told as it comes"

    async def open(self) -> OurSession:
        stack = AsyncExitStack()
        opening = open_session(sandbox=self._provider)
        return ToldSession(stack, await stack.enter_async_context(opening))


class OurSession:
    def __init__(self, stack: AsyncExitStack, session: Session) -> None:
        self._stack = stack
        self._session = session

    async def run(self, code: str) -> Answer:
        outcome = await self._session.run(code)
        if outcome.status != "ok":
            raise RuntimeError(f"{outcome.status}: {outcome.error}")
        return Answer(outcome.value, len(outcome.stdout))

    async def interrupted_s(self) -> float:
        started = anyio.Event()
        begun = ended = 0.0

        def listen(_stream: Stream, _text: str) -> None:
            started.set()

        async def loop() -> None:
            nonlocal ended
            outcome = await self._session.run(FOREVER, on_output=listen)
            ended = time.perf_counter()
            assert outcome.status == "interrupted", outcome

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop)
            await started.wait()
            begun = time.perf_counter()
            await self._session.interrupt()
        return ended - begun

    async def close(self) -> None:
        await self._stack.aclose()


class ToldSession(OurSession):
    async def run(self, code: str) -> Answer:
        told = 0

        def listen(_stream: Stream, text: str) -> None:
            nonlocal told
            told += len(text)

        outcome = await self._session.run(code, on_output=listen)
        if outcome.status != "ok":
            raise RuntimeError(f"{outcome.status}: {outcome.error}")
        return Answer(outcome.value, told)
