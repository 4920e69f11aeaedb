"""The checks of `pinfold doctor`, run concurrently with time limits.

Models, MCP servers and databases are checked here, this machine in `machine.py`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import msgspec

from pinfold.app.config.databases import ConfiguredDatabases
from pinfold.app.diagnostics import machine
from pinfold.app.diagnostics.machine import CheckContext, Finding, Section, explained_fault, fault, note
from pinfold.app.errors import ConfigError
from pinfold.app.models.local_models import Reachable, reachable_models
from pinfold.app.models.session_models import BreakerStore, CallOptions
from pinfold.app.paths import config_dir, current_folder
from pinfold.app.trust.project_files import SERVERS
from pinfold.events import PinfoldError
from pinfold.model import NoKey
from pinfold.model.chain import check_reachable
from pinfold.sandbox.providers.doctor import LATE, WAIT, Report, examine
from pinfold.text import join_names


async def check_models(context: CheckContext) -> tuple[list[Finding], dict[str, object]]:
    """Check the configured models. Also return, as plain data, which models exist here."""
    there: Reachable | None = None
    given = context.config.models
    roles = [("model", context.config.model.name), *(("fallback", name) for name in given.fallback)]
    named = [(role, name) for role, name in (*roles, ("escalate", given.escalate)) if name]
    found: dict[tuple[str, str], Finding] = {}

    async def ask(role: str, name: str) -> None:
        found[role, name] = await _check_model(context, role, name)

    async with anyio.create_task_group() as tasks:
        for role, name in named:
            tasks.start_soon(ask, role, name)
        there = await reachable_models()
    assert there is not None
    local = _find_local_models(there, any_named=bool(named))
    return [*(found[one] for one in named), *local, *_find_paused_models()], _plain(there)


async def _check_model(context: CheckContext, role: str, name: str) -> Finding:
    what = name if role == "model" else f"{name} ({role})"
    access = CallOptions.of(context.config, context.loaded.keys()).access()
    try:
        with anyio.fail_after(context.limit_s):
            words = await check_reachable(name, access, limit_s=context.limit_s)
    except TimeoutError:
        return fault(what, f"{LATE} {context.limit_s:g} s", WAIT)
    except NoKey as error:
        cause, _, fix = str(error).partition(": ")
        return fault(what, cause, fix)
    except PinfoldError as error:
        return explained_fault(what, error, "choose another: pinfold config set model.name NAME")
    return Finding(what, words=words)


def _find_local_models(there: Reachable, *, any_named: bool) -> list[Finding]:
    found = [
        Finding(inside.weights.name, words="is here, and runs inside Pinfold") for inside in there.inside if inside.path
    ]
    for server in there.servers:
        has = join_names([model.id for model in server.models], 3) or "no model"
        if server.needs_key:
            has = "needs a key"
        found.append(Finding(server.kind, words=f"answers at {server.base_url}: {has}"))
    found += [
        Finding(key.provider, words=f"{key.variable} is set; the provider is not contacted") for key in there.keys
    ]
    if found or any_named:
        return found
    cause = "none is configured, none runs here, and no provider's key is set"
    fix = "pinfold model pull builtin; or start Ollama; or set a key such as OPENAI_API_KEY"
    return [note("no model", cause, fix)]


def _find_paused_models() -> list[Finding]:
    paused = "it kept failing, and was paused {:.0f} s ago"
    fix, now = "it is tried again by itself; or choose another with --model", time.time()
    return [note(what, paused.format(max(0, now - at)), fix) for what, at in BreakerStore().all().items()]


def _plain(there: Reachable) -> dict[str, object]:
    return {
        "builtin": [inside.weights.name for inside in there.inside if inside.path],
        "servers": [
            {"kind": found.kind, "url": found.base_url, "models": [model.id for model in found.models]}
            for found in there.servers
        ],
        "keys": [key.variable for key in there.keys],
    }


async def check_servers(context: CheckContext) -> list[dict[str, object]]:
    """Check each MCP server of the user and this folder: whether it starts, and if not, why and what to do."""
    if not (config_dir() / "mcp.json").exists() and SERVERS not in context.loaded.obeyed:
        return []
    from pinfold.app.session.mcp.inspection import check_servers

    return await check_servers(context.workspace, context.limit_s)


def server_finding(one: dict[str, object]) -> Finding:
    name, cause, fix = (str(one[key]) for key in ("name", "cause", "fix"))
    name, words = name or "an entry", f"{one['where']}; {one['tools']} tools"
    if cause:
        return fault(name, cause, fix)
    if fix:
        cause, _, fix = fix.partition(": ")
        return note(name, f"{words}; {cause}", fix)
    return Finding(name, words=words)


async def check_databases(context: CheckContext) -> list[Finding]:
    """Connect to each `[data.NAME]` and list its tables."""
    if not context.config.data:
        return []
    configured = ConfiguredDatabases(context.config.data, (), _do_nothing)
    found: dict[str, Finding] = {}

    async def ask(name: str, kind: str) -> None:
        try:
            with anyio.fail_after(context.limit_s):
                answered = await configured.workers.ask(await configured.source(name), None)
            found[name] = Finding(name, words=f"{kind}; {len(answered.value)} tables")
        except TimeoutError:
            found[name] = fault(name, f"{LATE} {context.limit_s:g} s", WAIT)
        except PinfoldError as error:
            cause = f"{context.config.data[name].rows()['url']}: {error}"
            found[name] = fault(name, cause, f"is it right? pinfold config set data.{name}.url URL")

    try:
        async with anyio.create_task_group() as tasks:
            for name, kind in configured.names.items():
                tasks.start_soon(ask, name, kind)
    finally:
        with anyio.CancelScope(shield=True):
            await configured.close()
    return [found[name] for name in configured.names]


async def _do_nothing() -> None:
    """There is no session whose code could read private data."""


LIMIT_S = 8.0
"""Time limit for each thing that is started or asked."""
_BEYOND_S = 5.0
"""Additional time for a section, to end what it started."""


class Health(msgspec.Struct, kw_only=True):
    findings: Mapping[Section, Sequence[Finding]]
    sandboxes: Report | None = None
    models: dict[str, object] = {}
    servers: list[dict[str, object]] = []

    @property
    def ok(self) -> bool:
        """True if no check found a fault."""
        return all(one.standing != "fault" for section in self.findings.values() for one in section)

    def plain(self) -> dict[str, object]:
        """Return plain data with stable keys, for `pinfold doctor --json`."""
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
    """Check this installation and folder. With names, only these sandboxes are tested, else all that isolate."""
    asked = tuple(names)
    try:
        workspace = current_folder()
    except ConfigError:
        workspace = Path("/")
    loaded, said = machine.configuration(workspace)
    context = CheckContext(workspace=workspace, loaded=loaded, limit_s=limit_s)
    found: dict[Section, list[Finding]] = {"versions": [], "configuration": list(said)}
    health = Health(findings=found)

    async def sandboxes() -> list[Finding]:
        python, said = await anyio.to_thread.run_sync(machine.cells_python, context)
        health.sandboxes = report = await examine(asked, python=python, limit_s=limit_s)
        helper = await anyio.to_thread.run_sync(machine.warm_helper, context)
        return [*machine.report_findings(report, asked), *said, helper]

    async def models() -> list[Finding]:
        models, health.models = await check_models(context)
        return models

    async def servers() -> list[Finding]:
        health.servers = await check_servers(context)
        return [server_finding(one) for one in health.servers]

    async with anyio.create_task_group() as tasks:

        def add(section: Section, what: str, look: Callable[[], Awaitable[list[Finding]]]) -> None:
            tasks.start_soon(_check_within, found.setdefault(section, []), what, look, limit_s)

        def of(look: Callable[[], Iterator[Finding]]) -> Callable[[], Awaitable[list[Finding]]]:
            return lambda: anyio.to_thread.run_sync(lambda: list(look()), abandon_on_cancel=True)

        add("versions", "versions", of(machine.versions))
        add("configuration", "this folder", of(lambda: machine.folder(context)))
        add("sandboxes", "sandboxes", sandboxes)
        add("models", "models", models)
        add("MCP servers", "MCP servers", servers)
        add("databases", "databases", lambda: check_databases(context))
        add("folders", "folders", of(machine.folders))
        add("folders", "disk", of(lambda: machine.disks(context)))
        add("leftovers", "leftovers", of(machine.leftovers))
    health.findings = {section: some for section, some in found.items() if some}
    return health


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
