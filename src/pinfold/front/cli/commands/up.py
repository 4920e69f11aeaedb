"""`pinfold up`: a background process that keeps sandboxes and sessions ready."""

from __future__ import annotations

import json
import signal
from typing import Any

import anyio
import click

from pinfold.app import SessionStore, background
from pinfold.app.ownership import Daemon, Helper, ask_daemon, running_helper, stop_daemon, stop_helper
from pinfold.app.ownership.daemon import IDLE_S, POOL
from pinfold.front.flags import MORE_THAN_0
from pinfold.text import presentable_line


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
        return _report_result(
            anyio.run(ask_daemon, {"op": "close", "session": found}) is not None, f"{found} is closed"
        )
    if what == "status":
        return _status(anyio.run(ask_daemon, {"op": "status"}), running_helper(), as_json)
    if what == "stop":
        helper_has_ended, up_has_ended = stop_helper(), anyio.run(stop_daemon)
        if helper_has_ended:
            click.echo("the warm helper has ended")
        return 0 if helper_has_ended and not up_has_ended else _report_result(up_has_ended, "pinfold up has ended")
    anyio.run(_stay, idle, pool)
    return 0


async def _stay(idle_s: float, pool: int) -> None:
    up = Daemon(idle_s=idle_s, pool=pool)
    async with background() as tasks:
        tasks.start_soon(_stop_on_signal, up)
        await up.serve(lambda words: click.echo(presentable_line(f"pinfold up: ready, {words}; Ctrl-C ends it")))


async def _stop_on_signal(up: Daemon) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            break
        up.stop()
        async for _ in signals:
            break
    raise KeyboardInterrupt


def _status(answer: dict[str, Any] | None, helper: Helper | None, as_json: bool) -> int:
    if as_json:
        about = {"pid": helper.pid, "mb": helper.mb} if helper else None
        click.echo(json.dumps({"running": answer is not None, **(answer or {}), "helper": about}))
        return 0 if answer else 1
    if helper:
        click.echo(f"the warm helper runs as process {helper.pid} with {helper.mb} MB; --stop ends it")
    if answer is None:
        return _report_result(False, "")
    held = ", ".join(answer["sessions"]) or "none"
    warm = f"{answer['warm']} is warm" if answer["warm"] else "nothing is warm"
    return _report_result(True, f"pinfold up runs as process {answer['pid']}: {warm}; sessions: {held}")


def _report_result(done: bool, words: str) -> int:
    click.echo(presentable_line(words) if done else "pinfold up is not running")
    return 0 if done else 1
