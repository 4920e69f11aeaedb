"""Sessions as files for people and other programs: a notebook, a page, markdown, a program.

Not among the names of `pinfold.app`: few commands need it, and all would wait for it.
"""

from pinfold.app.storage.exports.display_files import display_file, label_stored_display
from pinfold.app.storage.exports.displays import Form, display_label
from pinfold.app.storage.exports.export_files import (
    SessionExport,
    export_name,
    export_session,
    find_outside_source,
    form_for,
    save,
    session_bytes,
    writable_folders,
)
from pinfold.app.storage.exports.formats import EXPORT_FORMS, ExportForm, RenderedSession, render_session
from pinfold.app.storage.exports.target import Target
from pinfold.app.storage.exports.transcript import ReadBlob, Transcript, build_transcript, display_form, displays_in

__all__ = [
    "EXPORT_FORMS",
    "ExportForm",
    "Form",
    "ReadBlob",
    "RenderedSession",
    "SessionExport",
    "Target",
    "Transcript",
    "build_transcript",
    "display_file",
    "display_form",
    "display_label",
    "displays_in",
    "export_name",
    "export_session",
    "find_outside_source",
    "form_for",
    "label_stored_display",
    "render_session",
    "save",
    "session_bytes",
    "writable_folders",
]
