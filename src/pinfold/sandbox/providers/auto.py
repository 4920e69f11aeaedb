"""Provider `auto`: the strongest isolation proven on this machine, chosen when first needed. Never no isolation."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from pinfold.events import Json
from pinfold.sandbox.contract import Capabilities, Provider, SandboxUnavailable, Session, Spec


class Probed(Provider, Protocol):
    async def probe(self, spec: Spec | None = None) -> None:
        """Start the provider and prove that it works here. Raises SandboxUnavailable.

        `spec`: that of the session to be opened next; the provider may prepare for it meanwhile.
        """


class Auto:
    """Chooses `namespaces`, or `landlock` with a notice if namespaces are refused, or raises."""

    def __init__(self, *levels: Callable[[], Probed]) -> None:
        """`levels`: factories, strongest first; each is called only if the ones before it fail."""
        self._levels = levels
        self._chosen: Probed | None = None
        self._refusals: list[str] = []

    @property
    def name(self) -> str:
        return self._chosen.name if self._chosen else "auto"

    @property
    def capabilities(self) -> Capabilities:
        """Those of the chosen level; before `resolve`, what every level has."""
        if self._chosen:
            return self._chosen.capabilities
        return Capabilities(isolated=True, site=True, commands=True, read_only_commands=True)

    @property
    def notice(self) -> str | None:
        """After `resolve`: why full isolation is refused, how to change that, and what the chosen level lacks."""
        if self._chosen is None or not self._refusals:
            return self._chosen.notice if self._chosen else None
        why = cause_and_fix() or self._refusals[0]
        lower = self._chosen.notice or ""
        return f"Full isolation is refused here: {why}. Going on with {self._chosen.name}. {lower}".rstrip()

    async def resolve(self, spec: Spec | None = None) -> Provider:
        """Choose a level, with `spec` for its first session. Raises SandboxUnavailable, naming every cause."""
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"no isolation is available on {sys.platform}; to run code without any, ask for `unsafe-local` by name"
            )
        if self._chosen is not None:
            return self._chosen
        refusals: list[str] = []
        for make in self._levels:
            try:
                level = make()
                await level.probe(spec)
            except SandboxUnavailable as refused:
                refusals.append(str(refused))
            else:
                self._refusals = refusals
                self._chosen = level
                return level
        words = "; and ".join([*refusals, *filter(None, [cause_and_fix()])])
        raise SandboxUnavailable(f"no isolation is available here: {words}")

    async def open(self, spec: Spec) -> Session:
        level = await self.resolve(spec)
        return await level.open(spec)


def cause_and_fix() -> str:
    """Return why user namespaces do not work here, and how to change that; empty if no fix is known."""
    cause, fix = _explain_refusal(read_settings())
    return f"{cause}; to change that: {fix}" if fix else ""


NEWEST_NEEDED = (5, 12)
"""The first kernel with `mount_setattr`."""
_MANY = 28633
"""The kernel's own default on a machine of about 8 GB."""
_RUN = {
    "docker": "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined ...",
    "podman": "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL ...",
    "kubernetes": "in the container's securityContext: seccompProfile: {type: Unconfined}, procMount: Unmasked (with hostUsers: false)",
}


class Facts(Struct, frozen=True, kw_only=True):
    """Settings and features of this system. None means that the setting does not exist."""

    system: str = "linux"
    release: str = ""
    is_root: bool = False
    max_user_namespaces: int | None = None
    unprivileged_userns_clone: int | None = None
    apparmor_restricts: int | None = None
    filtered: bool = False
    """True if this process runs under a system call filter."""
    container: str | None = None
    features: dict[str, Json] = {}
    """Results of `guest/startup/probe.py`: an empty string if a feature works, else the name of the error."""

    @property
    def memory(self) -> str:
        version = self.features.get("cgroup", {}).get("memory")
        return f"control group, version {version}" if version else "watched by the session's init"

    def works(self, feature: str) -> bool:
        return self.features.get(feature) == ""

    def as_dict(self) -> dict[str, object]:
        """Return a dictionary for display and JSON; its keys are stable."""
        return {
            "system": self.system,
            "release": self.release,
            "root": self.is_root,
            "container": self.container,
            "filtered": self.filtered,
            "landlock_abi": self.features.get("landlock_abi", 0),
            **{name: self.works(name) for name in ("user_namespaces", "mounts", "seccomp", "idmapped_mounts", "views")},
            "cgroup": self.features.get("cgroup", {}),
            "memory": self.memory,
            "max_user_namespaces": self.max_user_namespaces,
            "unprivileged_userns_clone": self.unprivileged_userns_clone,
            "apparmor_restrict_unprivileged_userns": self.apparmor_restricts,
        }


def advice(facts: Facts) -> tuple[str | None, str | None]:
    """Return the likeliest cause and what to type to fix it; None if unknown."""
    if facts.system != "linux":
        return f"{facts.system} has no namespaces", "run Pinfold on Linux, or in a Linux virtual machine"
    if _version(facts.release) < NEWEST_NEEDED:
        return (
            f"Linux {facts.release} is too old",
            f"install a kernel of {'.'.join(map(str, NEWEST_NEEDED))} or newer",
        )
    if not facts.works("user_namespaces") or not facts.works("mounts"):
        return _explain_refusal(facts)
    if not facts.works("seccomp"):
        return "system call filters are refused", "use a kernel built with CONFIG_SECCOMP_FILTER=y"
    if facts.container is not None:
        return "the container may not mount /proc afresh", _RUN[facts.container]
    return None, None


def _explain_refusal(facts: Facts) -> tuple[str, str | None]:
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


def read_settings() -> Facts:
    """Read the system's settings, without trying any feature."""
    return Facts(
        system=sys.platform,
        release=os.uname().release,
        is_root=os.geteuid() == 0,
        max_user_namespaces=_setting("user/max_user_namespaces"),
        unprivileged_userns_clone=_setting("kernel/unprivileged_userns_clone"),
        apparmor_restricts=_setting("kernel/apparmor_restrict_unprivileged_userns"),
        filtered="Seccomp:\t2" in _read_text("/proc/self/status").splitlines(),
        container=_container(),
    )


def _setting(name: str) -> int | None:
    try:
        return int(_read_text(f"/proc/sys/{name}"))
    except ValueError:
        return None


def _container() -> Literal["docker", "podman", "kubernetes"] | None:
    if "KUBERNETES_SERVICE_HOST" in os.environ or "kubepods" in _read_text("/proc/1/cgroup"):
        return "kubernetes"
    if Path("/run/.containerenv").exists():
        return "podman"
    return "docker" if Path("/.dockerenv").exists() else None


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
