"""Mixed load for a long while: does anything grow?"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter

from bench.sandbox_suite.figures import percentile, shown
from bench.server_suite.http import Connection, HttpError, Reader, following
from bench.server_suite.loads import say
from bench.server_suite.stage import TEXT, Report, Stage, Usage

CLIENTS = 8
KEPT = 4
"""Sessions that stay for the whole time."""
EVERY_S = 2.0
"""Samples."""
LATE_S = 2.0
"""Goal for a request that only asks whether the server is well, beside everything else."""
LEFT = CLIENTS + 8
"""Descriptors the server may have in the end: SQLite keeps one for each connection to the index of conversations that was
ever open at once, until none is, and the last reader stays."""
_BINARY = "Accept: application/octet-stream\r\n"


async def measure_soak(stage: Stage, report: Report, minutes: float) -> None:
    """Clients create sessions, take turns, come and go as readers, undo, fork, list, search, export and delete."""
    began = until = time.monotonic()
    done: Counter[str] = Counter()
    faults: list[str] = []
    samples: list[Usage] = []
    late: list[float] = []
    before = stage.usage()
    kept = await stage.create_many(KEPT)
    at_rest: list[Usage] = []

    async def one_client(number: int) -> None:
        chance, connection = random.Random(number), stage.connect()
        while time.monotonic() < until:
            try:
                await live_once(stage, connection, chance, kept, done, faults)
            except (HttpError, OSError, asyncio.IncompleteReadError) as error:
                faults.append(f"{type(error).__name__}: {error}")
                connection.close()
        connection.close()

    async def sample() -> None:
        connection = stage.connect()
        while time.monotonic() < until:
            began = time.perf_counter()
            await connection.call("GET", "/health")
            late.append(time.perf_counter() - began)
            samples.append(stage.usage())
            await asyncio.sleep(EVERY_S)
        connection.close()

    for half in (1, 2):
        until = began + half * minutes * 30
        await asyncio.gather(sample(), *map(one_client, range(half * CLIENTS, (half + 1) * CLIENTS)))
        at_rest.append(await stage.settle(before.processes, before.descriptors, 10.0))
    await stage.remove(kept)
    after = await stage.settle(before.processes, before.descriptors)
    for line in faults[:5]:
        print(line, flush=True)
    report.tell(f"soak of {minutes:g} minutes", ", ".join(f"{count:,} {name}" for name, count in sorted(done.items())))
    report.judge("requests that failed, turns that lost an event or had another text", len(faults), 0)
    report.times("to answer /health meanwhile: the delay of the event loop", late, LATE_S)
    second, last = samples[len(samples) // 4 : len(samples) // 2], samples[-max(1, len(samples) // 4) :]

    def middle(which: list[Usage], name: str) -> float:
        return statistics.median(getattr(one, name) for one in which)

    grown = middle(last, "server_pss") / middle(second, "server_pss")
    report.tell(
        "memory of the server, second and last quarter",
        " and ".join(f"{middle(which, 'server_pss') / 1e6:.1f} MB" for which in (second, last)),
    )
    report.judge("memory of the server, last quarter against the second", grown, 1.1, "x")
    tenths = [sample.server_pss for sample in samples[:: max(1, len(samples) // 10)]]
    report.tell("memory of the server, ten times", " ".join(f"{each / 1e6:.1f}" for each in tenths) + " MB")
    for name in ("descriptors", "threads"):
        report.judge(f"{name}, last quarter more than the second", middle(last, name) - middle(second, name), 16)
    halfway, end = at_rest
    report.judge("descriptors at rest, in the end more than halfway", end.descriptors - halfway.descriptors, 8)
    report.judge("descriptors left in the end", after.descriptors - before.descriptors, LEFT)
    report.judge("processes left in the end", after.processes - before.processes, 0)
    told = f"p50 {shown(percentile(late, 50))}, highest {shown(max(late))}"
    report.tell("delays that were seen", told)


async def live_once(
    stage: Stage,
    connection: Connection,
    chance: random.Random,
    kept: list[str],
    done: Counter[str],
    faults: list[str],
) -> None:
    """One session from its beginning to its end."""
    session = await stage.create(connection, title=f"soak {chance.random()}")
    url = f"/api/sessions/{session}"
    reader = Reader(stage.connect(), session)
    async with following([reader]):
        await reader.first.wait()
        for _ in range(chance.randrange(1, 4)):
            reader.expect_turn()
            await say(connection, session)
            await reader.over.wait()
            done["turns"] += 1
            if reader.text != TEXT or reader.lost_or_twice or not reader.is_whole:
                faults.append(f"{reader.lost_or_twice} events lost or twice, text {reader.text[:80]!r}")
    for what in chance.sample(("undo", "fork", "list", "search", "export", "variables", "leave", "events"), 3):
        match what:
            case "undo":
                await connection.call("POST", f"{url}/undo", {})
                await connection.call("POST", f"{url}/redo", {})
            case "fork":
                other = (await connection.call("POST", f"{url}/fork", {}))["id"]
                await connection.call("DELETE", f"/api/sessions/{other}")
            case "list":
                await connection.call("GET", "/api/sessions")
            case "search":
                await connection.call("GET", "/api/sessions?search=answer")
            case "export":
                await connection.call("GET", f"{url}/export?format=html", more=_BINARY)
            case "variables":
                await connection.call("GET", f"{url}/variables")
            case "events":
                await connection.call("GET", f"{url}/events", more="Accept: application/json\r\n")
            case _:  # a reader of a session that stays goes without a word
                passer = Reader(stage.connect(), chance.choice(kept))
                async with following([passer]):
                    await passer.first.wait()
        done[what] += 1
    await connection.call("DELETE", url)
    done["sessions"] += 1
