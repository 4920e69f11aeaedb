"""A server of the user's, as a program: a bit of everything the protocol has. Writes what it did to a file beside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.types import Completion, ImageContent, SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer(name="upstream", version="1")
DID = Path(os.environ["DID"])


def did(what: str) -> None:
    with DID.open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


DESCRIBED = DID.with_name("described.txt")
"""A server can change what it says of itself without being started in another way."""


@server.tool(description=DESCRIBED.read_text() if DESCRIBED.exists() else "Say it again.")
def echo(text: str) -> str:
    did(f"echo {text}")
    return text


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look() -> list[ImageContent]:
    """A picture."""
    did("look")
    return [ImageContent(data="iVBORw0KGgo=", mime_type="image/png")]


@server.tool()
def fail() -> str:
    """Goes wrong."""
    raise ValueError("it went wrong")


class Colour(BaseModel):
    colour: str


@server.tool()
async def questions(ctx: Context) -> str:
    """Asks the client for everything."""
    await ctx.report_progress(1, 2, "half")
    await ctx.info("a line of the log")  # pyright: ignore[reportDeprecated]
    chosen = await ctx.elicit("which colour?", Colour)
    message = SamplingMessage(role="user", content=TextContent(text="say a word"))
    said = await ctx.session.create_message(  # pyright: ignore[reportDeprecated]
        messages=[message], max_tokens=9, related_request_id=ctx.request_id
    )
    roots = await ctx.session.list_roots()  # pyright: ignore[reportDeprecated]
    colour = chosen.data.colour if chosen.action == "accept" else chosen.action
    word = said.content.text if isinstance(said.content, TextContent) else "?"
    return f"{colour}, {word}, {[str(root.uri) for root in roots.roots]}"


@server.tool()
async def wait(ctx: Context) -> str:
    """Never ends."""
    await ctx.report_progress(0, None, "waiting")
    try:
        await anyio.sleep_forever()
    finally:
        did("was cancelled")
    return "never"


@server.resource("note://one")
def note() -> str:
    """A note."""
    did("note")
    return "the note"


@server.resource("note://{name}/more")
def more(name: str) -> str:
    """More of it."""
    return f"more of {name}"


@server.prompt()
def greet(name: str) -> list[UserMessage]:
    """A greeting."""
    return [UserMessage(f"Hello {name}")]


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    del ref, context
    return Completion(values=[f"{argument.value}a", f"{argument.value}b"])


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
