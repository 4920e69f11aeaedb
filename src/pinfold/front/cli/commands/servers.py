"""`pinfold up` and `pinfold mcp-server`: processes that serve other commands, or MCP clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import click

from pinfold.app import ConfigError, SessionStore, background, forget_scratch, new_session_options
from pinfold.app.clients import ClientSessions, OpenTerms, server_token
from pinfold.app.ownership import Daemon, Helper, ask_daemon, running_helper, stop_daemon, stop_helper
from pinfold.app.ownership.daemon import IDLE_S, POOL
from pinfold.events import new_session_id
from pinfold.front.cli.commands.run import with_model
from pinfold.front.cli.terminal import STOP_SIGNALS, show, tell
from pinfold.front.flags import MORE_THAN_0, access_options, flags_of, mount_settings


@click.command("up")
@click.option("--status", "what", flag_value="status", help="Say whether `pinfold up` or the warm helper runs.")
@click.option("--stop", "what", flag_value="stop", help="End `pinfold up` and the warm helper.")
@click.option("--close", "session", metavar="SESSION", help="Make the running `pinfold up` close this session.")
@click.option(
    "--idle", type=MORE_THAN_0, default=IDLE_S, metavar="SECONDS", show_default=True, help="Close unused sessions."
)
@click.option("--pool", type=click.IntRange(0, 100), default=POOL, help="How many new sessions to keep ready.")
@click.option("--json", "as_json", is_flag=True, help="With --status: one JSON object.")
def up_command(what: str | None, session: str | None, idle: float, pool: int, as_json: bool) -> int:
    """Keep sandboxes warm and sessions alive, until Ctrl-C.

    Your other commands use it automatically: they start faster, and sessions keep their variables between them.
    """
    if session is not None:
        found, _ = SessionStore().find(session)
        is_closed = anyio.run(ask_daemon, {"op": "close", "session": found}) is not None
        return _report_result(is_closed, f"{found} is closed")
    if what == "status":
        return _status(anyio.run(ask_daemon, {"op": "status"}), running_helper(), as_json)
    if what == "stop":
        helper_has_ended, up_has_ended = stop_helper(), anyio.run(stop_daemon)
        if helper_has_ended:
            show("the warm helper has ended")
        return 0 if helper_has_ended and not up_has_ended else _report_result(up_has_ended, "pinfold up has ended")
    anyio.run(_serve_until_signal, Daemon(idle_s=idle, pool=pool))
    return 0


async def _serve_until_signal(up: Daemon) -> None:
    async def stop_on_signal() -> None:
        with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
            await anext(signals)
            up.stop()
            await anext(signals)
        raise KeyboardInterrupt

    async with background() as tasks:
        tasks.start_soon(stop_on_signal)
        await up.serve(lambda words: show(f"pinfold up: ready, {words}; Ctrl-C ends it"))


def _status(answer: dict[str, Any] | None, helper: Helper | None, as_json: bool) -> int:
    if as_json:
        about = {"pid": helper.pid, "mb": helper.mb} if helper else None
        click.echo(json.dumps({"running": answer is not None, **(answer or {}), "helper": about}))
        return 0 if answer else 1
    if helper:
        show(f"the warm helper runs as process {helper.pid} with {helper.mb} MB; --stop ends it")
    if answer is None:
        return _report_result(False, "")
    held = ", ".join(answer["sessions"]) or "none"
    warm = f"{answer['warm']} is warm" if answer["warm"] else "nothing is warm"
    return _report_result(True, f"pinfold up runs as process {answer['pid']}: {warm}; sessions: {held}")


def _report_result(done: bool, words: str) -> int:
    show(words if done else "pinfold up is not running")
    return 0 if done else 1


@click.command("mcp-server")
@click.option(
    "--http",
    "place",
    is_flag=False,
    flag_value="127.0.0.1:8484",
    metavar="[HOST:PORT]",
    help="Serve HTTP, for several clients. Default address: 127.0.0.1:8484.",
)
@click.option("--token-env", metavar="NAME", help="Environment variable with the bearer token for --http.")
@click.option("--host-name", multiple=True, metavar="NAME[:PORT]", help="Another host name of --http.")
@click.option("--allow-origin", multiple=True, metavar="URL", help="Web page that may use --http.")
@click.option("--agent", "with_agent", is_flag=True, help="Also offer the agent, as the tool `ask`.")
@click.option("--model", help="The agent's model, as for `run`.")
@access_options
@click.option("--allow-host", multiple=True, metavar="HOST", help="Let code connect to HOST without asking.")
@click.option("--allow-tool", multiple=True, metavar="SERVER.TOOL", help="Let the agent call TOOL without asking.")
@click.option("--timeout", type=MORE_THAN_0, metavar="SECONDS", help="Time limit for one cell.")
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--export", metavar="NAME[,NAME]|*", help="Offer these MCP servers of yours too, behind policy.")
@click.option("--plain-names", is_flag=True, help="Keep the tools' names. Default: SERVER__TOOL.")
def mcp_server_command(
    place: str | None, with_agent: bool, ephemeral: bool, export: str | None, plain_names: bool, **given: Any
) -> None:
    """Offer Python sessions, and with --agent the agent, to an MCP client.

    Uses standard input and output unless --http is given. Approvals are asked of the client, and denied if the
    client cannot be asked.
    """
    http_only = [name for name in ("token_env", "host_name", "allow_origin") if given[name]]
    if place is None and http_only:
        raise click.UsageError(f"--{http_only[0].replace('_', '-')} goes with --http")
    if plain_names and not export:
        raise click.UsageError("--plain-names goes with --export")
    if given["model"] and not with_agent:
        raise click.UsageError("--model goes with --agent")
    # A resumed session gets only the data and mounts named now.
    nothing: dict[str, Any] = {"data": {}, "mounts": ()}
    seen = nothing | {key: value for key, value in mount_settings(given).items() if value is not None}
    flags = flags_of(given)
    if with_agent:
        flags["model.name"] = choose_model_name(given["workspace"], flags)
    terms = OpenTerms(workspace=given["workspace"], flags=flags, mounted=seen, ephemeral=ephemeral)
    from pinfold.front.http_server import is_loopback
    from pinfold.front.mcp_server import Offer, parse_address, serve_http, serve_stdio

    exports = tuple(filter(None, (name.strip() for name in (export or "").split(","))))
    offer = Offer(offering=ClientSessions(terms), with_agent=with_agent, exports=exports, plain_names=plain_names)
    if place is None:
        anyio.run(serve_stdio, offer)
        return

    where = parse_address(place, given["host_name"], given["allow_origin"])
    if not is_loopback(where.host) and not where.names:
        raise ConfigError(
            f"{where.host} can be reached from other machines: give its name with --host-name, and put TLS in front of it"
        )
    token, kept = server_token(given["token_env"], "mcp-server")

    def ready(address: str) -> None:
        tell(f"pinfold: MCP at {address}; the bearer token is in {kept}")

    anyio.run(serve_http, offer, where, token, ready)


def choose_model_name(workspace: Path | None, flags: dict[str, Any]) -> str:
    """The model, chosen once for all sessions."""
    session = new_session_id()
    try:
        return str(with_model(new_session_options(session, workspace, flags)).model)
    finally:
        forget_scratch(session)
