"""`pinfold doctor`: what works here, why the rest does not, and what to type."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator
from itertools import groupby

import anyio
import click

from pinfold.app.diagnostics.health import LIMIT_S, Health, run_checks
from pinfold.front.cli.flags import MORE_THAN_0
from pinfold.text import homely, presentable_line, without_known

_WIDEST = 100
_INDENT = 8
_NAMES = 14
"""Columns for what a line is about; a longer name goes beyond them."""


@click.command("doctor")
@click.option("--sandbox", "names", multiple=True, help="Only this one; else all but unsafe-local.")
@click.option(
    "--wait",
    type=MORE_THAN_0,
    default=LIMIT_S,
    metavar="SECONDS",
    help=f"How long each thing may take; {LIMIT_S:g} unless given.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor_command(names: tuple[str, ...], wait: float, as_json: bool) -> int:
    """Look at everything Pinfold needs and say what works, what does not, and how to fix it.

    Sandboxes, MCP servers and databases are really started or asked. Exits with 1 if there is a fault.
    Missing optional parts don't count as faults.
    """

    async def run_checkup() -> Health:
        return await run_checks(names, limit_s=wait)

    health = anyio.run(run_checkup)
    if as_json:
        click.echo(without_known(json.dumps(health.plain())))
    else:
        for line in page(health, columns=shutil.get_terminal_size().columns):
            click.echo(line)
    return 0 if health.ok else 1


def page(health: Health, columns: int = 80) -> Iterator[str]:
    """Lines that are fit to print, none wider than `columns`."""
    width = max(40, min(columns, _WIDEST))
    for section, findings in groupby(health.findings, key=lambda finding: finding.section):
        yield section
        for finding in findings:
            about = f"{presentable_line(finding.what):<{_NAMES}}"
            yield from _wrap_row(f"{about} {finding.words or finding.cause}".rstrip(), finding.standing, width)
            if finding.fix:
                yield from _wrap_row(f"{'':<{_NAMES}} fix: {finding.fix}", "", width)
    yield ""
    standings = [finding.standing for finding in health.findings]
    yield f"{_format_count(standings.count('fault'), 'fault')}, {_format_count(standings.count('note'), 'note')}"


def _format_count(count: int, word: str) -> str:
    return f"{count or 'no'} {word}{'' if count == 1 else 's'}"


def _wrap_row(text: str, standing: str, width: int) -> list[str]:
    return textwrap.wrap(
        presentable_line(homely(text)),
        width,
        initial_indent=f"  {standing:<{_INDENT - 2}}",
        subsequent_indent=" " * (_INDENT + _NAMES + 1),
        break_on_hyphens=False,
        break_long_words=False,
    )
