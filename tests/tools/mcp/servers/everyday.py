"""A well-behaved server with the SDK: python everyday.py [http PORT | sse PORT]. LEGACY=1: of the older protocol only."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Annotated, Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    Image,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("everyday", version="1.0")
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452")


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool()
def add(a: int, b: Annotated[int, Field(description="the second", ge=0)] = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def weather(city: str) -> Weather:
    """How warm it is."""
    return Weather(city=city, degrees=21.5)


@server.tool(structured_output=False, annotations=ToolAnnotations(idempotent_hint=True))
def text(words: str) -> str:
    """Say it back."""
    return words


@server.tool(structured_output=False)
def picture() -> Image:
    """A picture."""
    return Image(data=PNG, format="png")


@server.tool(structured_output=False)
def several() -> list[Any]:
    """Text and a picture."""
    return ["first", Image(data=PNG, format="png")]


@server.tool(structured_output=False)
def fails(why: str) -> str:
    """Always fails."""
    raise ToolError(why)


@server.tool(structured_output=False)
def environment(name: str) -> str:
    """A variable of the server's environment."""
    return os.environ.get(name, "")


@server.tool(structured_output=False)
async def slow(steps: int, every_s: float, ctx: Context[Any]) -> str:
    """Report progress for a while."""
    for step in range(steps):
        await anyio.sleep(every_s)
        await ctx.report_progress(step, steps, "on the way")
    return "done"


@server.tool(structured_output=False)
async def hang(marker: str) -> str:
    """Wait for ever; leave a file when cancelled."""
    try:
        await anyio.sleep_forever()
    except BaseException:
        with open(marker, "w") as file:  # noqa: PTH123, ASYNC230
            file.write("cancelled")
        raise
    return ""


class Name(BaseModel):
    name: str
    age: int = 3


def _who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool(structured_output=False)
async def ask(who: Annotated[ElicitationResult[Name], Resolve(_who)]) -> str:
    """Ask the user for a name."""
    return f"accept {who.data.name}" if isinstance(who, AcceptedElicitation) else who.action


@server.tool(structured_output=False)
async def visit(ctx: Context[Any]) -> str:
    """Have the user visit a page."""
    answer = await ctx.elicit_url("Please pay", "https://pay.example.com/x", "e1")
    return answer.action


def _thought(question: str) -> Sample:
    return Sample(
        [types.SamplingMessage(role="user", content=types.TextContent(text=question))],
        max_tokens=50,
        system_prompt="be brief",
    )


@server.tool(structured_output=False)
async def think(question: str, answer: Annotated[types.CreateMessageResult, Resolve(_thought)]) -> str:
    """Ask the client's model."""
    return f"{answer.model}: {answer.content.text}"  # type: ignore[union-attr]


def _roots() -> ListRoots:
    return ListRoots()


@server.tool(structured_output=False)
async def folders(listed: Annotated[types.ListRootsResult, Resolve(_roots)]) -> str:
    """The client's roots."""
    return " ".join(str(root.uri) for root in listed.roots)


@server.tool(structured_output=False)
async def grow(ctx: Context[Any]) -> str:
    """Offer one tool more."""

    def more() -> str:
        """New."""
        return "more"

    server.add_tool(more, name="more")
    if os.environ.get("LEGACY"):
        await ctx.session.send_tool_list_changed()
    else:
        await ctx.notify_tools_changed()
    return "grown"


@server.tool(structured_output=False)
def die() -> str:
    """End at once, in the middle of the call."""
    print("dying as told", file=sys.stderr, flush=True)
    os._exit(7)


@server.resource("notes://today")
def today() -> str:
    """Notes of today."""
    return "buy milk"


@server.resource("pictures://cat", mime_type="image/png")
def cat() -> bytes:
    return PNG


@server.resource("notes://{day}")
def notes(day: str) -> str:
    return f"nothing on {day}"


@server.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Say hello to {name}"


def _forget_the_newer_protocol() -> None:
    """Answer what no older server knows as an older server would, before ours sees it."""
    out, into = os.pipe()
    stdin, sys.stdin = sys.stdin, os.fdopen(out)

    def pass_on() -> None:
        with os.fdopen(into, "w") as through:
            for line in stdin:
                if '"server/discover"' in line:
                    error = {"code": -32601, "message": "Method not found"}
                    answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": error}
                    print(json.dumps(answer), flush=True)
                else:
                    through.write(line)
                    through.flush()

    threading.Thread(target=pass_on, daemon=True).start()


if __name__ == "__main__":
    if os.environ.get("LEGACY"):
        _forget_the_newer_protocol()
    match sys.argv[1:]:
        case ["http", port]:
            server.run("streamable-http", host="127.0.0.1", port=int(port))
        case ["sse", port]:
            server.run("sse", host="127.0.0.1", port=int(port))
        case _:
            server.run("stdio")
