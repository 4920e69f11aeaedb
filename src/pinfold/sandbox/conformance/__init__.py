"""The sandbox contract as checks that anyone can run against a provider. Public as `pinfold.testing`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import anyio

from pinfold.sandbox.conformance import capabilities, cells, commands, endings
from pinfold.sandbox.conformance.capabilities import CHECKS, Bench, Check, ContractBroken
from pinfold.sandbox.contract import Provider

__all__ = ["SANDBOX_CHECKS", "Check", "CheckResult", "SandboxReport", "run_check", "sandbox_contract"]

CHECK_S = 60.0
"""Time limit of one check; a provider that hangs fails it."""

CheckVerdict: TypeAlias = Literal["passed", "failed", "skipped"]

_GROUPS = (cells, endings, capabilities, commands)
SANDBOX_CHECKS: tuple[Check, ...] = tuple(CHECKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    name: str
    verdict: CheckVerdict
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxReport:
    """The results of all checks of one provider. `str()` gives a readable report."""

    provider: str
    results: tuple[CheckResult, ...]

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        return tuple(result for result in self.results if result.verdict == "failed")

    @property
    def ok(self) -> bool:
        """True if no check failed and at least one passed."""
        return not self.failed and any(result.verdict == "passed" for result in self.results)

    def __str__(self) -> str:
        lines = [f"{one.verdict:8}{one.name}" + (f": {one.reason}" if one.reason else "") for one in self.results]
        return "\n".join([f"sandbox contract of {self.provider!r}, {len(lines)} checks", *lines])


async def sandbox_contract(provider: Provider) -> SandboxReport:
    """Run all checks against a provider. The programs they run are harmless, even without isolation."""
    results = [await run_check(check, provider) for check in SANDBOX_CHECKS]
    return SandboxReport(provider=provider.name, results=tuple(results))


async def run_check(check: Check, provider: Provider) -> CheckResult:
    """Run one check in its own folder. Any exception is reported as a failure of the provider."""
    reason = check.skip_reason(provider)
    if reason is not None:
        return CheckResult(name=check.name, verdict="skipped", reason=reason)
    with tempfile.TemporaryDirectory(prefix="pinfold-check-", ignore_cleanup_errors=True) as folder:
        bench = Bench(provider, Path(folder) / "workspace")
        for place in (bench.folder, bench.outside):
            place.mkdir()
        try:
            with anyio.fail_after(CHECK_S):
                await check.attempt(bench)
        except ContractBroken as broken:
            return CheckResult(name=check.name, verdict="failed", reason=str(broken))
        except Exception as error:  # noqa: BLE001 - a foreign provider may raise anything
            return CheckResult(name=check.name, verdict="failed", reason=f"it raised {error!r}")
    return CheckResult(name=check.name, verdict="passed")
