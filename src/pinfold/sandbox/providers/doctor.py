"""Checks what works here: starts each sandbox, proves its isolation, and names cause and fix of a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeAlias, cast

import anyio
import anyio.to_thread
from msgspec import structs

from pinfold.sandbox import provider_named, provider_names
from pinfold.sandbox.contract import DATASETS, SERVERS, Capabilities, SandboxError, Session, Spec
from pinfold.sandbox.environment import modules
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.providers.auto import Auto, Facts, advice, read_settings
from pinfold.sandbox.providers.canaries import find_holes
from pinfold.sandbox.providers.launcher import GUEST

Health: TypeAlias = Literal["proven", "unsafe", "leaky", "refused"]
"""`unsafe`: claims no isolation. `leaky`: claims it, but an attempt to break out worked. `refused`: does not start."""
Level: TypeAlias = Literal["full", "lite", "none"]
PROBE_S = 20.0
START_S = 120.0
UNSAFE = "unsafe-local"
LATE = "no answer within"
WAIT = "give it longer: pinfold doctor --wait 60"
_ENVIRONMENT = """
import importlib.util, json, platform, sys
print(json.dumps({{"python": platform.python_version(), "executable": sys.executable,
                  "missing": [name for name in {names!r} if importlib.util.find_spec(name) is None]}}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCheck:
    """The result of checking one sandbox."""

    name: str
    status: Health
    level: Level = "none"
    """The proven level, not the claimed one."""
    first_result_ms: float | None = None
    """From opening a session to the result of its first cell, with nothing running before."""
    memory: str | None = None
    """The mechanism that limits a session's memory."""
    environment: Mapping[str, object] = field(default_factory=dict[str, object])
    lacks: tuple[tuple[str, str], ...] = ()
    """Properties in which it differs from the strongest level, and how."""
    cause: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    sandboxes: tuple[SandboxCheck, ...]
    kernel: Mapping[str, object]
    auto: str | None = None
    """The sandbox that `auto` chooses here; found only when all sandboxes are checked."""

    @property
    def ok(self) -> bool:
        """True if code can be run in isolation."""
        return any(checked.status == "proven" for checked in self.sandboxes)


async def examine(names: Iterable[str] = (), *, python: Path | None = None, limit_s: float = START_S) -> Report:
    """Check these sandboxes, or all that isolate anything, in parallel, each for at most `limit_s`.

    `python` runs the cells.
    """
    facts = await anyio.to_thread.run_sync(gather_facts)
    asked = tuple(names)
    chosen = asked or tuple(name for name in provider_names() if name not in (UNSAFE, "auto"))
    found: dict[str, SandboxCheck] = {}
    auto: str | None = None

    async def check(name: str) -> None:
        found[name] = await _check_sandbox(name, facts, python, limit_s)

    async def resolve() -> None:
        nonlocal auto
        level = provider_named("auto")
        assert isinstance(level, Auto)
        with suppress(SandboxError, OSError), anyio.fail_after(limit_s):
            auto = (await level.resolve()).name

    async with anyio.create_task_group() as tasks:
        for name in chosen:
            tasks.start_soon(check, name)
        if not asked:
            tasks.start_soon(resolve)
    return Report(sandboxes=tuple(found[name] for name in chosen), kernel=facts.as_dict(), auto=auto)


async def _check_sandbox(name: str, facts: Facts, python: Path | None, limit_s: float) -> SandboxCheck:
    try:
        provider = provider_named(name, python=python)
        with folder("workspace") as place, anyio.fail_after(limit_s):
            began = perf_counter()
            session = await provider.open(Spec(workspace=place))
            try:
                await session.run("40 + 2")
                took_ms = (perf_counter() - began) * 1000
                checked = await _prove(name, provider.capabilities, session, took_ms, facts)
                # By now `auto` has the name of the level it chose.
                return replace(checked, lacks=tuple(lacks(provider.name)))
            finally:
                await session.close()
    except (SandboxError, OSError) as error:  # includes TimeoutError
        if isinstance(error, TimeoutError):
            return SandboxCheck(name=name, status="refused", cause=f"{LATE} {limit_s:g} s", fix=WAIT)
        cause, fix = advice(facts) if name != "landlock" else (None, None)
        words = str(error)
        return SandboxCheck(name=name, status="refused", cause=f"{words} ({cause})" if cause else words, fix=fix)
    except Exception as error:  # noqa: BLE001 - a provider of someone else's may fail in any way
        return SandboxCheck(name=name, status="refused", cause=f"it failed: {error!r}")


async def _prove(name: str, can: Capabilities, session: Session, took_ms: float, facts: Facts) -> SandboxCheck:
    found = await find_holes(session) if can.isolated else []
    status: Health = "leaky" if found else "proven" if can.isolated else "unsafe"
    level: Level = "none" if status != "proven" else "full" if can.mounts else "lite"
    return SandboxCheck(
        name=name,
        status=status,
        level=level,
        first_result_ms=round(took_ms, 1),
        memory=facts.memory if can.isolated and not can.remote else None,
        environment=await _environment(session),
        cause=f"a session here {', '.join(found)}" if found else None,
        fix="do not use it; please report it" if found else None,
    )


async def _environment(session: Session) -> Mapping[str, object]:
    outcome = await session.run(_ENVIRONMENT.format(names=sorted(modules(()))), timeout_s=20)
    try:
        return cast("dict[str, object]", json.loads(outcome.stdout))
    except ValueError:
        return {}


def gather_facts() -> Facts:
    """Return what can be found out about this machine without starting a sandbox."""
    features: dict[str, object] = {}
    if sys.platform == "linux":
        program = [sys.executable, "-I", str(GUEST / "__main__.py"), "probe"]
        try:
            done = subprocess.run(program, capture_output=True, timeout=PROBE_S, check=True, cwd="/")
            features = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            features = {"probe": f"failed: {error}"}
    return structs.replace(read_settings(), features=features)


# What each level of isolation cannot do, as a table

LEVELS: tuple[str, ...] = ("namespaces", "landlock", "unsafe-local")
"""Strongest first."""


_FACTS: dict[str, tuple[str, str, str]] = {
    "whose rights code has": (
        "never as root",
        "as the workspace's owner; where that is root, as root without its powers",
        "as you",
    ),
    "secrets in the workspace": (
        "read as empty",
        "the workspace is refused, or they can be read (`--allow-unmasked`)",
        "can be read",
    ),
    "files that steer the agent or git": (
        "read-only; what a cell makes anew is removed after it",
        "put back after each cell, with a notice; a folder with Pinfold's own installation is refused",
        "can be written to",
    ),
    "the host's processes": (
        "its own only",
        "no signal, no look inside; that they exist can be found out",
        "all of yours",
    ),
    "names of the host's files": (
        "unseen",
        "a path that is guessed can be checked for existence, size and times",
        "all of yours",
    ),
    "memory is bounded": ("of the session as a whole", "of the session as a whole", "not bounded"),
    "processes are bounded": (
        "of the session",
        "of the user as a whole; root's are counted four times a second",
        "not bounded",
    ),
    "`multiprocessing`": ("yes", "processes and pipes; no locks, queues or pools", "yes"),
    "shared memory": ("its own", "none", "the machine's"),
    "needs": (
        "user namespaces",
        "Landlock (Linux 5.13); before 6.12 the session's init is asked about every signal",
        "nothing",
    ),
}
"""What Capabilities do not express, in the order of LEVELS."""


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _data(has: Capabilities) -> str:
    if has.mounts:
        return f"at {DATASETS}/NAME"
    return "read-only, at its own path" if has.isolated else "no"


_CLAIMS: dict[str, Callable[[Capabilities], str]] = {
    "files and processes outside are closed": lambda has: _yes(has.isolated),
    "no network outside": lambda has: _yes(has.isolated),
    "sockets of its own (a local web server)": lambda has: _yes(has.sockets),
    "data given with `--data`": _data,
    "tools as files to read": lambda has: f"in {SERVERS}" if has.mounts else "no",
    "paths given with `--mount`": lambda has: "at their own path" if has.isolated and not has.remote else "no",
    "packages installed for one session": lambda has: _yes(has.site),
    "mode `read-only`": lambda has: _yes(has.isolated),
    "branches of live data, undo in milliseconds": lambda has: _yes(has.fork),
    "variables after a restart": lambda has: _yes(has.durable),
    "a branch's own view of the files": lambda has: _yes(has.files_view),
}


def level_rows() -> dict[str, dict[str, str]]:
    """Return each property, and per built-in level whether it holds: `yes`, `no`, or words."""
    has = {name: provider_named(name).capabilities for name in LEVELS}
    claims = {what: {name: says(can) for name, can in has.items()} for what, says in _CLAIMS.items()}
    return claims | {what: dict(zip(has, words, strict=True)) for what, words in _FACTS.items()}


def lacks(name: str) -> list[tuple[str, str]]:
    """Return the properties in which a level differs from the strongest, and how; empty for other names."""
    if name not in LEVELS:
        return []
    return [(what, holds[name]) for what, holds in level_rows().items() if holds[name] != holds[LEVELS[0]]]


def level_table() -> str:
    """Return the rows as a Markdown table."""
    lines = [["", *(f"`{name}`" for name in LEVELS)], ["---"] * (len(LEVELS) + 1)]
    lines += [[what, *holds.values()] for what, holds in level_rows().items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
