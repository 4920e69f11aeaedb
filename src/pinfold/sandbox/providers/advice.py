"""From what is known about a machine to why nothing can be isolated on it, and the command that changes that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
