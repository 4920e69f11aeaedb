"""A program: durable sessions in one process, and the same ones in another.

`python there.py FOLDER` with `[[name, code], ...]` as JSON on stdin: each has a session of its own, in which
the code is run; what was there before is resumed first. Prints a JSON line each.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.sandbox_suite import environment

from pinfold.sandbox import Limits, Resumable, Spec
from pinfold.sandbox.providers.namespaces import Namespaces

LIMITS = Limits(memory_bytes=12 << 30)


async def opened(provider: Namespaces, folder: Path) -> Resumable:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    session = await provider.open(Spec(workspace=workspace, state=folder / "state", limits=LIMITS))
    assert isinstance(session, Resumable)
    return session


async def one(provider: Namespaces, folder: Path, code: str) -> dict[str, Any]:
    begun = time.perf_counter()
    session = await opened(provider, folder)
    took_s = time.perf_counter() - begun
    try:
        outcome = await session.run(code, timeout_s=60)
        names = [variable.name for variable in await session.variables()]
        back = session.resumed
        labels = [[it.name, it.status, it.reason] for it in back.labels] if back else []
    finally:
        closing = time.perf_counter()
        await session.close()
    return {
        "opened_s": took_s,
        "closed_s": time.perf_counter() - closing,
        "status": outcome.status,
        "stdout": outcome.stdout,
        "error": outcome.error or "",
        "names": names,
        "labels": labels,
        "missing": back.missing if back else (),
    }


async def all_of_them() -> None:
    provider = Namespaces(environment.PYTHON, pool=0)
    for name, code in json.load(sys.stdin):
        told = await one(provider, Path(sys.argv[1], name), code)
        print(json.dumps({"name": name, **told}), flush=True)


if __name__ == "__main__":
    anyio.run(all_of_them)
