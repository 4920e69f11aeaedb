"""Fetching a model where the user can see how far it is."""

from __future__ import annotations

import os
import signal
import sys
import time

import anyio

from pinfold.app.models.local_models import Pulling, find_weights, pull_model
from pinfold.front.cli.progress import make_progress_display, say

_PHASES = {"wait": "waiting for another pull", "download": "downloading", "check": "checking"}


def fetch(name: str) -> None:
    """Says nothing if it is here already. Raises PinfoldError."""
    shown = make_progress_display(step=0.1)
    began = time.monotonic()

    def show(pulling: Pulling) -> None:
        counted = f"{pulling.done / 1e6:,.0f} of {pulling.total / 1e6:,.0f} MB" if pulling.total else ""
        shown.show(_PHASES[pulling.phase], pulling.done, pulling.total, counted)

    def leave(*_: object) -> None:
        """At once: else a look-up of a host's name is waited for. What came can be taken up wherever it was cut off."""
        clear = "\r\x1b[K" if sys.stderr.isatty() else ""
        os.write(2, f"{clear}pinfold: left; what was fetched is kept, and the next pull goes on from there\n".encode())
        os._exit(130)

    before = signal.signal(signal.SIGINT, leave)
    try:
        path = anyio.run(pull_model, name, show)
    finally:
        signal.signal(signal.SIGINT, before)
        shown.end()
    if shown.began:
        what = f"{find_weights(name)[0].title}, {path}" if path else name
        say(f"ready in {time.monotonic() - began:.0f} s: {what}")
