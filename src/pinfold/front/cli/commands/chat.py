"""`pinfold chat`, and `pinfold acp` for editors. Imports little: the user or the editor waits for the first answer."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

from pinfold.front.flags import Flags, editor_options, flags_of, from_options, mount_settings, session_options


@click.command("chat")
@session_options
@from_options
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the last session of this folder.")
@click.option("--session", help="Continue this session: an id, the start of one, or a name.")
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--title", help="A name for a new session.")
@click.pass_obj
def chat_command(log_level: str | None, **given: object) -> int:
    """Chat with the agent. The same as `pinfold` alone.

    Enter sends; Alt-Enter or a backslash at the end starts a new line; Esc or Ctrl-C stops the agent; Ctrl-D leaves.
    """
    if given["ephemeral"] and (given["last"] or given["session"]):
        raise click.UsageError("--ephemeral cannot be combined with --continue or --session")
    if given["last"] and given["session"]:
        raise click.UsageError("--continue and --session cannot be combined")
    if given["notebook"] and (given["last"] or given["session"]):
        raise click.UsageError("--from starts a new session; it cannot be combined with --continue or --session")
    if given["no_run"] and not given["notebook"]:
        raise click.UsageError("--no-run needs --from")
    given["log_level"] = log_level
    return chat_here(given)


def chat_here(given: Flags) -> int:
    """Run the chat in this terminal; exit code 2 if there is none."""
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        click.echo('pinfold: the chat needs a terminal; in a pipe or a script use: pinfold run "PROMPT"', err=True)
        return 2
    import asyncio

    if os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        from pinfold.front.chat.line_terminal import chat_in_lines

        return asyncio.run(chat_in_lines(given))
    from pinfold.front.chat.frame import chat

    return asyncio.run(chat(given))


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


@click.command("acp")
@editor_options
@click.pass_obj
def acp_command(log_level: str | None, **given: object) -> None:
    """Serve the agent to an editor, by the Agent Client Protocol over standard input and output.

    The editor starts this command, names the folder to work in, and asks you for approvals. The flags apply to all
    its sessions; you can also choose mode and model in the editor.
    """
    from pinfold.front.acp.handshake import answer_initialize, own_streams

    named = given["data"] or given["mount"]
    # Without such flags, the answer need not wait for the modules that check them.
    mounted = (
        mount_settings(given) if named else {"data": None, "mounts": None, "allow_unmasked": given["allow_unmasked"]}
    )
    with own_streams() as (reads, writes):
        first = answer_initialize(reads, writes)
        # Editors wait for that answer, so everything else is imported after it.
        import anyio

        from pinfold.app import start_operator_log
        from pinfold.front.acp.agent import serve_editor

        start_operator_log(log_level)
        anyio.run(serve_editor, reads, writes, first, flags_of(given), mounted)
