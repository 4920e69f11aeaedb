"""Commands that are a command of the command line: run in a process of its own, so that the chat never waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio

from pinfold.front.chat.commands.output import BadArguments, write_lines, write_note
from pinfold.text import presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_LIMIT_S = 120.0


async def run_cli_command(talk: ChatContext, *args: str, done: str = "") -> None:
    """What it prints is shown; what it complains of is raised. `done` is said where it says nothing itself."""
    # `-P`: the folder the chat is in gives it no modules, for a session may have written them.
    command = [sys.executable, "-P", "-m", "pinfold", *args]
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": str(talk.paper.width)}
    with anyio.move_on_after(_LIMIT_S) as waiting:
        ran = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False, env=env)
        out = ran.stdout.decode("utf-8", "replace").rstrip("\n")
        said = ran.stderr.decode("utf-8", "replace").strip()
        if out:
            write_lines(talk, presentable(out).splitlines())
        if ran.returncode and not out:
            last = said.splitlines()[-1] if said else f"it exited with {ran.returncode}"
            raise BadArguments(presentable_line(last.removeprefix("pinfold: ").removeprefix("Error: ")))
        if said or (done and not out):
            write_note(talk, said or done)
    if waiting.cancelled_caught:
        raise BadArguments(f"it took more than {_LIMIT_S:.0f} s and was stopped")
