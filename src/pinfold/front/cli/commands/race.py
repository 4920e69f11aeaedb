"""`pinfold run --branches`: the same task several times at once, and the first that passes its check is kept."""

from __future__ import annotations

import signal
from typing import Any

import anyio
import click

from pinfold.app import Options, SessionStore, background
from pinfold.app.clients.best_of_n import BestOfN, describe_conflicts
from pinfold.events import Delta, Entry
from pinfold.front.cli.turn_output import JsonLines, Plain, show_notice
from pinfold.text import presentable


async def run_race(options: Options, prompt: str, shelf: SessionStore | None, given: dict[str, Any]) -> int:
    def show(item: Entry | Delta) -> None:
        if given["as_json"]:
            JsonLines().show(item)
        elif isinstance(item, Entry) and not given["quiet"]:
            show_notice(item)

    race = BestOfN(options, given["branches"], shelf=shelf, show=show, say=_say)
    async with background() as tasks:
        tasks.start_soon(_leave_on_signal)
        won = await race.run(prompt, given["check"])
    if won is None:
        _say(f"none of {given['branches']} branches passed the check; the files are as they were")
        return 1
    for line in describe_conflicts(won.brought):
        _say(line)
    _say(f"branch {won.branch.number} is kept, files changed: {len(won.brought.applied)}")
    if not given["as_json"]:
        Plain(quiet=True).answer(won.text)
    return 0


async def _leave_on_signal() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            raise KeyboardInterrupt


def _say(line: str) -> None:
    click.echo(presentable(f"pinfold: {line}"), err=True)
