"""Runs programs in sessions of one build, and says what came of each. Only inside the cage."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from bench.escape_suite.cage import refuse_outside
from bench.escape_suite.program import RAN, Benign, Hostile, Planting, with_tools
from bench.escape_suite.project import Project, still_planted, told
from bench.escape_suite.scene import SPACE, Scene, Seen, laid

from pinfold.sandbox import Limits, Outcome, Provider, SandboxError, Session, Spec
from pinfold.sandbox.contract import CommandOutcome, GuardedSession, Mount, NotSupported, UndoRefused

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
        cap_bytes=program.limits.stream_bytes,
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


async def plant_all(provider: Provider, programs: Iterable[Planting], project: Project) -> None:
    """One line of JSON for each."""
    refuse_outside()
    for program in programs:
        begun = time.monotonic()
        space = project.copy(program.ground, program.before)
        try:
            outcomes, lines = await _planted(provider, program, space)
        except SandboxError as error:
            report = {"breaches": [], "status": ["unavailable"], "text": f"no session: {error}"}
        else:
            breaches, text = _obeyed(project, program, space, lines)
            said = "".join(f"{o.stdout}{o.stderr}{getattr(o, 'error', '')}" for o in outcomes)[-700:]
            text = f"{said}\ntold: {lines}\n{text}"
            report = {"breaches": breaches, "status": [o.status for o in outcomes], "text": text}
        took_s = round(time.monotonic() - begun, 3)
        line = json.dumps({"name": program.name, **report, "took_s": took_s}, ensure_ascii=False)
        # A name of a file may be no text at all.
        print(line.encode("utf-8", "replace").decode(), flush=True)
        project.remove(space)


async def _planted(
    provider: Provider, program: Planting, space: Path
) -> tuple[list[Outcome | CommandOutcome], list[str]]:
    """How its cells ended, and everything that was said to the user until the session was closed."""
    outcomes: list[Outcome | CommandOutcome] = []
    lines: list[str] = []
    mounts = (Mount(path=space.parent / "other", writable=True),) if program.ground == "mounted" else ()
    spec = Spec(workspace=space, limits=program.limits, mounts=mounts)
    session, second = await provider.open(spec), None
    try:
        for source in filter(None, (program.source, program.then)):
            if program.by == "shell":
                outcome = await session.command(["bash", "-c", source], timeout_s=program.timeout_s)
            else:
                outcome = await session.run(with_tools(source), timeout_s=program.timeout_s)
            outcomes.append(outcome)
            lines += outcome.notices
        await anyio.sleep(program.idle_s)
        for step in program.host:
            if step == "second session":
                second = await provider.open(spec)
                continue
            with suppress(NotSupported, UndoRefused):
                lines += await (session.undo() if step == "undo" else session.redo()) or ()
    finally:
        lines += await closed(session)
        if second:
            lines += (await second.run("1")).notices
            lines += await closed(second)
    return outcomes, lines


async def closed(session: Session) -> tuple[str, ...]:
    """Ends it; what it says last."""
    await session.close()
    return (*session.parting, *session.lost_files) if isinstance(session, GuardedSession) else ()


def _obeyed(project: Project, program: Planting, space: Path, lines: list[str]) -> tuple[list[str], str]:
    """What is wrong with what the session left, and what the user's tool said."""
    ran = Path(RAN)
    breaches = ["escaped"] if ran.exists() else []
    ran.unlink(missing_ok=True)
    is_told = told(lines, space, program.plants)
    left = still_planted(space, program.plants)
    unsaid = [path for path in left if not told(lines, space, [path])]
    done = project.use(program.user, space)
    if os.path.lexists(ran):
        ran.unlink()
        if not (is_told and program.told_is_enough):
            breaches.append(f"ran{', though the user was told' if is_told else ''}")
    if unsaid:
        breaches.append(f"left without a word: {', '.join(unsaid)}")
    return breaches, f"left: {left}\nuser: {done.stdout[-500:]}"


async def work_all(provider: Provider, programs: Iterable[Benign], project: Project) -> None:
    """One line of JSON for each."""
    refuse_outside()
    for number, program in enumerate(programs):
        space = SPACE / f"b{number}"
        if program.ground:
            space = project.copy(program.ground)
        else:
            space.mkdir(parents=True)
        begun = time.monotonic()
        session = await provider.open(Spec(workspace=space, limits=Limits(cell_s=60)))
        try:
            outcome = await session.run(with_tools(program.source) if program.ground else program.source)
        finally:
            last = await closed(session)
        fine = outcome.status == "ok" and outcome.stdout.strip().split("\n")[-1:] == [program.prints]
        said = "" if fine else (outcome.stdout + outcome.stderr + (outcome.error or ""))[-1500:]
        if program.after:
            lines = [*outcome.notices, *last]
            done = project.use(f"set -e\n{program.after}", space)
            is_told = not program.tells or told(lines, space, [program.tells])
            fine = fine and done.returncode == 0 and is_told
            said += "" if fine else f"{done.stdout[-700:]}\ntold: {lines}"
        report = {"name": program.name, "fine": fine, "text": said, "took_s": round(time.monotonic() - begun, 3)}
        print(json.dumps(report), flush=True)
        shutil.rmtree(space, ignore_errors=True)
