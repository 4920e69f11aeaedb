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
    load_history,
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


async def exit_command(chat: ChatContext, _: str) -> None:
    chat.leave()


async def clear_command(chat: ChatContext, _: str) -> None:
    await chat.link.submit(Clear())


async def new_command(chat: ChatContext, _: str) -> None:
    await require_idle(chat, "/new")
    await chat.switch(None)


async def rename_command(chat: ChatContext, rest: str) -> None:
    if not rest:
        raise BadArguments("what name? /rename TITLE")
    await chat.link.submit(Rename(title=rest))


def _refuse_unkept(chat: ChatContext) -> None:
    """Raises BadWords."""
    if not SessionStore().folder_of(chat.session).is_dir():
        raise BadArguments("an --ephemeral session cannot be forked or exported")


async def fork_command(chat: ChatContext, rest: str) -> None:
    _refuse_unkept(chat)
    new, damage = await fork(SessionStore(), chat.session, rest or None)
    if damage:
        write_note(chat, f"the log is damaged: {damage}; the rest was copied")
    write_note(chat, f"Forked as {new}. Same conversation and variables; shares this folder.")
    if (await load_history(chat)).is_busy:
        write_note(chat, f"a turn is running here; continue there later: /resume {new}")
    elif await chat.ask("Continue in the fork?", {"y": "yes", "n": "stay here"}) == "y":
        await chat.switch(new)
    else:
        write_note(chat, f"continue there with /resume {new}")


async def branches_command(chat: ChatContext, _: str) -> None:
    history = await load_history(chat)
    everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
    family = build_session_tree(chat.session, everyone)
    if not family.ancestors and not family.children:
        write_note(chat, "this session has no forks; /fork makes one")
        return
    write_lines(chat, branches_page(history, family, chat.transcript.width))
    there = {kin.id for kin in everyone}
    kin = [*reversed(family.ancestors), *(one for _, one in family.children)]
    options = [(one.id, f"{one.id}  {title_of(one)}") for one in kin if one.id in there]
    if not options or history.is_busy:
        return
    if chosen := await chat.choose("Continue", [*options, ("", "stay here")]):
        await chat.switch(SessionId(chosen))


async def sessions_command(chat: ChatContext, rest: str) -> None:
    words = rest.lower().split()
    everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
    found = [kin for kin in everyone if all(word in f"{kin.id} {kin.title} {kin.workspace}".lower() for word in words)]
    write_lines(chat, sessions_page(found[:_SHOWN], chat.session, width=chat.transcript.width, words=rest))
    if len(found) > _SHOWN:
        write_note(chat, f"and {len(found) - _SHOWN:,} more; /sessions WORDS narrows it down")
    if any(kin.id != chat.session for kin in found):
        write_note(chat, "continue one: /resume SESSION")


async def resume_command(chat: ChatContext, rest: str) -> None:
    if rest:
        session, _ = SessionStore().find(rest)
    else:
        everyone = await anyio.to_thread.run_sync(list_nodes, SessionStore())
        options = [
            (kin.id, presentable_line(f"{kin.last[:16].replace('T', ' ')}  {title_of(kin)}"))
            for kin in everyone
            if kin.id != chat.session
        ]
        if not options:
            raise BadArguments("there is no other session yet; /new starts one")
        chosen = await chat.choose("Continue", options[:_SHOWN])
        if chosen is None:
            return
        session = SessionId(chosen)
    if session == chat.session:
        write_note(chat, "you are in that session")
        return
    await require_idle(chat, f"/resume {session}")
    await chat.switch(session)


async def export_command(chat: ChatContext, rest: str) -> None:
    form, _, file = rest.partition(" ")
    if not form:
        raise BadArguments("which format? /export FORMAT [FILE], e.g. /export md report.md")
    _refuse_unkept(chat)
    file = file.strip()
    if not file and form in _TO_STDOUT:
        file = f"{chat.session}.{form}.jsonl" if form == "replay" else f"{chat.session}.jsonl"
    where = ("-o", file) if file else ()
    await run_cli_command(chat, "export", chat.session, "--to", form, *where, done=f"written to {file}")
