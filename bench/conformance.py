"""The protocol's own conformance suite: servers alone and behind Pinfold, and our client.

    ./.venv/bin/python bench/conformance.py [--everything FOLDER] [--only SUBJECT] [--json FILE]

Fetches Node 22 from PyPI and the suite from npm into --scratch. Scenarios that hold without anything being examined, or
whose fixtures a subject does not have, are counted out; they are listed with the reason. Exits with 1 if something fails
that does not fail without Pinfold.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import anyio.to_thread
from bench.conformance_suite.clients import client_legs
from bench.conformance_suite.inspector import inspected
from bench.conformance_suite.subjects import everything, everything_had, pinfold
from bench.conformance_suite.suite import NEXT, STABLE, VACUOUS, Leg, Node, Ran, Suite

SUBJECTS = ("everything", "exported", "pinfold", "inspector", "client")
SETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (STABLE, ("--suite", "all")),
    (NEXT, ("--requirements", "2025-11-25")),
    (NEXT, ("--requirements", "2026-07-28")),
)
OWN_APPLICABLE = (
    "server-initialize",
    "ping",
    "tools-list",
    "dns-rebinding-protection",
    "server-session-lifecycle",
    "server-stateless",
    "http-header-validation",
    "input-required-result-unsupported-methods",
)
"""Of a server that has none of the suite's fixtures: what says something about the protocol itself."""
NOT_HAD = "tasks-"
"""An extension that the SDK does not have."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--everything", type=Path, help="The SDK's repository, or its everything-server.")
    parser.add_argument("--only", choices=SUBJECTS, action="append")
    parser.add_argument("--scratch", type=Path, default=Path("bench/out/conformance"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    scratch: Path = given.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    legs = anyio.run(_all, scratch, given.everything, tuple(given.only or SUBJECTS))
    summaries = [leg.summary() for leg in legs]
    print(table(legs))
    lost = losses(legs)
    if given.json:
        given.json.write_text(json.dumps({"legs": summaries, "lost": lost}, indent=2) + "\n", encoding="utf-8")
    for line in lost:
        print(line)
    return 1 if lost else 0


async def _all(scratch: Path, given: Path | None, subjects: tuple[str, ...]) -> list[Leg]:
    node = Node.had(scratch)
    suites = {release: Suite(node, scratch, release) for release in (STABLE, NEXT)}
    legs: list[Leg] = []

    async def examine(subject: str, url: str, left_out: Callable[[str], str]) -> None:
        for release, wanted in SETS:
            out = scratch / "results" / subject / f"{release}-{wanted[-1]}"
            shutil.rmtree(out, ignore_errors=True)
            found = await anyio.to_thread.run_sync(partial(suites[release].server, url, out, *wanted))
            legs.append(_leg(subject, release, wanted[-1], found, left_out))
            print(table(legs[-1:]), file=sys.stderr)

    if {"everything", "exported"} & {*subjects}:
        folder = everything_had(scratch, given)
        with everything(folder) as url:
            if "everything" in subjects:
                await examine("everything", url, _extension)
            if "exported" in subjects:
                args = ("--export", "everything", "--plain-names", "--mode", "full")
                async with pinfold(*args, upstream=url) as behind:
                    await examine("exported", behind, _extension)
    if "pinfold" in subjects:
        async with pinfold() as own:
            await examine("pinfold", own, _fixture)
    if "inspector" in subjects:
        legs.append(await anyio.to_thread.run_sync(inspected, node, scratch))
    if "client" in subjects:
        legs += await anyio.to_thread.run_sync(client_legs, suites, scratch)
    return legs


def _leg(subject: str, release: str, wanted: str, found: Mapping[str, Ran], left_out: Callable[[str], str]) -> Leg:
    why = {name: words for name in found if (words := left_out(name))}
    return Leg(subject, release, wanted, found, why)


def _extension(scenario: str) -> str:
    return "an extension that the SDK does not have" if scenario.startswith(NOT_HAD) else ""


def _fixture(scenario: str) -> str:
    if scenario in OWN_APPLICABLE:
        return ""
    vacuous = ", and holds without them" if scenario in VACUOUS else ""
    return f"needs tools, resources or prompts of the suite's own{vacuous}"


def table(legs: Sequence[Leg]) -> str:
    rows = [f"{'subject':<12}{'suite':<16}{'set':<14}{'scenarios':>10}{'hold':>6}{'passed':>8}{'failed':>8}"]
    for leg in legs:
        told = leg.summary()
        rows.append(
            f"{leg.subject:<12}{leg.release:<16}{leg.wanted:<14}{told['scenarios']:>10}{told['hold']:>6}"
            f"{told['checks_passed']:>8}{told['checks_failed']:>8}"
        )
        rows += [f"    {name}: {', '.join(failed)}" for name, failed in _failing(leg).items()]
        if nothing := [name for name, ran in leg.counted.items() if ran.is_vacuous]:
            rows.append(f"    held without a check: {', '.join(nothing)}")
        for why in dict.fromkeys(leg.left_out.values()):
            names = [name for name, reason in leg.left_out.items() if reason == why]
            rows.append(f"    left out, {why}: {', '.join(names)}")
    return "\n".join(rows)


def _failing(leg: Leg) -> dict[str, tuple[str, ...]]:
    return {name: ran.failures for name, ran in leg.counted.items() if ran.failures}


def losses(legs: Sequence[Leg]) -> list[str]:
    """What fails; behind Pinfold, what does not fail in the same run of the server alone, and what passes less often."""
    alone = {(leg.release, leg.wanted): leg.counted for leg in legs if leg.subject == "everything"}
    lines: list[str] = []
    for leg in legs:
        if leg.subject == "everything":
            continue
        before = alone.get((leg.release, leg.wanted), {}) if leg.subject == "exported" else {}
        of = f"{leg.subject} {leg.release} {leg.wanted}"
        for name in {**before, **leg.counted}:
            ran, was = leg.counted.get(name, Ran(name, 0)), before.get(name, Ran(name, 0))
            if set(ran.failures) - set(was.failures):
                lines.append(f"{of}: {name} fails")
            elif ran.passed < was.passed:
                lines.append(f"{of}: {name} passes {ran.passed} checks, {was.passed} without Pinfold")
    return lines


if __name__ == "__main__":
    sys.exit(main())
