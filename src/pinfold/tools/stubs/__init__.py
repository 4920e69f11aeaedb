"""Tools as modules of Python: what `from servers.github import list_issues` imports in the session."""

from pinfold.tools.stubs.describing import argument_lines, first_sentence
from pinfold.tools.stubs.forms import Form, Parameter, form_of
from pinfold.tools.stubs.modules import local_name, module_source, signature
from pinfold.tools.stubs.names import identifiers
from pinfold.tools.stubs.notation import short_call

__all__ = [
    "Form",
    "Parameter",
    "argument_lines",
    "first_sentence",
    "form_of",
    "identifiers",
    "local_name",
    "module_source",
    "short_call",
    "signature",
]
