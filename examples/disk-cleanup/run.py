"""Disk usage, old logs, and a question before anything is deleted. What was deleted can be brought back."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from make_data import make
from pinfold import Agent, Approval
from pinfold.events import ActionFinished, ActionId, ActionProposed, CallTool, TurnEnded, TurnFailed

HERE = Path(__file__).parent
PROMPT = "Check disk usage and clean up: logs older than 30 days, then the cache."


def yes(question: str) -> bool:
    print(f"{question} [y/N] ", end="", flush=True)
    reply = sys.stdin.readline()
    if not sys.stdin.isatty():
        print(reply.strip())
    return reply.strip().lower() in ("y", "yes")


async def approve(approval: Approval) -> bool:
    """Ask the user. `shows` is the command as Pinfold understood it, and what it would delete."""
    print(f"\nasks: {approval.reason}\n{approval.shows.rstrip()}")
    return await asyncio.to_thread(yes, "allow this?")


async def main(model: str) -> None:
    workspace = HERE / "work"
    make(workspace)
    commands: set[ActionId] = set()
    async with Agent(model=model, workspace=workspace, mode="ask", approve=approve) as agent:
        async for event in agent.stream(PROMPT):
            match event:
                case ActionProposed(id=id_, action=CallTool(tool="shell") as call):
                    commands.add(id_)
                    print(f"\n$ {call.given.get('command')}")
                case ActionFinished(id=id_, observation=text) if id_ in commands:
                    print("  " + text.rstrip().replace("\n", "\n  "))
                case TurnEnded(text=text):
                    print(f"\n{text}")
                case TurnFailed(error=error):
                    sys.exit(error)
                case _:
                    pass
        if yes("\nbring everything back?"):
            await agent.undo(to=0, what="files")
            print("the files are as they were")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"scripted:{HERE / 'script.jsonl'}")
    asyncio.run(main(parser.parse_args().model))
