"""The forms a session can be told in. Pure: entries and blobs in, bytes out; what a form needs is loaded for it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct

from pinfold.app.storage.exports.transcript import ReadBlob, build_transcript
from pinfold.events import Entry

ExportForm: TypeAlias = Literal["ipynb", "md", "html", "py"]
EXPORT_FORMS: tuple[ExportForm, ...] = ("ipynb", "md", "html", "py")


class RenderedSession(Struct, frozen=True, kw_only=True):
    data: bytes
    files: Mapping[str, bytes] = {}
    """That lie beside it, by their relative path."""


def render_session(
    form: ExportForm, entries: Sequence[Entry], blob: ReadBlob, *, folder: str | None = None
) -> RenderedSession:
    """A session as a file. `folder`: where pictures of markdown go; None puts them inside."""
    told = build_transcript(entries, blob)
    match form:
        case "ipynb":
            from pinfold.app.storage.exports.ipynb import to_ipynb

            return RenderedSession(data=to_ipynb(told))
        case "md":
            from pinfold.app.storage.exports.md import to_md

            data, beside = to_md(told, folder)
            return RenderedSession(data=data, files=beside)
        case "html":
            from pinfold.app.storage.exports.html import to_html

            return RenderedSession(data=to_html(told))
        case "py":
            from pinfold.app.storage.exports.percent import to_py

            return RenderedSession(data=to_py(told))
        case _:
            assert_never(form)
