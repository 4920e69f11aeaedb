"""The isolated providers keep the contract, check by check; checks may run beside each other and beside other tests."""

from __future__ import annotations

import sys

import pytest

from pinfold.sandbox import Provider
from pinfold.sandbox.providers.landlock import Landlock, landlock_abi
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.testing import SANDBOX_CHECKS, Check, CheckResult, run_check

pytestmark = pytest.mark.safety
each_check = pytest.mark.parametrize("check", SANDBOX_CHECKS, ids=lambda check: check.name.replace(" ", "-"))


async def keeps(check: Check, provider: Provider) -> None:
    result = await run_check(check, provider)
    if result.verdict == "skipped":
        pytest.skip(result.reason)
    assert result == CheckResult(name=check.name, verdict="passed")


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
@each_check
async def test_namespaces_keeps_the_contract(check: Check) -> None:
    await keeps(check, Namespaces())


@pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
@each_check
async def test_landlock_keeps_the_contract(check: Check) -> None:
    await keeps(check, Landlock())
