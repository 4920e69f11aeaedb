"""`pinfold serve`, `up` and `mcp-server`: serve browsers and programs, other commands, or MCP clients."""

from __future__ import annotations

import json
import shlex
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import click

from pinfold.app import (
    ConfigError,
    SessionStore,
    background,
    current_folder,
    forget_scratch,
    new_session_options,
    ownership,
    private_dir,
    state_dir,
)
from pinfold.app.clients import ClientSessions, OpenTerms, ServedSessions, read_or_make_token, server_token
from pinfold.app.ownership.daemon import IDLE_S, POOL
from pinfold.events import Json, new_session_id
from pinfold.front.cli.commands.run import with_model
from pinfold.front.cli.terminal import show, start_in_background, tell
from pinfold.front.flags import MORE_THAN_0, PATH, Flags, access_options, flags_of, mount_settings, session_options
from pinfold.front.signals import receive_stop_signals


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
        is_closed = anyio.run(ownership.ask_daemon, {"op": "close", "session": found}) is not None
        return _report_result(is_closed, f"{found} is closed")
    if what == "status":
        return _status(anyio.run(ownership.ask_daemon, {"op": "status"}), ownership.running_helper(), as_json)
    if what == "stop":
        helper_has_ended, up_has_ended = ownership.stop_helper(), anyio.run(ownership.stop_daemon)
        if helper_has_ended:
            show("the warm helper has ended")
        return 0 if helper_has_ended and not up_has_ended else _report_result(up_has_ended, "pinfold up has ended")
    anyio.run(_serve_until_signal, ownership.Daemon(idle_s=idle, pool=pool))
    return 0


async def _serve_until_signal(up: ownership.Daemon) -> None:
    async def stop_on_signal() -> None:
        with receive_stop_signals() as signals:
            await anext(signals)
            up.stop()
            await anext(signals)
        raise KeyboardInterrupt

    async with background() as tasks:
        tasks.start_soon(stop_on_signal)
        await up.serve(lambda words: show(f"pinfold up: ready, {words}; Ctrl-C ends it"))


def _status(answer: dict[str, Json] | None, helper: ownership.Helper | None, as_json: bool) -> int:
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
@click.option(
    "--host-name", multiple=True, metavar="NAME[:PORT]", help="Another name that clients use for this server."
)
@click.option("--allow-origin", multiple=True, metavar="URL", help="Web page that may use --http.")
@click.option("--agent", "with_agent", is_flag=True, help="Also offer the agent, as the tool `ask`.")
@click.option("--model", help="The agent's model, as for `run`.")
@access_options
@click.option("--allow-host", multiple=True, metavar="HOST", help="Let code connect to HOST without asking.")
@click.option("--allow-tool", multiple=True, metavar="SERVER.TOOL", help="Let the agent call TOOL without asking.")
@click.option("--timeout", type=MORE_THAN_0, metavar="SECONDS", help="Time limit for one cell.")
@click.option("--ephemeral", is_flag=True, help="Leave nothing on disk.")
@click.option("--export", metavar="NAME[,NAME]|*", help="Also offer these of your MCP servers; policy applies.")
@click.option("--plain-names", is_flag=True, help="With --export: do not prefix tools with SERVER__.")
def mcp_server_command(
    place: str | None, with_agent: bool, ephemeral: bool, export: str | None, plain_names: bool, **given: Any
) -> None:
    """Offer Python sessions, and with --agent the agent, to an MCP client.

    Uses standard input and output unless --http is given. What needs approval is put to the client's user, and denied
    if the client cannot ask.
    """
    http_only = [name for name in ("token_env", "host_name", "allow_origin") if given[name]]
    if place is None and http_only:
        raise click.UsageError(f"--{http_only[0].replace('_', '-')} needs --http")
    if plain_names and not export:
        raise click.UsageError("--plain-names needs --export")
    if given["model"] and not with_agent:
        raise click.UsageError("--model needs --agent")
    # A resumed session gets only the data and mounts named now.
    nothing: Flags = {"data": {}, "mounts": ()}
    seen = nothing | {key: value for key, value in mount_settings(given).items() if value is not None}
    flags = flags_of(given)
    if with_agent:
        flags["model.name"] = choose_model_name(given["workspace"], flags)
    terms = OpenTerms(workspace=given["workspace"], flags=flags, mounted=seen, ephemeral=ephemeral)
    from pinfold.front.http_server import is_loopback
    from pinfold.front.mcp_server import Offer, parse_address, serve_http, serve_stdio

    exports = tuple(filter(None, (name.strip() for name in (export or "").split(","))))
    offer = Offer(
        client_sessions=ClientSessions(terms), with_agent=with_agent, exports=exports, plain_names=plain_names
    )
    if place is None:
        anyio.run(serve_stdio, offer)
        return

    where = parse_address(place, given["host_name"], given["allow_origin"])
    if not is_loopback(where.host) and not where.names:
        raise ConfigError(f"other machines can reach {where.host}: name it with --host-name, and put TLS in front")
    token, kept = server_token(given["token_env"], "mcp-server")

    def ready(address: str) -> None:
        tell(f"pinfold: MCP at {address}; the bearer token is in {kept}")

    anyio.run(serve_http, offer, where, token, ready)


def choose_model_name(workspace: Path | None, flags: Flags) -> str:
    """Choose the model once for all sessions, and return its name."""
    session = new_session_id()
    try:
        return str(with_model(new_session_options(session, workspace, flags)).model)
    finally:
        forget_scratch(session)


_START_S = 120.0
_LOOK_AGAIN_S = 0.1
_NOT_RUNNING = "pinfold serve is not running"


@click.group("serve", invoke_without_command=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 for any free one."
)
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option("--token-file", type=PATH, metavar="FILE", help="File with the token of API clients; created if missing.")
@click.option(
    "--host-name", multiple=True, metavar="NAME[:PORT]", help="Another name that clients use for this server."
)
@click.option("--expose", is_flag=True, help="With --host and --token-file: let other machines connect.")
@click.option(
    "--idle", type=MORE_THAN_0, default=IDLE_S, metavar="SECONDS", help="Close sessions unused for this long."
)
@click.option("--daemon", "as_daemon", is_flag=True, help="Run in the background; `pinfold serve stop` ends it.")
@click.option("--unit", is_flag=True, help="Print a systemd user unit with these flags, and do nothing else.")
@session_options
@click.pass_context
def serve_command(ctx: click.Context, **given: object) -> None:
    """Serve sessions over HTTP: the web page, the sessions API and the OpenAI API, until Ctrl-C.

    Your other commands use it automatically. You can resume its sessions afterwards, here or in the terminal.
    """
    if ctx.invoked_subcommand:
        return
    if given["unit"]:
        click.echo(_unit(_own_arguments("--unit")), nl=False)
    elif given["as_daemon"]:
        _start_daemon(given)
    else:
        _serve(given)


def _serve(given: Flags) -> None:
    from pinfold.front.http_server import is_loopback
    from pinfold.front.server import Address, Started, serve

    address = Address(host=given["host"], port=given["port"], names=given["host_name"])
    if not is_loopback(address.host) and not (given["expose"] and given["token_file"]):
        raise ConfigError(
            f"other machines can reach {address.host}: use --expose and --token-file FILE, with TLS in front"
        )
    token_file = (given["token_file"] or _token_file()).absolute()
    token = read_or_make_token(token_file)
    flags = flags_of(given)
    flags["model.name"] = _model_or_none(given["workspace"], flags)
    mounted = {key: value for key, value in mount_settings(given).items() if value is not None}
    terms = OpenTerms(workspace=given["workspace"] or current_folder(), flags=flags, mounted=mounted)
    with ExitStack() as on_record:

        def ready(started: Started) -> None:
            on_record.enter_context(ownership.record_server(started.url, token_file))
            link = f"{started.url}/#code={started.code}"
            tell(f"pinfold: serving at {link}")
            tell(f"pinfold: {started.notice}; API clients use the token in {token_file}; Ctrl-C ends it")
            if not given["no_open"]:
                click.launch(link)

        anyio.run(serve, ServedSessions(terms, ownership.Daemon(idle_s=given["idle"])), address, token, ready)


def _model_or_none(workspace: Path | None, flags: Flags) -> str | None:
    """Return the model of new sessions. None if there is no model: cells can still be run."""
    try:
        return choose_model_name(workspace, flags)
    except ConfigError as error:
        tell(f"pinfold: {error}")
        return None


def _token_file() -> Path:
    return private_dir(state_dir()) / "serve.token"


# --- in the background


def _start_daemon(given: Flags) -> None:
    if running := ownership.running_server():
        raise ConfigError(f"pinfold serve runs already, at {running.url}; end it with: pinfold serve stop")
    log = private_dir(state_dir()) / "serve.log"
    log.unlink(missing_ok=True)
    child = start_in_background([*_own_arguments("--daemon"), "--no-open"], log)
    until = time.monotonic() + _START_S
    while (running := ownership.running_server()) is None or running.pid != child.pid:
        if child.poll() is not None:
            raise ConfigError(f"pinfold serve did not start: {log.read_text('utf-8', 'replace').strip()}")
        if time.monotonic() > until:
            raise ConfigError(f"pinfold serve has not started after {_START_S:g} s; {log} may say why")
        time.sleep(_LOOK_AGAIN_S)
    link = _login_link(running)
    show(f"pinfold serve runs as process {running.pid} at {link}")
    if not given["no_open"]:
        click.launch(link)


def _own_arguments(without: str) -> list[str]:
    """Return this command's arguments as typed, without one flag."""
    return [argument for argument in sys.argv[1:] if argument != without]


def _login_link(running: ownership.RunningServer) -> str:
    """Return the address of the page, with a code that logs it in."""
    import httpx2

    headers = {"Authorization": f"Bearer {read_or_make_token(Path(running.token_file))}"}
    answer = httpx2.post(f"{running.url}/api/codes", json={}, headers=headers, timeout=10, trust_env=False)
    return f"{running.url}/#code={answer.raise_for_status().json()['code']}"


@serve_command.command("open")
def open_command() -> None:
    """Open the page of the running server in the browser."""
    running = ownership.running_server()
    if running is None:
        raise ConfigError(f"{_NOT_RUNNING}; start it with: pinfold serve --daemon")
    link = _login_link(running)
    show(link)
    click.launch(link)


@serve_command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status_command(as_json: bool) -> int:
    """Say whether a server runs, and where."""
    running = ownership.running_server()
    if as_json:
        about = {"pid": running.pid, "url": running.url, "up_s": round(time.time() - running.began)} if running else {}
        click.echo(json.dumps({"running": running is not None, **about}))
    else:
        show(f"pinfold serve runs as process {running.pid} at {running.url}" if running else _NOT_RUNNING)
    return 0 if running else 1


@serve_command.command("stop")
def stop_command() -> int:
    """End the running server; its sessions can be resumed."""
    is_stopped = ownership.stop_server()
    show("pinfold serve has ended" if is_stopped else _NOT_RUNNING)
    return 0 if is_stopped else 1


@serve_command.command("token")
def token_command() -> None:
    """Print the token of API clients."""
    running = ownership.running_server()
    click.echo(read_or_make_token(Path(running.token_file) if running else _token_file()))


def _unit(arguments: list[str]) -> str:
    command = shlex.join([sys.executable, "-m", "pinfold", *arguments, "--no-open"])
    return f"""[Unit]
Description=Pinfold: sessions for browsers and programs

[Service]
ExecStart={command}
WorkingDirectory={current_folder()}
Restart=on-failure
KillSignal=SIGTERM
TimeoutStopSec=40

[Install]
WantedBy=default.target
"""
