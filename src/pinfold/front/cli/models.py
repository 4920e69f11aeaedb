"""`pinfold model`: models of this machine."""

from __future__ import annotations

import time

import anyio
import click

from pinfold.app.local_models import Pulling, pull_model, pulled
from pinfold.front.cli.progress import say, shown_progress

_PHASES = {"wait": "waiting for another pull", "download": "downloading", "check": "checking"}


@click.group("model")
def model_command() -> None:
    """List, fetch and serve models of this machine."""


@model_command.command("pull")
@click.argument("name", metavar="builtin|builtin-small|smollm2|ollama:NAME")
def pull(name: str) -> None:
    """Fetch a model: weights for Pinfold's own use, or a model for Ollama.

    What is here already is left as it is, and nothing is printed. A pull that broke off goes on where it was.
    """
    shown = shown_progress(step=0.1)
    began = time.monotonic()

    def show(pulling: Pulling) -> None:
        counted = f"{pulling.done / 1e6:,.0f} of {pulling.total / 1e6:,.0f} MB" if pulling.total else ""
        shown.show(_PHASES[pulling.phase], pulling.done, pulling.total, counted)

    try:
        path = anyio.run(pull_model, name, show)
    finally:
        shown.end()
    if shown.began:
        what = f"{pulled(name)[0].title}, {path}" if path else name
        say(f"ready in {time.monotonic() - began:.0f} s: {what}")
