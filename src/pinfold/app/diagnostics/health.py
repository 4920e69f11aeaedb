"""How well Pinfold can work here: what `pinfold doctor` asks for. Everything is looked at side by side, and not for long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec

from pinfold.app.diagnostics import findings, machine, services
from pinfold.app.diagnostics.findings import CheckContext, Finding, Section, fault
from pinfold.app.diagnostics.sandboxes import cells_python, report_findings, warm_helper
from pinfold.app.errors import ConfigError
from pinfold.app.models.session_models import BreakerStore
from pinfold.app.paths import current_folder
from pinfold.events import PinfoldError
from pinfold.sandbox.providers.doctor import LATE, WAIT, Report, examine

LIMIT_S = 8.0
"""For each thing that is started or asked."""
_BEYOND_S = 5.0
"""For a whole section, beyond that: ending what was started takes its time."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    findings: tuple[Finding, ...]
    sandboxes: Report | None = None
    models: dict[str, Any] = {}
    servers: list[dict[str, Any]] = []

    @property
    def ok(self) -> bool:
        """Nothing that is wanted does not work."""
        return all(finding.standing != "fault" for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """With stable keys; see `pinfold doctor --json`."""
        report = self.sandboxes
        return {
            "ok": self.ok,
            "checks": [msgspec.to_builtins(finding) for finding in self.findings],
            "sandboxes": [msgspec.to_builtins(checked) for checked in report.sandboxes] if report else [],
            "auto": report.auto if report else None,
            "kernel": dict(report.kernel) if report else {},
            "models": self.models,
            "servers": self.servers,
            "paused": BreakerStore().all(),
        }


async def run_checks(names: Iterable[str] = (), *, limit_s: float = LIMIT_S) -> Health:
    """Of this installation, in this folder. Starts nothing but the sandboxes of these names, if there are any."""
    asked = tuple(names)
    try:
        workspace = current_folder()
    except ConfigError:
        workspace = Path("/")
    loaded, said = findings.configuration(workspace)
    around = CheckContext(workspace=workspace, loaded=loaded, limit_s=limit_s)
    found: dict[Section, list[Finding]] = {"versions": [], "configuration": list(said)}
    whole = _FullReport()
    async with anyio.create_task_group() as tasks:

        def add(section: Section, what: str, look: Callable[[], Awaitable[list[Finding]]]) -> None:
            tasks.start_soon(_check_within, found.setdefault(section, []), section, what, look, limit_s)

        def of(look: Callable[[], Iterator[Finding]]) -> Callable[[], Awaitable[list[Finding]]]:
            return lambda: anyio.to_thread.run_sync(lambda: list(look()), abandon_on_cancel=True)

        add("versions", "versions", of(machine.versions))
        add("configuration", "this folder", of(lambda: findings.folder(around)))
        add("sandboxes", "sandboxes", lambda: whole.sandboxes(around, asked))
        add("models", "models", lambda: whole.models(around))
        add("MCP servers", "MCP servers", lambda: whole.servers(around))
        add("databases", "databases", lambda: services.databases(around))
        add("folders", "folders", of(machine.folders))
        add("folders", "disk", of(lambda: machine.disks(around)))
        add("leftovers", "leftovers", of(machine.leftovers))
    return Health(
        findings=tuple(finding for section in found.values() for finding in section),
        sandboxes=whole.report,
        models=whole.here,
        servers=whole.listed,
    )


class _FullReport:
    """What is told beside the findings."""

    def __init__(self) -> None:
        self.report: Report | None = None
        self.here: dict[str, Any] = {}
        self.listed: list[dict[str, Any]] = []

    async def sandboxes(self, around: CheckContext, asked: tuple[str, ...]) -> list[Finding]:
        python, said = await anyio.to_thread.run_sync(cells_python, around)
        self.report = await examine(asked, python=python, limit_s=around.limit_s)
        return [*report_findings(self.report, asked), *said, await anyio.to_thread.run_sync(warm_helper, around)]

    async def models(self, around: CheckContext) -> list[Finding]:
        found, self.here = await services.models(around)
        return found

    async def servers(self, around: CheckContext) -> list[Finding]:
        self.listed = await services.servers(around)
        return [services.server_finding(one) for one in self.listed]


async def _check_within(
    found: list[Finding], section: Section, what: str, look: Callable[[], Awaitable[list[Finding]]], limit_s: float
) -> None:
    with anyio.move_on_after(limit_s + _BEYOND_S) as patience:
        try:
            found += await look()
        except Exception as error:  # noqa: BLE001 - whatever is wrong is what was asked for
            found.append(_fault(section, what, error))
    if patience.cancelled_caught:
        cause = f"{LATE} {limit_s + _BEYOND_S:g} s"
        found.append(fault(section, what, cause, WAIT))


def _fault(section: Section, what: str, error: Exception) -> Finding:
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    if not isinstance(error, PinfoldError | OSError):
        return fault(section, what, repr(error), "please report it")
    cause, _, fix = str(error).rpartition("; ")
    return fault(section, what, cause or fix, fix if cause else "")
