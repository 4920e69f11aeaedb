"""Sessions as files for people and other programs: a notebook, a page, markdown, a program.

Not exported from `pinfold.app`, because few commands need it and it is slow to load.
"""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.storage.exports.export_files import (
    EXPORT_FORMS,
    SessionExport,
    Target,
    display_file,
    export_name,
    find_outside_source,
    form_for,
    label_stored_display,
    render_session,
    save,
    session_bytes,
    writable_folders,
)
from pinfold.app.storage.exports.transcript import Form, build_transcript, display_form, display_label, displays_in
