"""Sessions as files for people and other programs: a notebook, a page, markdown, a program.

Not among the names of `pinfold.app`: few commands need it, and all would wait for it.
"""

from pinfold.app.exports.forms import EXPORT_FORMS, Exported, ExportForm, exported
from pinfold.app.exports.saving import (
    SessionExport,
    export_name,
    export_session,
    form_for,
    outside_text_of,
    save,
    session_bytes,
    writable_folders,
)
from pinfold.app.exports.showing import Form, in_a_word
from pinfold.app.exports.story import ReadBlob, Story, display_form, displays_in, story
from pinfold.app.exports.target import Target
from pinfold.app.exports.viewing import display_file, display_in_words

__all__ = [
    "EXPORT_FORMS",
    "ExportForm",
    "Exported",
    "Form",
    "ReadBlob",
    "SessionExport",
    "Story",
    "Target",
    "display_file",
    "display_form",
    "display_in_words",
    "displays_in",
    "export_name",
    "export_session",
    "exported",
    "form_for",
    "in_a_word",
    "outside_text_of",
    "save",
    "session_bytes",
    "story",
    "writable_folders",
]
