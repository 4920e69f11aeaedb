"""How well Pinfold can work here: what `pinfold doctor` asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pinfold.app.models import Pauses
from pinfold.sandbox.doctor import examined


async def checkup(names: Iterable[str] = ()) -> dict[str, Any]:
    """One object with stable keys; see `pinfold doctor --json`."""
    report = await examined(names)
    return {
        "ok": report.ok,
        "sandboxes": [msgspec.to_builtins(checked) for checked in report.sandboxes],
        "auto": report.auto,
        "kernel": dict(report.kernel),
        "models": [],
        "paused": Pauses().all(),
    }
