"""The one way text of unknown origin goes to a person: a terminal, a question, a log, a page.

JSON needs none of it: it escapes what steers, and is exact on purpose.
"""

from __future__ import annotations

from pinfold.text.clean import printable, printable_line
from pinfold.text.redact import redacted


def presentable(text: str) -> str:
    """`text` without secrets, and with nothing that steers a terminal or hides."""
    return printable(redacted(text))


def presentable_line(text: str) -> str:
    """The same, all on one line."""
    return printable_line(redacted(text))
