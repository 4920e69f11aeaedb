"""Finds out what works here: starts each sandbox, lets it prove itself, and names cause and fix where it does not."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeAlias, cast

import anyio
import anyio.to_thread

from pinfold.sandbox import provider_named, provider_names
from pinfold.sandbox.contract import Capabilities, SandboxError, Session, Spec
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.levels import lacks
from pinfold.sandbox.providers.auto import Auto
from pinfold.sandbox.providers.canaries import find_holes
from pinfold.sandbox.providers.launcher import GUEST

NEWEST_NEEDED = (5, 12)
"""`mount_setattr` came with this kernel."""
_MANY = 28633
"""What the kernel would set itself on a machine of 8 GB or so."""
_RUN = {
    "docker": "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined ...",
    "podman": "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL ...",
    "kubernetes": "in the container's securityContext: seccompProfile: {type: Unconfined}, procMount: Unmasked (with hostUsers: false)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """None: there is no such setting here."""

    system: str = "linux"
    release: str = ""
    is_root: bool = False
    max_user_namespaces: int | None = None
    unprivileged_userns_clone: int | None = None
    apparmor_restricts: int | None = None
    filtered: bool = False
    """This very process runs under a system call filter."""
    container: str | None = None
    features: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """As `guest/startup/probe.py` found them: an empty text where something works, else the error's name."""

    @property
    def memory(self) -> str:
        version = self.features.get("cgroup", {}).get("memory")
        return f"control group, version {version}" if version else "watched by the session's init"

    def works(self, feature: str) -> bool:
        return self.features.get(feature) == ""

    def as_dict(self) -> dict[str, object]:
        """For people and programs; the keys are stable."""
        return {
            "system": self.system,
            "release": self.release,
            "root": self.is_root,
            "container": self.container,
            "filtered": self.filtered,
            "landlock_abi": self.features.get("landlock_abi", 0),
            "user_namespaces": self.works("user_namespaces"),
            "mounts": self.works("mounts"),
            "seccomp": self.works("seccomp"),
            "idmapped_mounts": self.works("idmapped_mounts"),
            "views": self.works("views"),
            "cgroup": self.features.get("cgroup", {}),
            "memory": self.memory,
            "max_user_namespaces": self.max_user_namespaces,
            "unprivileged_userns_clone": self.unprivileged_userns_clone,
            "apparmor_restrict_unprivileged_userns": self.apparmor_restricts,
        }


def advice(facts: Facts) -> tuple[str | None, str | None]:
    """The likeliest cause and what to type; None where nothing is known to be wrong."""
    if facts.system != "linux":
        return f"{facts.system} has no namespaces", "run Pinfold on Linux, or in a Linux virtual machine"
    if _version(facts.release) < NEWEST_NEEDED:
        return (
            f"Linux {facts.release} is too old",
            f"install a kernel of {'.'.join(map(str, NEWEST_NEEDED))} or newer",
        )
    if not facts.works("user_namespaces") or not facts.works("mounts"):
        return _namespaces(facts)
    if not facts.works("seccomp"):
        return "system call filters are refused", "use a kernel built with CONFIG_SECCOMP_FILTER=y"
    if facts.container is not None:
        return "the container may not mount /proc afresh", _RUN[facts.container]
    return None, None


def _namespaces(facts: Facts) -> tuple[str, str | None]:
    if facts.max_user_namespaces == 0:
        return "user.max_user_namespaces is 0", f"sudo sysctl -w user.max_user_namespaces={_MANY}"
    if not facts.is_root and facts.unprivileged_userns_clone == 0:
        return ("kernel.unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1")
    if facts.container is not None:
        return f"{facts.container} refuses namespaces to what runs in it", _RUN[facts.container]
    if not facts.is_root and facts.apparmor_restricts == 1:
        return (
            "AppArmor takes away the rights inside user namespaces",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    if facts.filtered:
        return (
            "a system call filter around this process refuses namespaces",
            "start Pinfold outside of it, e.g. not under a service with RestrictNamespaces=",
        )
    said = facts.features.get("user_namespaces") or facts.features.get("mounts") or "no reason given"
    return f"the kernel refuses namespaces: {said}", None


def _version(release: str) -> tuple[int, ...]:
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return tuple(map(int, numbers.groups())) if numbers else NEWEST_NEEDED


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
        auto = await _auto(limit_s)

    async with anyio.create_task_group() as tasks:
        for name in chosen:
            tasks.start_soon(check, name)
        if not asked:
            tasks.start_soon(resolve)
    return Report(sandboxes=tuple(found[name] for name in chosen), kernel=facts.as_dict(), auto=auto)


async def _auto(limit_s: float) -> str | None:
    auto = provider_named("auto")
    assert isinstance(auto, Auto)
    try:
        with anyio.fail_after(limit_s):
            return (await auto.resolve()).name
    except (SandboxError, OSError):
        return None


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
    """What there is to know about this machine without starting a sandbox."""
    features: dict[str, object] = {}
    if sys.platform == "linux":
        program = [sys.executable, "-I", str(GUEST / "__main__.py"), "probe"]
        try:
            done = subprocess.run(program, capture_output=True, timeout=PROBE_S, check=True, cwd="/")
            features = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            features = {"probe": f"failed: {error}"}
    return Facts(
        system=sys.platform,
        release=platform.release(),
        is_root=os.geteuid() == 0,
        max_user_namespaces=_setting("user/max_user_namespaces"),
        unprivileged_userns_clone=_setting("kernel/unprivileged_userns_clone"),
        apparmor_restricts=_setting("kernel/apparmor_restrict_unprivileged_userns"),
        filtered=_is_filtered(),
        container=_container(),
        features=features,
    )


def _setting(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_filtered() -> bool:
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return "Seccomp:\t2" in lines


def _container() -> Literal["docker", "podman", "kubernetes"] | None:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if Path("/run/.containerenv").exists():
        return "podman"
    return "docker" if Path("/.dockerenv").exists() else None
