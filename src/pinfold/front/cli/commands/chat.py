"""`pinfold` alone: the chat. What it needs beyond the prompt is loaded once the prompt stands."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from pinfold.front.cli.flags import from_options, session_options


@click.command("chat")
@session_options
@from_options
@click.option("-c", "--continue", "last", is_flag=True, help="Go on with the last session of this folder.")
@click.option("--session", help="Go on with this one: an id, its beginning, or a name.")
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--title", help="A name for a new session.")
@click.pass_obj
def chat_command(log_level: str | None, **given: Any) -> int:
    """Talk with the agent. The same as `pinfold` alone.

    Enter sends, Alt-Enter or a backslash at the end begins a new line, Esc or Ctrl-C stops the agent, Ctrl-D leaves.
    """
    if given["ephemeral"] and (given["last"] or given["session"]):
        raise click.UsageError("--ephemeral begins a session that leaves nothing; it cannot go on with another")
    if given["last"] and given["session"]:
        raise click.UsageError("--continue and --session name two sessions; give one of them")
    if given["notebook"] and (given["last"] or given["session"]):
        raise click.UsageError("--from begins a new session; it cannot go on with another")
    if given["no_run"] and not given["notebook"]:
        raise click.UsageError("--no-run goes with --from")
    given["log_level"] = log_level
    return chat_here(given)


def chat_here(given: dict[str, Any]) -> int:
    """In this terminal, if it is one."""
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        click.echo('pinfold: the chat needs a terminal; in a pipe or a script use: pinfold run "PROMPT"', err=True)
        return 2
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        from pinfold.front.chat.line_terminal import chat_in_lines

        return chat_in_lines(given)
    from pinfold.front.chat.frame import chat

    return chat(given)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()
