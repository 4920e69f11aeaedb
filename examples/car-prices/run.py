"""A dialogue about a table of cars: the table stays in the session, and only what the code prints goes to the model."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from pinfold import Agent
from pinfold.events import ActionFinished, ActionProposed, ModelCalled, RunCell, TurnEnded, TurnFailed

HERE = Path(__file__).parent
CARS = HERE / "cars.csv"
QUESTIONS = (
    "What datasets are available?",
    "Load it and show summary stats.",
    "Which make keeps its value best? How much does each lose in a year?",
    "And what should a five-year-old diesel of that make with 70,000 km cost?",
)


async def ask(agent: Agent, question: str) -> int:
    """Print one turn as it happens; return the bytes that went to the model."""
    print(f"\nYou: {question}")
    sent = 0
    async for event in agent.stream(question):
        match event:
            case ModelCalled(size=size):
                sent += size
            case ActionProposed(action=RunCell(code=code)):
                print("    " + code.replace("\n", "\n    "))
            case ActionFinished(error=str(error)) if "No module named 'pandas'" in error:
                sys.exit("pandas is not here: `./pinfold env build` makes the data environment, once")
            case TurnEnded(text=text):
                print(f"Agent: {text}")
            case TurnFailed(error=error):
                sys.exit(error)
            case _:
                pass
    return sent


async def main(model: str) -> None:
    workspace = HERE / "work"
    workspace.mkdir(exist_ok=True)
    async with Agent(model=model, workspace=workspace, data=[f"cars.csv={CARS}"]) as agent:
        sent = sum([await ask(agent, question) for question in QUESTIONS])
    print(f"\n{sent:,} bytes went to the model in all; the table alone has {CARS.stat().st_size:,}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"scripted:{HERE / 'script.jsonl'}")
    asyncio.run(main(parser.parse_args().model))
