"""Two tools of our own, called by code: ten calls at once for one reply of the model."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TypedDict

from pinfold import Agent, tool
from pinfold.events import ActionProposed, CallTool, ModelCalled, RunCell, TurnEnded, TurnFailed

HERE = Path(__file__).parent
PROMPT = "Check the weather and traffic for Toronto, Montreal, New York, Paris, and San Francisco."


class Weather(TypedDict):
    sky: str
    celsius: int


def known(city: str) -> dict[str, str | int]:
    """A real tool would ask a service here. It could: tools run outside the sandbox."""
    cities: dict[str, dict[str, str | int]] = json.loads((HERE / "cities.json").read_text(encoding="utf-8"))
    if city not in cities:
        raise LookupError(f"nothing is known of {city!r}; there are {', '.join(cities)}")
    return cities[city]


@tool(effect="pure")
def get_weather(city: str) -> Weather:
    """The sky and the temperature in a city, now."""
    found = known(city)
    return {"sky": str(found["sky"]), "celsius": int(found["celsius"])}


@tool(effect="pure")
def get_traffic(city: str) -> int:
    """By how many minutes traffic delays a drive through a city, now."""
    return int(known(city)["delay_min"])


async def main(model: str) -> None:
    workspace = HERE / "work"
    workspace.mkdir(exist_ok=True)
    asked = called = 0
    async with Agent(model=model, workspace=workspace, tools=[get_weather, get_traffic]) as agent:
        async for event in agent.stream(PROMPT):
            match event:
                case ModelCalled():
                    asked += 1
                case ActionProposed(action=CallTool(tool="get_weather" | "get_traffic")):
                    called += 1
                case ActionProposed(action=RunCell(code=code)):
                    print("> " + code.replace("\n", "\n  "))
                case TurnEnded(text=text):
                    print(text)
                case TurnFailed(error=error):
                    raise SystemExit(error)
                case _:
                    pass
    print(f"{called} calls of tools, {asked} of the model")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"scripted:{HERE / 'script.jsonl'}")
    asyncio.run(main(parser.parse_args().model))
