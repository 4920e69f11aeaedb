"""How well Pinfold can work here: what `pinfold doctor` asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pinfold.app.local_models import reachable_models
from pinfold.app.models import Pauses
from pinfold.app.obeyed import SERVERS
from pinfold.app.paths import config_dir, current_folder
from pinfold.sandbox.doctor import examined


async def _models() -> dict[str, Any]:
    there = await reachable_models()
    return {
        "builtin": [inside.weights.name for inside in there.inside if inside.path],
        "servers": [
            {"kind": found.kind, "url": found.base_url, "models": [model.id for model in found.models]}
            for found in there.servers
        ],
        "keys": [key.variable for key in there.keys],
    }


async def _servers() -> list[dict[str, Any]]:
    """Each MCP server of the user's and of this folder: whether it starts, why not, and what to do."""
    if not (config_dir() / "mcp.json").exists() and not (current_folder() / SERVERS).exists():
        return []
    from pinfold.app.mcp.looking import examined as looked_at

    return await looked_at(current_folder())


async def checkup(names: Iterable[str] = ()) -> dict[str, Any]:
    """One object with stable keys; see `pinfold doctor --json`."""
    report = await examined(names)
    return {
        "ok": report.ok,
        "sandboxes": [msgspec.to_builtins(checked) for checked in report.sandboxes],
        "auto": report.auto,
        "kernel": dict(report.kernel),
        "models": await _models(),
        "servers": await _servers(),
        "paused": Pauses().all(),
    }
