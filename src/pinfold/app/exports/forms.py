"""The forms a session can be told in. Pure: entries and blobs in, bytes out; what a form needs is loaded for it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct

from pinfold.app.exports.story import ReadBlob, story
from pinfold.events import Entry

ExportForm: TypeAlias = Literal["ipynb", "md", "html", "py"]
EXPORT_FORMS: tuple[ExportForm, ...] = ("ipynb", "md", "html", "py")


class Exported(Struct, frozen=True, kw_only=True):
    data: bytes
    files: Mapping[str, bytes] = {}
    """That lie beside it, by their relative path."""


def exported(
    form: ExportForm, entries: Sequence[Entry], blob: ReadBlob, *, folder: str | None = None
) -> Exported:
    """A session as a file. `folder`: where pictures of markdown go; None puts them inside."""
    told = story(entries, blob)
    match form:
        case "ipynb":
            from pinfold.app.exports.ipynb import to_ipynb

            return Exported(data=to_ipynb(told))
        case "md":
            from pinfold.app.exports.md import to_md

            data, beside = to_md(told, folder)
            return Exported(data=data, files=beside)
        case "html":
            from pinfold.app.exports.html import to_html

            return Exported(data=to_html(told))
        case "py":
            from pinfold.app.exports.percent import to_py

            return Exported(data=to_py(told))
        case _:
            assert_never(form)
