"""`pinfold bench`: runs a benchmark of `bench/`, which only a checkout has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

import pinfold

# Where this very code lies, never the current folder: nothing of a workspace runs unasked.
_FOLDER = Path(pinfold.__file__).parents[2] / "bench"


@click.command("bench", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", metavar="NAME")
@click.argument("args", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
def bench_command(name: str, args: tuple[str, ...]) -> None:
    """Run a benchmark of a Pinfold checkout, such as `tokens`.

    What follows NAME is for the benchmark: `pinfold bench tokens --help`.
    """
    scripts = {path.stem: path for path in _FOLDER.glob("*.py")}
    scripts |= {path.parent.name: path for path in _FOLDER.glob("*/__main__.py")}
    if not scripts:
        raise click.UsageError(
            f"an installed Pinfold has no benchmarks; run ./pinfold bench {name} in a checkout of its repository"
        )
    if name not in scripts:
        raise click.UsageError(f"there is no benchmark {name!r}; there is {', '.join(sorted(scripts))}")
    os.execv(sys.executable, [sys.executable, str(scripts[name]), *args])  # noqa: S606 - of this checkout, without a shell
