"""The provider keeps Pinfold's contract, check by check. Needs `bwrap`."""

from __future__ import annotations

import shutil

import pytest

from pinfold.sandbox import provider_named
from pinfold.testing import SANDBOX_CHECKS, Check, run_check

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("check", SANDBOX_CHECKS, ids=lambda check: check.name.replace(" ", "-"))
async def test_it_keeps_the_contract(check: Check) -> None:
    result = await run_check(check, provider_named("bubblewrap"))
    if result.verdict == "skipped":
        pytest.skip(result.reason)
    assert result.verdict == "passed", result.reason
