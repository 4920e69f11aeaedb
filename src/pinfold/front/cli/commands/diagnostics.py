"""`pinfold doctor`, `cleanup`, `bench` and `map`: what works here, what is left over, and how it is connected."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from html import escape
from pathlib import Path

import anyio
import click

import pinfold
from pinfold.app import current_folder
from pinfold.app.diagnostics import Health, SystemMap, build_system_map, run_checks
from pinfold.app.diagnostics.health import LIMIT_S
from pinfold.app.diagnostics.system_map import plain
from pinfold.app.ownership import clean_up
from pinfold.app.storage.exports import Target
from pinfold.front.cli.terminal import show
from pinfold.front.flags import MORE_THAN_0, PATH
from pinfold.front.pages import map_page
from pinfold.text import abbreviate_home, pluralize, presentable_line, without_known

_WIDEST = 100
_INDENT = 8
_NAMES = 14
"""Columns for the name of a check; a longer name runs over."""


@click.command("doctor")
@click.option("--sandbox", "names", multiple=True, help="Check only this sandbox. Default: all but unsafe-local.")
@click.option(
    "--wait", type=MORE_THAN_0, default=LIMIT_S, metavar="SECONDS", show_default=True, help="Time limit for each check."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor_command(names: tuple[str, ...], wait: float, as_json: bool) -> int:
    """Check everything Pinfold needs: what works, what does not, and how to fix it.

    Starts every sandbox, MCP server and database connection. Exits with 1 if there is a fault.
    Missing optional parts don't count as faults.
    """
    health = anyio.run(partial(run_checks, names, limit_s=wait))
    if as_json:
        click.echo(without_known(json.dumps(health.plain())))
    else:
        for line in page(health, columns=shutil.get_terminal_size().columns):
            click.echo(line)
    return 0 if health.ok else 1


def page(health: Health, columns: int = 80) -> Iterator[str]:
    """Yield the report in lines no wider than `columns`."""
    width = max(40, min(columns, _WIDEST))
    for section, findings in health.findings.items():
        yield section
        for finding in findings:
            about = f"{presentable_line(finding.what):<{_NAMES}}"
            yield from _wrap_row(f"{about} {finding.words or finding.cause}".rstrip(), finding.standing, width)
            if finding.fix:
                yield from _wrap_row(f"{'':<{_NAMES}} fix: {finding.fix}", "", width)
    yield ""
    standings = [finding.standing for findings in health.findings.values() for finding in findings]
    counts = {word: standings.count(word) for word in ("fault", "note")}
    yield ", ".join(pluralize(word, count) if count else f"no {word}s" for word, count in counts.items())


def _wrap_row(text: str, standing: str, width: int) -> list[str]:
    return textwrap.wrap(
        presentable_line(abbreviate_home(text)),
        width,
        initial_indent=f"  {standing:<{_INDENT - 2}}",
        subsequent_indent=" " * (_INDENT + _NAMES + 1),
        break_on_hyphens=False,
        break_long_words=False,
    )


@click.command("cleanup")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cleanup_command(dry_run: bool, as_json: bool) -> None:
    """End processes and remove folders, sockets and control groups that a killed Pinfold left behind.

    Touches only what belongs to Pinfold and to you, and is not in use.
    """
    found = clean_up(dry_run=dry_run)
    if as_json:
        items = [{"kind": kind, "name": name} for kind, name in found]
        click.echo(json.dumps({"dry_run": dry_run, "leftovers": items}))
        return
    is_clean = True
    for kind, name in found:
        is_clean = False
        show(f"{'would be ' if dry_run else ''}{'ended' if kind == 'process' else 'removed'}: {kind} {name}")
    if is_clean:
        show("Nothing to clean up.")


# The checkout of this module, never the current folder: nothing from a workspace may run unasked.
_FOLDER = Path(pinfold.__file__).parents[2] / "bench"


@click.command("bench", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", metavar="NAME")
@click.argument("args", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
def bench_command(name: str, args: tuple[str, ...]) -> None:
    """Run a benchmark of a Pinfold checkout, such as `tokens`.

    Arguments after NAME go to the benchmark: `pinfold bench tokens --help`.
    """
    scripts = {path.stem: path for path in _FOLDER.glob("*.py")}
    scripts |= {path.parent.name: path for path in _FOLDER.glob("*/__main__.py")}
    if not scripts:
        raise click.UsageError(
            f"an installed Pinfold has no benchmarks; run ./pinfold bench {name} in a checkout of its repository"
        )
    if name not in scripts:
        raise click.UsageError(f"there is no benchmark {name!r}; there is {', '.join(sorted(scripts))}")
    os.execv(sys.executable, [sys.executable, str(scripts[name]), *args])


_FRONTS = ("run", "exec", "resume", "batch", "up", "serve", "mcp-server", "acp")
"""Commands that start turns, if installed."""
_SHAPES = {
    "person": ("([", "])"),
    "engine": ("{{", "}}"),
    "model": ("(", ")"),
    "place": (">", "]"),
    "store": ("[(", ")]"),
    "database": ("[(", ")]"),
}
_ESCAPED = re.compile(r"[#\"<>&`|\[\]{}()\\;]")
_LONGEST = 60
_SVG_COLUMNS = 160


@click.command("map")
@click.option("--to", "form", type=click.Choice(["mermaid", "svg", "text"]), default="mermaid", help="Output format.")
@click.option("-o", "--output", type=PATH, help="Write to this file instead of stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print nodes and edges as one JSON object.")
@click.pass_context
def map_command(ctx: click.Context, form: str, output: Path | None, as_json: bool) -> None:
    """Draw how this installation is connected: models, sandbox, tools, servers, databases, files.

    It shows what is configured and installed right now.
    """
    group = ctx.parent.command if ctx.parent else None
    there = group.list_commands(ctx) if isinstance(group, click.Group) else []
    fronts = ["chat", *(name for name in _FRONTS if name in there)]
    found = anyio.run(build_system_map, current_folder(), fronts)
    if as_json:
        text = without_known(json.dumps(plain(found)))
    elif form == "svg":
        text = svg(found)
    elif form == "text":
        text = "\n".join(map_page(found))
    else:
        text = "\n".join(mermaid(found))
    if output is None:
        click.echo(text)
        return
    with Target(output, [Path.cwd()]) as target:
        target.write(f"{text}\n".encode("utf-8", "replace"), force=True)


def mermaid(found: SystemMap) -> Iterator[str]:
    """Yield a mermaid flowchart, line by line."""
    yield "flowchart LR"
    ids = {node.id: f"n{number}" for number, node in enumerate(found.nodes)}
    for node in found.nodes:
        opens, closes = _SHAPES.get(node.kind, ("[", "]"))
        lines = "<br/>".join(map(_quote_label, (node.title, *node.lines)))
        yield f'  {ids[node.id]}{opens}"{lines}"{closes}'
    for edge in found.edges:
        words = f'|"{_quote_label(edge.words)}"|' if edge.words else ""
        yield f"  {ids[edge.source]} -->{words} {ids[edge.target]}"
    if faulty := [ids[node.id] for node in found.nodes if node.faulty]:
        yield "  classDef fault stroke:#b3261e,stroke-width:3px"
        yield f"  class {','.join(faulty)} fault"


def svg(found: SystemMap) -> str:
    """Draw the text form of the map as a picture."""
    lines = list(map_page(found, _SVG_COLUMNS))
    width, height = 8 * max(map(len, lines)) + 32, 18 * len(lines) + 32
    rows = (
        f'<text x="16" y="{32 + 18 * number}" xml:space="preserve">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    ground = '<title>How this installation is connected</title><rect width="100%" height="100%" fill="white"/>'
    return "\n".join((f'{head}font-family="monospace" font-size="13">{ground}', *rows, "</svg>"))


def _quote_label(text: str) -> str:
    """Escape what mermaid would read as syntax."""
    line = presentable_line(text)
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
    return _ESCAPED.sub(lambda found: f"#{ord(found[0])};", line)
