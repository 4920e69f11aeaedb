"""/clear, /new, /rename, /fork, /branches, /sessions, /resume, /export and /exit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from pinfold.app import SessionStore, fork
from pinfold.app.storage import build_session_tree, list_nodes
from pinfold.events import Clear, Rename, SessionId
from pinfold.front.chat.commands.output import (
    BadArguments,
    load_story,
    require_idle,
    run_cli_command,
    write_lines,
    write_note,
)
from pinfold.front.pages import branches_page, sessions_page, title_of
from pinfold.text import presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_SHOWN = 30
"""Sessions of a list."""
_TO_STDOUT = ("jsonl", "replay")
"""Formats that the command line writes to stdout unless a file is named."""


async def exit_command(talk: ChatContext, _: str) -> None:
    talk.leave()


async def clear_command(talk: ChatContext, _: str) -> None:
    await talk.link.submit(Clear())


async def new_command(talk: ChatContext, _: str) -> None:
    await require_idle(talk, "/new")
    await talk.switch(None)


async def rename_command(talk: ChatContext, rest: str) -> None:
    if not rest:
        raise BadArguments("what name? /rename TITLE")
    await talk.link.submit(Rename(title=rest))


def _refuse_unkept(talk: ChatContext) -> None:
    """Raises BadWords."""
    if not SessionStore().folder_of(talk.session).is_dir():
        raise BadArguments("an --ephemeral session cannot be forked or exported")


async def fork_command(talk: ChatContext, rest: str) -> None:
    _refuse_unkept(talk)
    new, damage = await fork(SessionStore(), talk.session, rest or None)
    if damage:
        write_note(talk, f"the log is damaged: {damage}; the rest was copied")
    write_note(talk, f"Forked as {new}. Same conversation and variables; shares this folder.")
    if (await load_story(talk)).is_busy:
        write_note(talk, f"a turn is running here; continue there later: /resume {new}")
    elif await talk.ask("Continue in the fork?", {"y": "yes", "n": "stay here"}) == "y":
        await talk.switch(new)
    else:
        write_note(talk, f"continue there with /resume {new}")


async def branches_command(talk: ChatContext, _: str) -> None:
    story = await load_story(talk)
    everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
    family = build_session_tree(talk.session, everyone)
    if not family.ancestors and not family.children:
        write_note(talk, "this session has no forks; /fork makes one")
        return
    write_lines(talk, branches_page(story, family, talk.paper.width))
    there = {kin.id for kin in everyone}
    kin = [*reversed(family.ancestors), *(one for _, one in family.children)]
    options = [(one.id, f"{one.id}  {title_of(one)}") for one in kin if one.id in there]
    if not options or story.is_busy:
        return
    if chosen := await talk.choose("Continue", [*options, ("", "stay here")]):
        await talk.switch(SessionId(chosen))


async def sessions_command(talk: ChatContext, rest: str) -> None:
    words = rest.lower().split()
    everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
    found = [kin for kin in everyone if all(word in f"{kin.id} {kin.title} {kin.workspace}".lower() for word in words)]
    write_lines(talk, sessions_page(found[:_SHOWN], talk.session, width=talk.paper.width, words=rest))
    if len(found) > _SHOWN:
        write_note(talk, f"and {len(found) - _SHOWN:,} more; /sessions WORDS narrows it down")
    if any(kin.id != talk.session for kin in found):
        write_note(talk, "continue one: /resume SESSION")


async def resume_command(talk: ChatContext, rest: str) -> None:
    if rest:
        session, _ = SessionStore().find(rest)
    else:
        everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
        options = [
            (kin.id, presentable_line(f"{kin.last[:16].replace('T', ' ')}  {title_of(kin)}"))
            for kin in everyone
            if kin.id != talk.session
        ]
        if not options:
            raise BadArguments("there is no other session yet; /new starts one")
        chosen = await talk.choose("Continue", options[:_SHOWN])
        if chosen is None:
            return
        session = SessionId(chosen)
    if session == talk.session:
        write_note(talk, "you are in that session")
        return
    await require_idle(talk, f"/resume {session}")
    await talk.switch(session)


async def export_command(talk: ChatContext, rest: str) -> None:
    form, _, file = rest.partition(" ")
    if not form:
        raise BadArguments("which format? /export FORMAT [FILE], e.g. /export md report.md")
    _refuse_unkept(talk)
    file = file.strip()
    if not file and form in _TO_STDOUT:
        file = f"{talk.session}.{form}.jsonl" if form == "replay" else f"{talk.session}.jsonl"
    where = ("-o", file) if file else ()
    await run_cli_command(talk, "export", talk.session, "--to", form, *where, done=f"written to {file}")
