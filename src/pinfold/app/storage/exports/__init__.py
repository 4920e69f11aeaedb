"""Sessions as files for people and other programs: a notebook, a page, markdown, a program.

Not among the names of `pinfold.app`: few commands need it, and all would wait for it.
"""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.storage.exports.displays import Form, display_label
from pinfold.app.storage.exports.export_files import (
    EXPORT_FORMS,
    ExportForm,
    RenderedSession,
    SessionExport,
    Target,
    display_file,
    export_name,
    export_session,
    find_outside_source,
    form_for,
    label_stored_display,
    render_session,
    save,
    session_bytes,
    writable_folders,
)
from pinfold.app.storage.exports.transcript import ReadBlob, Transcript, build_transcript, display_form, displays_in
