"""A program: owns a session whose model is scripted and which has a tool that must never act twice.

`python owner.py NAME WORKSPACE SCRIPT LEDGER` begins the session or goes on with it, to the end of its turn. Every event is
a line on stdout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from pinfold.app import Link, NoSuchSession, Options, SessionStore, connect, submit_and_follow
from pinfold.events import Command, Continue, Entry, Say, TurnEnded, TurnFailed, entry_line, new_session_id, new_turn_id
from pinfold.tools import tool

NAME, WORKSPACE, SCRIPT, LEDGER = sys.argv[1:5]


@tool(effect="once")
def note(token: str) -> str:
    """Adds a line to a file outside the session."""
    with Path(LEDGER).open("a", encoding="utf-8") as ledger:
        ledger.write(f"{token}\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return f"noted {token}"


@asynccontextmanager
async def opened() -> AsyncGenerator[Link]:
    shelf = SessionStore()
    try:
        session, folder = shelf.find(NAME)
    except NoSuchSession:
        session = new_session_id()
        folder = shelf.folder_of(session)
    options = Options(
        workspace=Path(WORKSPACE),
        model=f"scripted:{SCRIPT}",
        mode="full",
        sandbox="namespaces",
        python=sys.executable,
        title=NAME,
        tools=(note,),
    )
    async with connect(folder, session, options) as link:
        yield link


async def work() -> None:
    def command(standing: object) -> Command:
        if getattr(standing, "end", None) == "open":
            return Continue()
        return Say(turn=new_turn_id(), text="Do the work.")

    async with submit_and_follow(opened, command) as told:
        async for item in told.feed:
            if isinstance(item, Entry):
                print(entry_line(item), flush=True)
                if isinstance(item.event, TurnEnded | TurnFailed):
                    return


if __name__ == "__main__":
    anyio.run(work)
