"""`landlock`: what a lite session can and cannot do, each with the same program run where it can.

Every program here is harmless in itself: the bait is our own, and the control is what runs it without isolation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinfold.sandbox import Provider, Session, Spec, provider_named
from pinfold.sandbox.canaries import holes
from pinfold.sandbox.landlock import Landlock, landlock_abi
from pinfold.testing import SANDBOX_CHECKS, Check, CheckResult, run_check

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock"),
]
LOCAL = provider_named("unsafe-local")
LITE = Landlock()


@asynccontextmanager
async def opened(provider: Provider, spec: Spec) -> AsyncGenerator[Session]:
    session = await provider.open(spec)
    try:
        yield session
    finally:
        await session.close()


async def said(provider: Provider, spec: Spec, code: str) -> str:
    async with opened(provider, spec) as session:
        outcome = await session.run(code, timeout_s=20)
    return (outcome.stdout + (outcome.error or "")).strip()


@pytest.mark.parametrize("check", SANDBOX_CHECKS, ids=lambda check: check.name.replace(" ", "-"))
async def test_landlock_keeps_the_contract(check: Check) -> None:
    result = await run_check(check, LITE)
    if result.verdict == "skipped":
        pytest.skip(result.reason)
    assert result == CheckResult(name=check.name, verdict="passed")


async def test_nothing_gets_out_and_the_same_attempts_do_where_nothing_is_shut(workspace: Path) -> None:
    async with opened(LITE, Spec(workspace=workspace)) as session:
        assert await holes(session) == []
    async with opened(LOCAL, Spec(workspace=workspace)) as session:
        found = await holes(session)
    assert len(found) >= 14, found
