"""`pinfold bench`: measures that anyone can repeat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
import click

from pinfold.front.cli.progress import shown_progress
from pinfold.text import presentable_line

if TYPE_CHECKING:
    from pinfold.app.bench import SetName


class _Benches(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in self.commands and not name.startswith("-"):
            ctx.fail(f"there is no bench {name!r}; there is {', '.join(self.commands)}.")
        return super().resolve_command(ctx, args)


@click.group("bench", cls=_Benches)
def bench_command() -> None:
    """Measure Pinfold, offline and repeatably."""


@bench_command.command("tokens")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--set",
    "of",
    type=click.Choice(("all", "public", "held-out")),
    default="all",
    show_default=True,
    help="Which tasks: all, those that Pinfold was tuned on, or those that it was not.",
)
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Only this task; may be repeated.")
@click.option(
    "--bfcl",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The public multi-turn set instead: a copy of bfcl_eval of the Berkeley leaderboard.",
)
@click.option("--live", is_flag=True, help="Let the built-in model do some of the tasks, beside the script.")
@click.option(
    "--answer", is_flag=True, help="Code ends a turn where it can, without a closing reply of the model."
)
def tokens_command(
    *,
    as_json: bool,
    of: Literal["all"] | SetName,
    tasks: tuple[str, ...],
    bfcl: Path | None,
    live: bool,
    answer: bool,
) -> None:
    """Count the tokens of real sessions, and of what they are compared with.

    Sessions are played by the product itself, with a scripted model that makes no detour; tokens are those of o200k.
    """
    from pinfold.app import bench

    if bfcl is not None and (tasks or live or of != "all"):
        raise click.UsageError("--bfcl is a set of its own; leave --set, --task and --live out")
    if live and of == "held-out":
        raise click.UsageError("--live is for the public set; leave --set out")
    if live and answer:
        raise click.UsageError("--live and --answer do not go together; leave one out")
    rule = "answered" if answer else "closed"
    shown = shown_progress()

    def show(what: str, done: int, all_: int) -> None:
        shown.show(what, done, all_, f"{done}/{all_}")

    try:
        if bfcl is not None:
            report = anyio.run(bench.tokens_of_bfcl, bfcl, show, rule)
        elif live:
            report = anyio.run(bench.tokens_live, tasks, show)
        else:
            sets = bench.SETS if of == "all" else (of,)
            report = anyio.run(bench.tokens_of_tasks, tasks, show, rule, sets)
    finally:
        shown.end()
    if as_json:
        click.echo(json.dumps(bench.as_json(report)))
    else:
        for line in bench.as_text(report):
            click.echo(presentable_line(line))
    if report.failed:
        raise SystemExit(1)
