"""Many clients, many readers, many sessions; none of them may lose anything."""

from __future__ import annotations

import asyncio
import json
import time
from itertools import chain

from bench.sandbox_suite.figures import percentile, shown
from bench.server_suite.http import WAIT_S, Connection, HttpError, Reader, following
from bench.server_suite.stage import TEXT, Report, Stage

FIRST_S, WHOLE_S, DELIVERY_S = 2.0, 5.0, 2.0
"""Goals of 50 clients on two cores; a turn alone takes some 20 ms."""
READER_BYTES = 100_000
GROWTH_BYTES = 10_000
"""Of the server, for each session that was created and closed."""
CREATE_S, CLOSE_S = 1.0, 1.0
AT_ONCE = 8


async def say(connection: Connection, session: str) -> int:
    """The number of the event before its turn."""
    return (await connection.call("POST", f"/api/sessions/{session}/commands", {"kind": "Say", "text": "go"}))["seq"]


async def measure_streams(stage: Stage, report: Report, clients: int, turns: int) -> None:
    """Every client has a session of its own and takes one turn after the other."""
    sessions = await stage.create_many(clients)
    readers = [Reader(stage.connect(), session) for session in sessions]
    firsts, wholes, refused = list[float](), list[float](), 0
    bad: list[str] = []

    async def one_client(reader: Reader) -> None:
        nonlocal refused
        connection = stage.connect()
        await reader.first.wait()
        for _ in range(turns):
            reader.expect_turn()
            began = time.perf_counter()
            try:
                await say(connection, reader.session)
            except HttpError as error:
                refused += 1
                bad.append(str(error))
                continue
            await reader.over.wait()
            firsts.append(reader.first_at - began)
            wholes.append(reader.over_at - began)
            if reader.text != TEXT or not reader.is_whole:
                bad.append(f"{reader.session} said {reader.text[:80]!r}")
        stored = await connection.call(
            "GET", f"/api/sessions/{reader.session}/events", more="Accept: application/json\r\n"
        )
        if [event["seq"] for event in stored["events"]][: len(reader.seqs)] != reader.seqs:
            bad.append(f"{reader.session}: {reader.lost_or_twice} events lost or twice")
        connection.close()

    async with asyncio.timeout(WAIT_S), following(readers):
        began = time.perf_counter()
        await asyncio.gather(*map(one_client, readers))
        took = time.perf_counter() - began
    await stage.remove(sessions)
    for line in bad[:5]:
        print(line, flush=True)
    report.times(f"{clients} clients at once: to the first event of a turn", firsts, FIRST_S)
    report.times(f"{clients} clients at once: to the end of a turn", wholes, WHOLE_S)
    report.tell(f"{clients} clients at once: turns", f"{len(wholes)}, {len(wholes) / took:.1f} a second")
    report.judge("turns that were refused, lost events or had another text", len(bad), 0)


async def measure_chat(stage: Stage, report: Report, clients: int, turns: int) -> None:
    """The same over the OpenAI wire; every request is a conversation of its own."""
    firsts, wholes, bad = list[float](), list[float](), list[str]()

    async def one_client() -> None:
        connection = stage.connect()
        for _ in range(turns):
            body = {"model": "pinfold", "stream": True, "messages": [{"role": "user", "content": "go"}]}
            began, first, text, rest = time.perf_counter(), 0.0, "", b""
            status, headers = await connection.send("POST", "/v1/chat/completions", json.dumps(body).encode())
            if status != 200:
                bad.append(f"{status}: {(await connection.read(headers))[:200]!r}")
                continue
            async for chunk in connection.chunks():
                first = first or time.perf_counter()
                *whole, rest = (rest + chunk).split(b"\n\n")
                for message in whole:
                    if message.startswith(b"data: {"):
                        choices = json.loads(message[6:])["choices"]
                        text += (choices[0]["delta"].get("content") or "") if choices else ""
            firsts.append(first - began)
            wholes.append(time.perf_counter() - began)
            if TEXT not in text:
                bad.append(f"said {text[:80]!r}")
        connection.close()

    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*(one_client() for _ in range(clients)))
    for line in bad[:5]:
        print(line, flush=True)
    report.times(f"{clients} clients of /v1/chat/completions: to the first chunk", firsts or [WAIT_S], 2 * FIRST_S)
    report.times(f"{clients} clients of /v1/chat/completions: to the end", wholes or [WAIT_S], 2 * WHOLE_S)
    report.judge("answers that were refused or had another text", len(bad), 0)


async def measure_readers(stage: Stage, report: Report, count: int, among: int) -> None:
    """Many readers of a few sessions; then a turn in each."""
    alone = stage.usage()
    sessions = await stage.create_many(among)
    connection = stage.connect()
    before = stage.usage()
    readers = [Reader(stage.connect(), sessions[number % among]) for number in range(count)]
    async with asyncio.timeout(WAIT_S), following(readers):
        for reader in readers:
            await reader.first.wait()
        during = stage.usage()
        for reader in readers:
            reader.expect_turn()
            reader.delays.clear()
        for session in sessions:
            await say(connection, session)
        for reader in readers:
            await reader.over.wait()
    delays = list(chain.from_iterable(reader.delays for reader in readers))
    wrong = sum(bool(reader.lost_or_twice) or reader.text != TEXT or not reader.is_whole for reader in readers)
    deltas = sum(reader.deltas for reader in readers)
    for text in {reader.text for reader in readers if reader.text != TEXT}:
        print(text, flush=True)
    await stage.remove(sessions)
    connection.close()
    after = await stage.settle(alone.processes, alone.descriptors)
    report.times(f"{count:,} readers of {among} sessions: from an event's time to its arrival", delays, DELIVERY_S)
    report.tell("events, and pieces of text, that arrived", f"{len(delays):,}, {deltas:,}")
    report.judge("readers that missed an event, or got one twice or another text", wrong, 0)
    each = (during.server_pss - before.server_pss) / count
    report.judge("memory of the server for each open reader", each / 1000, READER_BYTES / 1000, " kB")
    report.judge(
        "descriptors left open by readers and sessions that are gone", after.descriptors - alone.descriptors, 8
    )


async def measure_sessions(stage: Stage, report: Report, count: int) -> None:
    """Created and deleted; one in five has run a cell."""
    creating, closing = list[float](), list[float]()

    async def one_client(numbers: range) -> None:
        connection = stage.connect()
        for number in numbers:
            workspace = str(stage.workspace())
            began = time.perf_counter()
            session = await stage.create(connection, workspace=workspace)
            creating.append(time.perf_counter() - began)
            if number % 5 == 0:
                reader = Reader(stage.connect(), session)
                async with following([reader]):
                    await reader.first.wait()
                    await say(connection, session)
                    await reader.over.wait()
            began = time.perf_counter()
            await connection.call("DELETE", f"/api/sessions/{session}")
            closing.append(time.perf_counter() - began)
        connection.close()

    async def run(count: int) -> float:
        began = time.perf_counter()
        each = -(-count // AT_ONCE)
        await asyncio.gather(*(one_client(range(each)) for _ in range(AT_ONCE)))
        return time.perf_counter() - began

    await run(max(80, count // 10))  # caches and allocators fill
    creating.clear()
    closing.clear()
    before = await stage.settle(0, within_s=2.0)
    took = await run(count)
    after = await stage.settle(before.processes, before.descriptors)
    used = (after.server_cpu_s - before.server_cpu_s) / len(creating)
    told = f"{len(creating) / took:.1f} a second, {shown(used)} of the server's CPU each"
    report.tell(f"{len(creating):,} sessions created and closed", told)
    report.times("to create a session", creating, CREATE_S)
    report.times("to close and delete one", closing, CLOSE_S)
    grown = (after.server_pss - before.server_pss) / len(creating)
    report.judge("growth of the server's memory for each", grown / 1000, GROWTH_BYTES / 1000, " kB")
    report.judge("descriptors left open", after.descriptors - before.descriptors, 8)
    report.judge("threads left", after.threads - before.threads, 2)
    report.judge("processes left", after.processes - before.processes, 0)
    left = [one.name for one in (stage.folder / "data" / "pinfold" / "sessions").iterdir() if "s_" in one.name]
    report.judge("folders of sessions left", len(left), 0)


async def measure_idle(stage: Stage, report: Report, count: int, seconds: float) -> None:
    """Sessions that have run a turn and wait; then each with a page that looks at it."""
    before = stage.usage()
    sessions = await stage.create_many(count)
    readers = [Reader(stage.connect(), session) for session in sessions]
    connection = stage.connect()
    async with asyncio.timeout(WAIT_S), following(readers):
        for reader in readers:
            await reader.first.wait()
            await say(connection, reader.session)
            await reader.over.wait()
        during = stage.usage()
        watched = await _busy_percent(stage, seconds)
    alone = await _busy_percent(stage, seconds)
    report.judge(
        f"memory of each of {count} idle sessions, everything together",
        (during.pss - before.pss) / count / 1e6,
        8.0,
        " MB",
    )
    report.tell("of that in the server", f"{(during.server_pss - before.server_pss) / count / 1e6:.2f} MB")
    report.judge("processors used while idle", alone, 0.5, " % of one")
    report.tell("the same, with an open reader each", f"{watched:.2g} % of one")
    listing: list[float] = []
    for _ in range(20):
        began_at = time.perf_counter()
        await connection.call("GET", "/api/sessions?limit=50")
        listing.append(time.perf_counter() - began_at)
    report.tell(
        f"list of {count} sessions", f"p50 {shown(percentile(listing, 50))}, p99 {shown(percentile(listing, 99))}"
    )
    await stage.remove(sessions)
    connection.close()


async def _busy_percent(stage: Stage, seconds: float) -> float:
    await asyncio.sleep(2)
    began = stage.usage().cpu_s
    await asyncio.sleep(seconds)
    return 100 * (stage.usage().cpu_s - began) / seconds
