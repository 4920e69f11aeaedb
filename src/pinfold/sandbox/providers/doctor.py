"""Finds out what works here: starts each sandbox, lets it prove itself, and names cause and fix where it does not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeAlias, cast

import anyio
import anyio.to_thread
from msgspec import structs

from pinfold.sandbox import provider_named, provider_names
from pinfold.sandbox.contract import Capabilities, SandboxError, Session, Spec
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.levels import lacks
from pinfold.sandbox.providers.auto import Auto, Facts, advice, read_settings
from pinfold.sandbox.providers.canaries import find_holes
from pinfold.sandbox.providers.launcher import GUEST

Health: TypeAlias = Literal["proven", "unsafe", "leaky", "refused"]
"""`unsafe` claims no isolation; `leaky` claims it and something got out; `refused` does not start."""
Level: TypeAlias = Literal["full", "lite", "none"]
PROBE_S = 20.0
START_S = 120.0
UNSAFE = "unsafe-local"
LATE = "no answer within"
WAIT = "give it longer: pinfold doctor --wait 60"
_ENVIRONMENT = """
import importlib.util, json, platform, sys
names = ("numpy", "pandas", "sklearn", "matplotlib", "scipy", "pyarrow", "duckdb", "polars", "seaborn", "statsmodels",
         "openpyxl", "python_calamine", "PIL", "tabulate", "IPython", "requests", "httpx", "jinja2")
print(json.dumps({"python": platform.python_version(), "executable": sys.executable,
                  "missing": [name for name in names if importlib.util.find_spec(name) is None]}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCheck:
    """One sandbox."""

    name: str
    status: Health
    level: Level = "none"
    """What was proven, not what is claimed."""
    first_result_ms: float | None = None
    """From asking for a session to the result of its first cell, everything started anew."""
    memory: str | None = None
    """What keeps a session within its memory."""
    environment: Mapping[str, object] = field(default_factory=dict[str, object])
    lacks: tuple[tuple[str, str], ...] = ()
    """What it has otherwise than the strongest level, and how."""
    cause: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    sandboxes: tuple[SandboxCheck, ...]
    kernel: Mapping[str, object]
    auto: str | None = None
    """The sandbox that `auto` takes here; looked for only where every sandbox is."""

    @property
    def ok(self) -> bool:
        """Whether code can be run isolated."""
        return any(checked.status == "proven" for checked in self.sandboxes)


async def examine(names: Iterable[str] = (), *, python: Path | None = None, limit_s: float = START_S) -> Report:
    """These sandboxes, or every one there is but the one that isolates nothing; side by side, each for so long at most.

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
                # `auto` goes by the name of what it took, once it has.
                return replace(checked, lacks=tuple(lacks(provider.name)))
            finally:
                await session.close()
    except (SandboxError, OSError) as error:  # a timeout is one
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
    outcome = await session.run(_ENVIRONMENT, timeout_s=20)
    try:
        return cast("dict[str, object]", json.loads(outcome.stdout))
    except ValueError:
        return {}


def gather_facts() -> Facts:
    """What is known about this machine without starting a sandbox."""
    features: dict[str, object] = {}
    if sys.platform == "linux":
        program = [sys.executable, "-I", str(GUEST / "__main__.py"), "probe"]
        try:
            done = subprocess.run(program, capture_output=True, timeout=PROBE_S, check=True, cwd="/")
            features = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            features = {"probe": f"failed: {error}"}
    return structs.replace(read_settings(), features=features)
