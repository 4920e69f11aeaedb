"""What a check of the contract is and what it works on. The checks themselves are elsewhere."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from pinfold.sandbox.contract import Limits, Outcome, Provider, Session, Spec

Need: TypeAlias = Literal[
    "isolated", "fork", "files_view", "sockets", "mounts", "site", "calls", "commands", "read_only_commands",
    "calls and commands", "durable and commands", "local", "no fork"
]  # fmt: skip
"""What a provider must say of itself for a check to apply."""


_Error = TypeVar("_Error", bound=Exception)


class ContractBroken(AssertionError):
    """A provider does not do what the contract says; the text says what."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Opens sessions of the provider under test, in a folder that is this check's own."""

    provider: Provider
    folder: Path
    """The workspace. Beside it lies `outside`, so that a provider that lets a path out harms nothing."""

    @property
    def outside(self) -> Path:
        return self.folder.parent / "outside"

    @asynccontextmanager
    async def session(
        self,
        limits: Limits | None = None,
        data: Mapping[str, Path] | None = None,
        site: Path | None = None,
        view: Path | None = None,
        state: Path | None = None,
    ) -> AsyncGenerator[Session]:
        spec = Spec(
            workspace=self.folder, data=data or {}, limits=limits or Limits(), site=site, view=view, state=state
        )
        session = await self.provider.open(spec)
        try:
            yield session
        finally:
            await session.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One sentence of the contract that can be tried."""

    name: str
    attempt: Callable[[Bench], Awaitable[None]] = field(repr=False)
    needs: Need | None = None

    def skip_reason(self, provider: Provider) -> str | None:
        has = provider.capabilities
        if self.needs == "local":
            return "it runs on another machine" if has.remote else None
        if self.needs == "no fork":
            return "it says it can fork" if has.fork else None
        lacking = [need for need in (self.needs or "").split(" and ") if need and not getattr(has, need)]
        return f"it does not say it has {lacking[0]!r}" if lacking else None


CHECKS: list[Check] = []


def check(needs: Need | None = None) -> Callable[[Callable[[Bench], Awaitable[None]]], Check]:
    """Registers a check under its function's name, read as a sentence."""

    def register(attempt: Callable[[Bench], Awaitable[None]]) -> Check:
        made = Check(name=getattr(attempt, "__name__", "").replace("_", " "), attempt=attempt, needs=needs)
        CHECKS.append(made)
        return made

    return register


def check_session(needs: Need | None = None) -> Callable[[Callable[[Session], Awaitable[None]]], Check]:
    """As `check`, for what needs no more than an open session."""

    def register(attempt: Callable[[Session], Awaitable[None]]) -> Check:
        @functools.wraps(attempt)
        async def in_session(bench: Bench) -> None:
            async with bench.session() as session:
                await attempt(session)

        return check(needs)(in_session)

    return register


def expect(holds: object, message: str) -> None:
    if not holds:
        raise ContractBroken(message)


def expect_outcome(outcome: Outcome, *, status: str, value: str | None = None) -> None:
    if outcome.status != status or outcome.value != value:
        raise ContractBroken(f"expected {status!r} with value {value!r}, got {outcome!r}")


async def expect_refused(attempt: Awaitable[object], error: type[_Error], message: str) -> _Error:
    """What the attempt raised, which must be this."""
    try:
        await attempt
    except error as refused:
        return refused
    raise ContractBroken(message)
