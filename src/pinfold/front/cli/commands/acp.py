"""`pinfold acp`: the agent inside an editor. Imports little: the editor waits for the first answer."""

from __future__ import annotations

from typing import Any

import click

from pinfold.front.flags import editor_options, flags_of, mount_settings


@click.command("acp")
@editor_options
@click.pass_obj
def acp_command(log_level: str | None, **given: Any) -> None:
    """Serve the agent to an editor, by the Agent Client Protocol over standard input and output.

    The editor starts this command, names the folder to work in, and asks you for approvals. The flags hold for all
    its sessions; mode and model can also be chosen in the editor.
    """
    from pinfold.front.acp.handshake import answer_initialize, own_streams

    named = given["data"] or given["mount"]
    seen = mount_settings(given) if named else {"data": None, "mounts": None, "allow_unmasked": given["allow_unmasked"]}
    with own_streams() as (reads, writes):
        first = answer_initialize(reads, writes)
        import anyio

        from pinfold.front.acp.stdio import serve_editor

        anyio.run(serve_editor, reads, writes, first, (flags_of(given), seen, log_level))
