"""Tools as modules of Python: what `from servers.github import list_issues` imports in the session."""

from pinfold.tools.stubs.forms import Form, bare_call, form_of, short_call
from pinfold.tools.stubs.modules import (
    argument_lines,
    first_sentence,
    local_name,
    module_source,
    signature,
    tools_by_name,
)
from pinfold.tools.stubs.shapes import identifiers, module_names

__all__ = [
    "Form",
    "argument_lines",
    "bare_call",
    "first_sentence",
    "form_of",
    "identifiers",
    "local_name",
    "module_names",
    "module_source",
    "short_call",
    "signature",
    "tools_by_name",
]
