"""Our client under every scenario of the suite for clients, one after the other: some of them are about timing."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.conformance_suite.suite import NEXT, STABLE, Leg, Ran, Suite

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "bench" / "conformance_suite" / "client.py"
SETS = ((STABLE, ""), (NEXT, "2025-11-25"), (NEXT, "2026-07-28"))
NOT_HAD = {
    "auth/dpop": "an extension that the SDK does not have",
    "auth/dpop-nonce": "an extension that the SDK does not have",
    "auth/wif-jwt-bearer": "an extension that the SDK does not have",
    "auth/enterprise-managed-authorization": "needs an identity provider of a company, which cannot be configured",
    "auth/cross-app-access-complete-flow": "needs an identity provider of a company, which cannot be configured",
    "auth/client-credentials-jwt": "needs a private key, which cannot be configured",
}
OUTDATED = {
    "auth/2025-03-26-oauth-metadata-backcompat": "its server names another issuer than itself, which RFC 8414 says to refuse"
}
"""Of the stable release."""
_LINE = re.compile(r"^\s+- (\S+)")


def client_legs(suites: Mapping[str, Suite], scratch: Path) -> list[Leg]:
    legs: list[Leg] = []
    environment = {"PYTHONPATH": str(ROOT / "src")}
    for release, revision in SETS:
        suite = suites[release]
        found: dict[str, Ran] = {}
        scenarios = _scenarios(suite, revision)
        reasons = {**NOT_HAD, **(OUTDATED if release == STABLE else {})}
        left_out = {name: reasons[name] for name in scenarios if name in reasons}
        for scenario in scenarios:
            if scenario in left_out:
                continue
            out = scratch / "results" / "client" / f"{release}-{revision or 'all'}" / scenario.replace("/", "-")
            shutil.rmtree(out, ignore_errors=True)
            more = ("--spec-version", revision) if revision else ()
            command = (sys.executable, str(DRIVER))
            ran = suite.client(command, out, "--scenario", scenario, *more, environment=environment)
            found[scenario] = Ran(
                scenario,
                sum(one.passed for one in ran.values()),
                tuple(check for one in ran.values() for check in one.failures),
                sum(one.examined for one in ran.values()),
            )
        legs.append(Leg("client", release, revision or "all", found, left_out))
    return legs


def _scenarios(suite: Suite, revision: str) -> list[str]:
    text = suite.listed("--requirements", revision) if revision else suite.listed()
    names: list[str] = []
    inside = False
    for line in text.splitlines():
        if line and not line.startswith(" "):
            inside = line.startswith("Client scenarios")
        elif inside and (found := _LINE.match(line)):
            names.append(found[1])
    return names
