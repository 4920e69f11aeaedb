"""What declared tools run by; what is missing is said when it is called for."""

from __future__ import annotations

from dataclasses import dataclass

from pinfold.tools.ports import Inside, Secrets, Web


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    inside: Inside | None = None
    web: Web | None = None
    secrets: Secrets | None = None
