"""`pinfold map`: the wiring of this installation, as mermaid, as a picture, as text, or as data."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import click

from pinfold.app import current_folder
from pinfold.app.diagnostics.system_map import SystemMap, build_system_map, plain
from pinfold.app.storage.exports import Target
from pinfold.front.pages import cut
from pinfold.text import presentable_line, without_known

_FRONTS = ("run", "exec", "resume", "batch", "up", "serve", "mcp-server", "acp")
"""Commands by which something reaches the engine, where they are there."""
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


@click.command("map")
@click.option("--to", "form", type=click.Choice(["mermaid", "svg", "text"]), default="mermaid", help="What to print.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Into this file rather than to stdout.")
@click.option("--json", "as_json", is_flag=True, help="Nodes and edges as one JSON object.")
@click.pass_context
def map_command(ctx: click.Context, form: str, output: Path | None, as_json: bool) -> None:
    """Draw how this installation is wired: models, sandbox, tools, servers, databases, stores.

    It is read from what is configured and installed now: take a server out, and it is gone from here.
    """
    group = ctx.parent.command if ctx.parent else None
    there = group.list_commands(ctx) if isinstance(group, click.Group) else []
    fronts = ["chat", *(name for name in _FRONTS if name in there)]
    found = anyio.run(build_system_map, current_folder(), fronts)
    if as_json:
        text = without_known(json.dumps(plain(found)))
    elif form == "svg":
        from pinfold.front.cli.svg import svg

        text = svg(found)
    elif form == "text":
        text = "\n".join(outline(found))
    else:
        text = "\n".join(mermaid(found))
    if output is None:
        click.echo(text)
        return
    with Target(output, [Path.cwd()]) as target:
        target.write(f"{text}\n".encode("utf-8", "replace"), force=True)


def mermaid(found: SystemMap) -> Iterator[str]:
    """A flowchart, line by line."""
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


def outline(found: SystemMap, width: int = 0) -> Iterator[str]:
    """To be read as it is: each thing with what is known of it and what it leads to."""
    titles = {node.id: presentable_line(node.title) for node in found.nodes}
    width = width or shutil.get_terminal_size().columns
    for node in found.nodes:
        yield cut(f"{titles[node.id]}{' (fault)' if node.faulty else ''}", width)
        yield from (cut(f"    {presentable_line(line)}", width) for line in node.lines)
        for edge in found.edges:
            if edge.source == node.id:
                words = f"{presentable_line(edge.words)} " if edge.words else ""
                yield cut(f"  -> {words}{titles[edge.target]}", width)


def _quote_label(text: str) -> str:
    """Nothing in it is taken for syntax: by numbers, as mermaid has it."""
    line = presentable_line(text)
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
    return _ESCAPED.sub(lambda found: f"#{ord(found[0])};", line)
