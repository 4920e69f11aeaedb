"""`pinfold serve`: sessions over HTTP for browsers and programs, in the foreground, as a daemon or under systemd."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import click

from pinfold.app import ConfigError, current_folder, private_dir, state_dir
from pinfold.app.clients import OpenTerms, ServedSessions, read_or_make_token
from pinfold.app.ownership import Daemon, RunningServer, record_server, running_server, stop_server
from pinfold.app.ownership.daemon import IDLE_S
from pinfold.front.cli.commands.servers import choose_model_name
from pinfold.front.cli.terminal import show, tell
from pinfold.front.flags import MORE_THAN_0, PATH, flags_of, mount_settings, session_options

_START_S = 120.0
_LOOK_AGAIN_S = 0.1
_NOT_RUNNING = "pinfold serve is not running"


@click.group("serve", invoke_without_command=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option("--token-file", type=PATH, metavar="FILE", help="Token of API clients; made if the file is not there.")
@click.option("--host-name", multiple=True, metavar="NAME[:PORT]", help="Another name this server is reached by.")
@click.option("--expose", is_flag=True, help="With --host and --token-file: let other machines connect.")
@click.option("--idle", type=MORE_THAN_0, default=IDLE_S, metavar="SECONDS", help="Close sessions unused for so long.")
@click.option("--daemon", "as_daemon", is_flag=True, help="Run in the background; `pinfold serve stop` ends it.")
@click.option("--unit", is_flag=True, help="Print a systemd user unit with these flags, and do nothing else.")
@session_options
@click.pass_context
def serve_command(ctx: click.Context, **given: Any) -> None:
    """Serve sessions over HTTP: the web page, the sessions API and the OpenAI API, until Ctrl-C.

    Other commands of yours work through it. Its sessions can be resumed afterwards, here or in the terminal.
    """
    if ctx.invoked_subcommand:
        return
    if given["unit"]:
        click.echo(_unit(_own_arguments("--unit")), nl=False)
    elif given["as_daemon"]:
        _start_daemon(given)
    else:
        _serve(given)


def _serve(given: dict[str, Any]) -> None:
    from pinfold.front.http_server import is_loopback
    from pinfold.front.server import Address, Started, serve

    address = Address(host=given["host"], port=given["port"], names=given["host_name"])
    if not is_loopback(address.host) and not (given["expose"] and given["token_file"]):
        raise ConfigError(
            f"{address.host} can be reached from other machines: that needs --expose and --token-file FILE, and TLS in front"
        )
    token_file = (given["token_file"] or _token_file()).absolute()
    token = read_or_make_token(token_file)
    flags = flags_of(given)
    flags["model.name"] = _model_or_none(given["workspace"], flags)
    mounted = {key: value for key, value in mount_settings(given).items() if value is not None}
    terms = OpenTerms(workspace=given["workspace"] or current_folder(), flags=flags, mounted=mounted)
    with ExitStack() as on_record:

        def ready(started: Started) -> None:
            on_record.enter_context(record_server(started.url, token_file))
            link = f"{started.url}/#code={started.code}"
            tell(f"pinfold: serving at {link}")
            tell(f"pinfold: {started.notice}; API clients use the token in {token_file}; Ctrl-C ends it")
            if not given["no_open"]:
                click.launch(link)

        anyio.run(serve, ServedSessions(terms, Daemon(idle_s=given["idle"])), address, token, ready)


def _model_or_none(workspace: Path | None, flags: dict[str, Any]) -> str | None:
    """The model of new sessions. Without one, cells can still be run."""
    try:
        return choose_model_name(workspace, flags)
    except ConfigError as error:
        tell(f"pinfold: no model yet: {error}")
        return None


def _token_file() -> Path:
    return private_dir(state_dir()) / "serve.token"


# --- in the background


def _start_daemon(given: dict[str, Any]) -> None:
    if running := running_server():
        raise ConfigError(f"pinfold serve runs already, at {running.url}; end it with: pinfold serve stop")
    log = private_dir(state_dir()) / "serve.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "pinfold", *_own_arguments("--daemon"), "--no-open"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    until = time.monotonic() + _START_S
    while (running := running_server()) is None or running.pid != child.pid:
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
    """This command as it was typed, but for one flag."""
    arguments = sys.argv[1:]
    return [argument for argument in arguments if argument != without]


def _login_link(running: RunningServer) -> str:
    """An address that a page can log in with."""
    import httpx2

    headers = {"Authorization": f"Bearer {read_or_make_token(Path(running.token_file))}"}
    answer = httpx2.post(f"{running.url}/api/codes", json={}, headers=headers, timeout=10, trust_env=False)
    return f"{running.url}/#code={answer.raise_for_status().json()['code']}"


@serve_command.command("open")
def open_command() -> None:
    """Open the page of the running server in the browser."""
    running = running_server()
    if running is None:
        raise ConfigError(f"{_NOT_RUNNING}; start it with: pinfold serve --daemon")
    link = _login_link(running)
    show(link)
    click.launch(link)


@serve_command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status_command(as_json: bool) -> int:
    """Say whether a server runs, and where."""
    running = running_server()
    if as_json:
        about = {"pid": running.pid, "url": running.url, "up_s": round(time.time() - running.began)} if running else {}
        click.echo(json.dumps({"running": running is not None, **about}))
    else:
        show(f"pinfold serve runs as process {running.pid} at {running.url}" if running else _NOT_RUNNING)
    return 0 if running else 1


@serve_command.command("stop")
def stop_command() -> int:
    """End the running server; its sessions can be resumed."""
    is_stopped = stop_server()
    show("pinfold serve has ended" if is_stopped else _NOT_RUNNING)
    return 0 if is_stopped else 1


@serve_command.command("token")
def token_command() -> None:
    """Print the token of API clients."""
    running = running_server()
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
