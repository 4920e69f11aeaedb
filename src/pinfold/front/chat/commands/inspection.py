"""What is in the session: variables, tools, servers, outputs, and what it all cost."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import anyio.to_thread

from pinfold.app import Link, sum_outbound
from pinfold.app.session.session_queries import Sight
from pinfold.events import FLOW, BlobId, Json
from pinfold.front.chat.approvals import describe_pattern
from pinfold.front.chat.commands.output import (
    BadArguments,
    load_entries,
    load_story,
    parse_number,
    write_lines,
    write_note,
    write_table,
)
from pinfold.front.chat.renderers.lines import LineSanitizer
from pinfold.front.pages import cost_page, egress_page, tools_page, variables_page
from pinfold.text import cap_text

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_LOOKED_AT = 8 << 20
"""Characters of an output that are made fit to be shown."""
_PRINTED = 1 << 20
"""Characters of an output that are printed where there is no pager."""


async def query_session(link: Link, what: Sight) -> list[Mapping[str, Json]]:
    """Raises PinfoldError."""
    return cast("list[Mapping[str, Json]]", await link.query(what))


async def vars_command(talk: ChatContext, rest: str) -> None:
    words = rest.lower().split()
    found = await query_session(talk.link, "variables")
    fitting = [one for one in found if all(word in f"{one['name']} {one['type']}".lower() for word in words)]
    if found and not fitting:
        raise BadArguments(f"no variable fits {rest!r}; /vars shows all {len(found)}")
    write_table(talk, variables_page(fitting, talk.paper.width))


async def tools_command(talk: ChatContext, rest: str) -> None:
    write_lines(talk, tools_page(await query_session(talk.link, "tools"), rest, talk.paper.width))
    write_note(talk, "After a crash: pure calls are retried, keyed ones retried safely, once never.")


async def cost_command(talk: ChatContext, _: str) -> None:
    write_table(talk, cost_page(await load_story(talk), talk.paper.width))


async def sent_command(talk: ChatContext, _: str) -> None:
    gone = sum_outbound(await load_entries(talk))
    (write_table if gone else write_lines)(talk, egress_page(gone, talk.paper.width))
    patterns = [str(one["pattern"]) for one in await query_session(talk.link, "grants")]
    if flows := [pattern for pattern in patterns if pattern.startswith(FLOW)]:
        write_note(
            talk,
            f"May leave without asking: {', '.join(describe_pattern(one).removeprefix('sending to ') for one in flows)}; /grants takes it back",
        )


async def thinking_command(talk: ChatContext, _: str) -> None:
    talk.teller.thinking = not talk.teller.thinking
    if talk.teller.thinking and (thought := talk.teller.last_thought()):
        write_note(talk, thought)
    write_note(talk, f"reasoning is {'shown' if talk.teller.thinking else 'collapsed'} from here on")


async def output_command(talk: ChatContext, rest: str) -> None:
    story = await load_story(talk)
    outputs = story.outputs
    if rest:
        name = f"cell {parse_number(rest, 'cell')}"
        outputs = tuple(one for one in outputs if one.name == name)
        if not outputs:
            raise BadArguments(f"{name} has no output; {story.last_cell}")
    if not outputs:
        raise BadArguments("nothing was run yet")
    chosen = outputs[-1]
    data = await _blob(talk, chosen.blob)
    text = chosen.text if data is None else data.decode("utf-8", "replace")
    shown = await anyio.to_thread.run_sync(_format_output, text)
    await _show_in_pager(talk, f"{chosen.name}\n{shown}")


def _format_output(text: str) -> str:
    """Line by line, so that keys are looked at in between; of more than anybody reads, its two ends."""
    lines = LineSanitizer()
    text = cap_text(text, _LOOKED_AT, whole="pinfold export")
    return "\n".join(line for one in text.split("\n") if (line := lines.line(one)) is not None).rstrip()


async def _blob(talk: ChatContext, blob: BlobId | None) -> bytes | None:
    return None if blob is None else await talk.link.blob(blob)


async def _show_in_pager(talk: ChatContext, text: str) -> None:
    pager = _pager()
    if pager is None:
        talk.paper.write(cap_text(text, _PRINTED, whole="PAGER=less shows it"))
        return

    def show() -> None:
        env = {"LESS": "-FRX", **os.environ}  # by itself it would take the screen and give it back blank
        subprocess.run(pager, input=text.encode("utf-8", "replace"), env=env, check=False)

    from prompt_toolkit.application import get_app_or_none, in_terminal

    if get_app_or_none() is None:
        await anyio.to_thread.run_sync(show)
        return
    async with in_terminal():
        await anyio.to_thread.run_sync(show)


def _pager() -> Sequence[str] | None:
    """The user's, where there is a terminal to page on."""
    try:
        argv = shlex.split(os.environ.get("PAGER", ""))
    except ValueError:
        return None
    if not argv or shutil.which(argv[0]) is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    return argv
