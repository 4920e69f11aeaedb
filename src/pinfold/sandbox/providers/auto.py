"""Provider `auto`: the strongest isolation this machine proves, found when first needed. Never none at all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pinfold.sandbox.contract import Capabilities, Provider, SandboxUnavailable, Session, Spec


class Probed(Provider, Protocol):
    async def probe(self, spec: Spec | None = None) -> None:
        """Start it and have it tried; then it is known to work here. Raises SandboxUnavailable.

        `spec`: of the session that `open` is asked for next: what it needs may be found out meanwhile.
        """
        ...


class Auto:
    """`namespaces`, or `landlock` with a notice where they are refused, or refused."""

    def __init__(self, *levels: Callable[[], Probed]) -> None:
        """`levels` from the strongest down; made only when their turn comes."""
        self._levels = levels
        self._chosen: Probed | None = None
        self._refusals: list[str] = []

    @property
    def name(self) -> str:
        return self._chosen.name if self._chosen else "auto"

    @property
    def capabilities(self) -> Capabilities:
        """Until it is resolved, what every level has."""
        return (
            self._chosen.capabilities
            if self._chosen
            else Capabilities(isolated=True, site=True, commands=True, read_only_commands=True)
        )

    @property
    def notice(self) -> str | None:
        """Known once it is resolved: why it went down, how to go up again, and what the level lacks."""
        if self._chosen is None or not self._refusals:
            return self._chosen.notice if self._chosen else None
        why = cause_and_fix() or self._refusals[0]
        lower = self._chosen.notice or ""
        return f"Full isolation is refused here: {why}. Going on with {self._chosen.name}. {lower}".rstrip()

    async def resolve(self, spec: Spec | None = None) -> Provider:
        """Settle which one it is, for this session first. Raises SandboxUnavailable, naming every cause."""
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


_SETTINGS = {
    "/proc/sys/user/max_user_namespaces": ("0", "sudo sysctl user.max_user_namespaces=15000"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
}
_IN_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"))


def cause_and_fix() -> str:
    """What keeps user namespaces from working here and the command that changes it; empty if it cannot be seen."""
    for path, (refuses, command) in _SETTINGS.items():
        if _content(path) == refuses:
            name = path.removeprefix("/proc/sys/").replace("/", ".")
            return f"the setting {name} is {refuses}: `{command}` allows user namespaces"
    if any(mark.exists() for mark in _IN_CONTAINER) or _content("/proc/1/cgroup").find("kubepods") >= 0:
        flags = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        return f"this container's profile refuses them: `docker run {flags} ...` allows user namespaces"
    return ""


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
