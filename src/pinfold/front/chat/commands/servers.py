"""/mcp: the servers of the session, and agreeing to what one offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.front.chat.commands.inspection import query_session
from pinfold.front.chat.commands.output import BadArguments, write_lines, write_note
from pinfold.front.pages import servers_page
from pinfold.text import presentable

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext


async def mcp_command(talk: ChatContext, rest: str) -> None:
    match rest.split():
        case []:
            await _list(talk)
        case ["trust", name]:
            await _trust(talk, name)
        case _:
            raise BadArguments("write /mcp, or /mcp trust SERVER")


async def _list(talk: ChatContext) -> None:
    servers = await query_session(talk.link, "servers")
    write_lines(talk, servers_page(servers, talk.paper.width))
    if any(one.get("problem") for one in servers):
        write_note(talk, "it is started again when it is next used; what changed is agreed to by /mcp trust SERVER")


async def _trust(talk: ChatContext, name: str) -> None:
    """As `pinfold mcp trust`: what is agreed to is what was shown, of a connection that stands meanwhile."""
    from pinfold.app.session.mcp.inspection import ServerFailed, find_spec, inspect_servers, load_servers_for
    from pinfold.app.trust.mcp_reach import describe_server
    from pinfold.front.cli.commands.mcp import describe_annotations

    spec = find_spec(load_servers_for(talk.workspace), name)
    write_note(talk, f"starting {spec.name} to see what it offers")
    async with inspect_servers((spec,), talk.workspace) as found:
        if failed := await found.connect(spec.name):
            raise ServerFailed(failed[spec.name])
        difference = found.difference(spec.name)
        if found.is_trusted(spec.name) and not difference:
            write_note(talk, f"{spec.name} is trusted as it is")
            return
        shown = presentable(difference.text if difference else describe_annotations(found, spec.name)).splitlines()
        write_lines(talk, [*describe_server(spec), *shown])
        if await talk.ask(f"Agree to all of this of {spec.name}?", {"y": "yes", "n": "no"}) == "y":
            found.trust(spec.name)
            write_note(talk, f"{spec.name} is trusted, as long as none of it changes")
