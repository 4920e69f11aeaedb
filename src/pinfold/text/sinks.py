"""The one way text of unknown origin goes to a person: a terminal, a question, a log, a page.

JSON needs none of it: it escapes what steers, and is exact on purpose.
"""

from __future__ import annotations

from pinfold.text.clean import printable, printable_line
from pinfold.text.redact import redact, without_known


def presentable(text: str) -> str:
    """`text` without secrets, and with nothing that steers a terminal or hides."""
    return printable(redact(text))


def exact(text: str) -> str:
    """`text` for who has to agree to it: nothing that steers or hides, and only such secrets out as no command fits into.

    What stands behind `PASSWORD=`, or looks like the inside of a private key, may be a program.
    """
    from pinfold.text.shapes import without_shapes

    return printable(without_shapes(without_known(text)))


def exact_line(text: str) -> str:
    """The same, all on one line."""
    return exact(text).replace("\n", "\\n")


def presentable_line(text: str) -> str:
    """The same, all on one line."""
    return printable_line(redact(text))
