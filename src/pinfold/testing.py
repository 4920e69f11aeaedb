"""Tools for testing what you build on Pinfold. Public, documented, and used by Pinfold's own tests.

    report = await sandbox_contract(MyProvider())
    assert report.ok, str(report)

or one pytest case for each check: `@pytest.mark.parametrize("check", SANDBOX_CHECKS)` and `run_check`.
"""

from __future__ import annotations

from pinfold.sandbox.conformance import SANDBOX_CHECKS, Check, CheckResult, SandboxReport, run_check, sandbox_contract

__all__ = ["SANDBOX_CHECKS", "Check", "CheckResult", "SandboxReport", "run_check", "sandbox_contract"]
