"""Runs programs in sessions of one build, and says what came of each. Only inside the cage."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.escaping.cage import refuse_outside
from bench.escaping.program import Benign, Hostile
from bench.escaping.scene import SPACE, Scene, Seen, laid

from pinfold.sandbox import Limits, Provider, SandboxError, Session, Spec

CANARY = "PINFOLD_ESCAPE_API_KEY"
"""In the environment of the host, where a session must not see it."""


@asynccontextmanager
async def opened(provider: Provider, spec: Spec) -> AsyncGenerator[Session]:
    session = await provider.open(spec)
    try:
        yield session
    finally:
        await session.close()


async def attempt(provider: Provider, scene: Scene, program: Hostile) -> Seen:
    space = scene.workspace()
    spec = Spec(workspace=space, data=scene.data(), limits=program.limits, writable=program.writable)
    seen = Seen(
        program=program.source,
        outcomes=[],
        workspace=space,
        took_s=0,
        limit_s=program.timeout_s + program.limits.interrupt_grace_s,
        cap_bytes=program.limits.output_bytes,
    )
    async with opened(provider, spec) as session:
        begun = time.monotonic()
        seen.outcomes.append(await session.run(program.cell(scene.bait), timeout_s=program.timeout_s))
        seen.took_s = time.monotonic() - begun
        if program.then:
            after = await session.run(program.then)
            seen.outcomes.append(after)
            if after.status == "ok" and after.value != repr(eval(program.then)):
                seen.breaches.append(f"forged {after.value!r}")
    seen.breaches += await scene.breaches(seen)
    shutil.rmtree(space, ignore_errors=True)
    return seen


async def attempt_all(provider: Provider, programs: Iterable[Hostile], keep: list[Path]) -> None:
    """One line of JSON for each."""
    refuse_outside()
    with laid(os.environ[CANARY], keep) as scene:
        await scene.invite(provider)
        for program in programs:
            begun = time.monotonic()
            try:
                seen = await attempt(provider, scene, program)
                breaches, text, status = seen.breaches, seen.text[-1500:], [o.status for o in seen.outcomes]
            except SandboxError as error:
                breaches, text, status = [], f"no session: {error}", ["unavailable"]
            report = {"name": program.name, "breaches": breaches, "status": status, "text": text}
            print(json.dumps({**report, "took_s": round(time.monotonic() - begun, 3)}), flush=True)
        if scene.neighbour is not None:
            await scene.neighbour.close()


async def work_all(provider: Provider, programs: Iterable[Benign]) -> None:
    """One line of JSON for each."""
    refuse_outside()
    for number, program in enumerate(programs):
        space = SPACE / f"b{number}"
        space.mkdir(parents=True)
        begun = time.monotonic()
        async with opened(provider, Spec(workspace=space, limits=Limits(cell_s=60))) as session:
            outcome = await session.run(program.source)
        fine = outcome.status == "ok" and outcome.stdout.strip().split("\n")[-1:] == [program.prints]
        said = "" if fine else (outcome.stdout + outcome.stderr + (outcome.error or ""))[-1500:]
        report = {
            "name": program.name,
            "fine": fine,
            "text": said,
            "took_s": round(time.monotonic() - begun, 3),
        }
        print(json.dumps(report), flush=True)
        shutil.rmtree(space, ignore_errors=True)
