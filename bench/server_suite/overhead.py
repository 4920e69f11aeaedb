"""A turn over HTTP against the same turn of `Agent` in this process."""

from __future__ import annotations

import statistics
import time

from bench.sandbox_suite.figures import shown
from bench.server_suite.http import Reader, following
from bench.server_suite.loads import say
from bench.server_suite.stage import TEXT, Report, Stage, write_script

from pinfold import Agent

BLOCK = 5
"""Turns of one before the other's."""
RATIO = 1.3


async def measure_overhead(stage: Stage, report: Report, turns: int) -> None:
    model = write_script(stage.folder / "long.jsonl", turns + 2 * BLOCK)
    connection = stage.connect()
    session = await stage.create(connection, model=model)
    reader = Reader(stage.connect(), session)
    taken: dict[str, list[float]] = {"HTTP": [], "Agent": []}

    async def over_http() -> float:
        reader.expect_turn()
        began = time.perf_counter()
        await say(connection, session)
        await reader.over.wait()
        assert reader.text == TEXT
        return time.perf_counter() - began

    async def in_process() -> float:
        began = time.perf_counter()
        assert (await agent.run("go")).text == TEXT
        return time.perf_counter() - began

    async with Agent(model=model, workspace=stage.workspace(), mode="auto") as agent, following([reader]):
        await reader.first.wait()
        for name, one in (("HTTP", over_http), ("Agent", in_process)):
            taken[name] = [await one() for _ in range(BLOCK)][:0]
        for _ in range(-(-turns // BLOCK)):
            taken["HTTP"] += [await over_http() for _ in range(BLOCK)]
            taken["Agent"] += [await in_process() for _ in range(BLOCK)]
    await stage.remove([session])
    http, agent_s = (statistics.median(taken[name]) for name in ("HTTP", "Agent"))
    report.tell("a turn with a cell: Agent in process, over HTTP", f"{shown(agent_s)}, {shown(http)}")
    report.judge("a turn over HTTP against one in process, medians", http / agent_s, RATIO, "x")
