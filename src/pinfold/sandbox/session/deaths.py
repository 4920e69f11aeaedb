"""How a request to a guest ends: with its reply, or with the guest."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TypeAlias

from pinfold.sandbox.session.channel import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The process is gone."""

    how: str
    """For the user: "it exited with code 3", "it was killed by SIGSEGV"."""
    ours: bool = False
    """We killed it, and `how` is our reason."""
    cells: tuple[int, ...] = ()
    """The session lives on, and can go back to the states after these."""


End: TypeAlias = Reply | Death


def how_it_died(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"
