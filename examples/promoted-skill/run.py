"""A function that works becomes a tool, and the next session uses it."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from pinfold import Agent, Approval

HERE = Path(__file__).parent
WORK = HERE / "work"
FIRST = "Write calculate_rsi, try it, and keep it as a tool."
SECOND = "What is the RSI of these prices: 44.3, 44.1, 44.2, 43.6, 44.3, 44.8, 45.1? Take a period of 6."


async def approve(approval: Approval) -> bool:
    """A user would read the source here. The example says yes to show what comes next."""
    print(f"\n{approval.reason}\n\n{approval.shows}\n\nAllow this? yes\n")
    return True


async def main(models: tuple[str, str]) -> None:
    workspace = WORK / "files"
    workspace.mkdir(parents=True, exist_ok=True)
    for prompt, model in zip((FIRST, SECOND), models, strict=True):
        async with Agent(model=model, workspace=workspace, approve=approve) as agent:
            print(f"You: {prompt}\nAgent: {await agent.run(prompt)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="a real model instead of the scripted one")
    model = parser.parse_args().model
    os.environ["XDG_CONFIG_HOME"] = str(WORK / "config")  # so that the example leaves your own skills alone
    scripted = (f"scripted:{HERE / 'script.jsonl'}", f"scripted:{HERE / 'next.jsonl'}")
    asyncio.run(main((model, model) if model else scripted))
