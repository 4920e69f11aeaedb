"""How many tools a cell can call in a second: judged, run and on record, one after the other and side by side.

    ./.venv/bin/python bench/calls.py [-n 3000] [--json FILE]

The tools do nothing, so this is the call path alone. Beside one of the measurements another session of the same process
waits for a tool that blocks its thread; it must not matter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pinfold import Agent, tool
from pinfold.events import ActionFinished

GOAL = 2000.0
RATE = """
import asyncio, time
from servers.tools import {name}
{name}()
begun = time.perf_counter()
{loop}
print("rate", {count} / (time.perf_counter() - begun))
"""
PLAIN = "for _ in range({count}): {name}()"
SIDE_BY_SIDE = "await asyncio.gather(*({name}() for _ in range({count})))"
blocked, released = threading.Event(), threading.Event()


@tool(effect="pure")
def pure() -> None:
    """Nothing, in a thread."""


@tool(effect="pure")
async def pure_async() -> None:
    """Nothing."""


@tool(effect="once")
async def once() -> None:
    """Nothing, with its start on disk first."""


@tool(effect="once")
def blocking() -> None:
    """Waits."""
    blocked.set()
    released.wait(60)


TOOLS = [pure, pure_async, once, blocking]


def script(folder: Path, *cells: str) -> str:
    """A model that runs these and stops."""
    file = folder / f"{sum(1 for _ in folder.iterdir())}.jsonl"
    replies: list[dict[str, Any]] = [{"calls": [{"tool": "python", "args": {"code": one}}]} for one in cells]
    file.write_text("".join(json.dumps(reply) + "\n" for reply in [*replies, {"text": "done"}]))
    return f"scripted:{file}"


async def rate(folder: Path, name: str, loop: str, count: int) -> float:
    """Calls a second."""
    code = RATE.format(name=name, count=count, loop=loop.format(name=name, count=count))
    with tempfile.TemporaryDirectory() as workspace:
        async with Agent(model=script(folder, code), workspace=workspace, tools=TOOLS, mode="full") as agent:
            async for event in agent.stream("go"):
                if isinstance(event, ActionFinished) and "rate " in event.observation:
                    return float(event.observation.partition("rate ")[2].split()[0])
    raise RuntimeError("the cell did not end well")


async def rate_beside_a_blocked_session(folder: Path, count: int) -> float:
    code = "from servers.tools import blocking\nblocking()"
    with tempfile.TemporaryDirectory() as workspace:
        async with Agent(model=script(folder, code), workspace=workspace, tools=TOOLS, mode="full") as agent:
            waits = asyncio.create_task(agent.run("go"))
            await asyncio.to_thread(blocked.wait, 60)
            try:
                return await rate(folder, "pure_async", PLAIN, count)
            finally:
                released.set()
                await waits


async def measured(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return {
            "pure, one after the other": await rate(folder, "pure_async", PLAIN, count),
            "pure, a plain function in a thread": await rate(folder, "pure", PLAIN, count),
            "pure, beside a session that waits": await rate_beside_a_blocked_session(folder, count),
            "pure, side by side": await rate(folder, "pure_async", SIDE_BY_SIDE, count),
            "once, one after the other": await rate(folder, "once", PLAIN, count // 4),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=3000, help="calls of each kind")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"XDG_DATA_HOME": f"{home}/data", "XDG_CONFIG_HOME": f"{home}/config"}
        begun = time.perf_counter()
        rates = asyncio.run(measured(arguments.n))
    for what, one in rates.items():
        print(f"{what:40} {one:8,.0f} calls/s")
    print(f"goal: {GOAL:,.0f} pure calls/s one after the other; took {time.perf_counter() - begun:.1f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(rates, indent=2))
    return 0 if rates["pure, one after the other"] >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
