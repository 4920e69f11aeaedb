"""Tools as modules of Python: what `from servers.github import list_issues` imports in the session."""

from pinfold.tools.stubs.forms import Form, form_of
from pinfold.tools.stubs.modules import (
    argument_lines,
    first_sentence,
    local_name,
    module_source,
    signature,
    tools_by_name,
)
from pinfold.tools.stubs.names import identifiers, module_names
from pinfold.tools.stubs.notation import bare_call, short_call

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
