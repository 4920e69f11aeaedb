"""A server with the SDK that keeps notes: python notes.py FOLDER [PORT]. What it says of itself is in FOLDER/description.txt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import mcp_types as types
from mcp.server.mcpserver import AcceptedElicitation, Elicit, ElicitationResult, MCPServer, Resolve, Sample
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import ToolAnnotations
from pydantic import BaseModel

folder = Path(sys.argv[1])
server = MCPServer("notes", version="1.0")
described = folder / "description.txt"
with (folder / "starts.txt").open("a", encoding="utf-8") as file:
    file.write("started\n")


@server.tool(
    structured_output=False, description=described.read_text("utf-8") if described.exists() else "Keep a note."
)
def note(text: str) -> str:
    with (folder / "notes.txt").open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return f"kept {text}"


@server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True))
def look() -> str:
    """All notes."""
    kept = folder / "notes.txt"
    return kept.read_text("utf-8") if kept.exists() else ""


class Who(BaseModel):
    name: str
    age: int
    likes: bool = False


def _who() -> Elicit[Who]:
    return Elicit("Who are you?", Who)


@server.tool(structured_output=False)
async def ask(who: Annotated[ElicitationResult[Who], Resolve(_who)]) -> str:
    """Ask the user who they are."""
    if isinstance(who, AcceptedElicitation):
        return f"{who.data.name} is {who.data.age}, {who.data.likes}"
    return who.action


@server.tool(structured_output=False)
async def visit() -> str:
    """Have the user visit a page."""
    page = types.ElicitRequestURLParams(message="Please pay", url="https://pay.example.com/x", elicitation_id="e1")
    raise UrlElicitationRequiredError([page])


def _thought(question: str) -> Sample:
    said = types.SamplingMessage(role="user", content=types.TextContent(text=question))
    return Sample([said], max_tokens=50, system_prompt="be brief")


@server.tool(structured_output=False)
async def think(question: str, answer: Annotated[types.CreateMessageResult, Resolve(_thought)]) -> str:
    """Ask the client's model."""
    return f"{answer.model}: {answer.content.text}"  # type: ignore[union-attr]


if (folder / "closed.txt").exists():

    @server.tool(structured_output=False, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    def count() -> str:
        """How many there are."""
        return "some"


if (folder / "more.txt").exists():

    @server.tool()
    def extra() -> str:
        """One more."""
        return "extra"


match sys.argv[2:]:
    case [port]:
        server.run("streamable-http", host="127.0.0.1", port=int(port))
    case _:
        server.run()
