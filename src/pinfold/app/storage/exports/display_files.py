"""One display of a session as a file a person can open."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from pinfold.app.paths import private_dir
from pinfold.app.storage.exports.displays import Form, best_of, display_label, suffix_of
from pinfold.app.storage.exports.target import Target
from pinfold.app.storage.exports.transcript import ReadBlob, ShownDisplay, display_form
from pinfold.events import DisplayRef, Entry, PinfoldError

_RUNS = ("text/html", "image/svg+xml")
"""What a browser would run."""


def display_file(
    folder: Path, entries: Sequence[Entry], blob: ReadBlob, number: int, mime: str | None = None, *, safe: bool
) -> Path:
    """In the session's own folder. `safe`: what a browser would run comes inside a page in which nothing runs."""
    form = display_form(entries, blob, number, mime)
    place = private_dir(folder / "displays")
    if safe and form.mime in _RUNS:
        from pinfold.app.storage.exports.html import display_page

        path = place / f"{number}-safe.html"
        data = display_page(ShownDisplay(number=number, forms={form.mime: form}))
    else:
        path, data = place / f"{number}.{suffix_of(form.mime)}", form.data
    with Target(path) as target:
        target.write(data, force=True)
    return path


def label_stored_display(number: int, display: DisplayRef, blob: ReadBlob) -> str:
    """`display 3: image/png 640x480`."""
    best = best_of(display.mime)
    forms: dict[str, Form] = {}
    if best is not None:
        with contextlib.suppress(PinfoldError):
            forms[best] = Form(mime=best, data=blob(display.mime[best]))
    return display_label(number, forms)
