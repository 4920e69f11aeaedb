"""The command line of the token benchmark: `./pinfold bench tokens`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

import anyio
import click

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.tokens.report import as_json, as_text
from bench.tokens.suite import SETS, SetName, measure_bfcl, measure_live, measure_tasks

from pinfold.events import PinfoldError
from pinfold.front.progress import ProgressDisplay
from pinfold.text import presentable_line


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--set",
    "of",
    type=click.Choice(("all", *SETS)),
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
@click.option("--answer", is_flag=True, help="Code ends a turn where it can, without a closing reply of the model.")
def run_benchmark(
    *, is_json: bool, of: Literal["all"] | SetName, tasks: tuple[str, ...], bfcl: Path | None, live: bool, answer: bool
) -> None:
    """Count the tokens of real sessions, and of what they are compared with.

    Sessions are played by the product itself, with a scripted model that makes no detour; tokens are those of o200k.
    """
    if bfcl is not None and (tasks or live or of != "all"):
        raise click.UsageError("--bfcl is a set of its own; leave --set, --task and --live out")
    if live and of == "held-out":
        raise click.UsageError("--live is for the public set; leave --set out")
    if live and answer:
        raise click.UsageError("--live and --answer do not go together; leave one out")
    rule = "answered" if answer else "closed"
    shown = ProgressDisplay()

    def show(what: str, done: int, all_: int) -> None:
        shown.show(what, done, all_, f"{done}/{all_}")

    try:
        if bfcl is not None:
            report = anyio.run(measure_bfcl, bfcl, show, rule)
        elif live:
            report = anyio.run(measure_live, tasks, show)
        else:
            report = anyio.run(measure_tasks, tasks, show, rule, SETS if of == "all" else (of,))
    except PinfoldError as error:
        click.echo(f"pinfold: {presentable_line(str(error))}", err=True)
        sys.exit(error.exit_code)
    finally:
        shown.end()
    if is_json:
        click.echo(json.dumps(as_json(report)))
    else:
        for line in as_text(report):
            click.echo(presentable_line(line))
    if report.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    run_benchmark(prog_name="pinfold bench tokens")
