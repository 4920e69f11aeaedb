"""How well Pinfold can work here: what `pinfold doctor` asks for. Everything is looked at side by side, and not for long."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import msgspec

from pinfold.app.diagnostics import findings, machine, services
from pinfold.app.diagnostics.findings import CheckContext, Finding, Section, explained_fault, fault
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
    findings: Mapping[Section, Sequence[Finding]]
    sandboxes: Report | None = None
    models: dict[str, object] = {}
    servers: list[dict[str, object]] = []

    @property
    def ok(self) -> bool:
        """Nothing that is wanted does not work."""
        return all(one.standing != "fault" for section in self.findings.values() for one in section)

    def plain(self) -> dict[str, object]:
        """With stable keys; see `pinfold doctor --json`."""
        report = self.sandboxes
        return {
            "ok": self.ok,
            "checks": [
                {"section": section, **msgspec.to_builtins(one)}
                for section, found in self.findings.items()
                for one in found
            ],
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
    report: Report | None = None
    here: dict[str, object] = {}
    listed: list[dict[str, object]] = []

    async def sandboxes() -> list[Finding]:
        nonlocal report
        python, said = await anyio.to_thread.run_sync(machine.cells_python, around)
        report = await examine(asked, python=python, limit_s=limit_s)
        helper = await anyio.to_thread.run_sync(machine.warm_helper, around)
        return [*machine.report_findings(report, asked), *said, helper]

    async def models() -> list[Finding]:
        nonlocal here
        models, here = await services.models(around)
        return models

    async def servers() -> list[Finding]:
        nonlocal listed
        listed = await services.servers(around)
        return [services.server_finding(one) for one in listed]

    async with anyio.create_task_group() as tasks:

        def add(section: Section, what: str, look: Callable[[], Awaitable[list[Finding]]]) -> None:
            tasks.start_soon(_check_within, found.setdefault(section, []), what, look, limit_s)

        def of(look: Callable[[], Iterator[Finding]]) -> Callable[[], Awaitable[list[Finding]]]:
            return lambda: anyio.to_thread.run_sync(lambda: list(look()), abandon_on_cancel=True)

        add("versions", "versions", of(machine.versions))
        add("configuration", "this folder", of(lambda: findings.folder(around)))
        add("sandboxes", "sandboxes", sandboxes)
        add("models", "models", models)
        add("MCP servers", "MCP servers", servers)
        add("databases", "databases", lambda: services.databases(around))
        add("folders", "folders", of(machine.folders))
        add("folders", "disk", of(lambda: machine.disks(around)))
        add("leftovers", "leftovers", of(machine.leftovers))
    there: dict[Section, list[Finding]] = {section: some for section, some in found.items() if some}
    return Health(findings=there, sandboxes=report, models=here, servers=listed)


async def _check_within(
    found: list[Finding], what: str, look: Callable[[], Awaitable[list[Finding]]], limit_s: float
) -> None:
    with anyio.move_on_after(limit_s + _BEYOND_S) as patience:
        try:
            found += await look()
        except Exception as error:  # noqa: BLE001 - whatever is wrong is what was asked for
            found.append(_fault(what, error))
    if patience.cancelled_caught:
        found.append(fault(what, f"{LATE} {limit_s + _BEYOND_S:g} s", WAIT))


def _fault(what: str, error: Exception) -> Finding:
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    if isinstance(error, PinfoldError | OSError):
        return explained_fault(what, error)
    return fault(what, repr(error), "please report it")
