"""Text on its way to a sink: bounded, safe to print, free of secrets."""

from pinfold.text.cap import capped, first_line
from pinfold.text.clean import printable
from pinfold.text.lists import listed, numbered
from pinfold.text.redact import redacted

__all__ = [
    "capped",
    "first_line",
    "listed",
    "numbered",
    "printable",
    "redacted",
]
