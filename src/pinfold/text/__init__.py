"""Text on its way to a sink: bounded, safe to print, free of secrets."""

from pinfold.text.clean import printable, printable_line
from pinfold.text.format import (
    BYTES_PER_TOKEN,
    NO_OUTPUT,
    cap_text,
    capped_lines,
    first_line,
    homely,
    join_names,
    join_numbers,
    numerous,
)
from pinfold.text.redact import (
    exact,
    exact_line,
    keep_own_secret,
    keep_secret,
    keeps_own,
    presentable,
    presentable_line,
    redact,
    without_known,
    without_own,
)

__all__ = [
    "BYTES_PER_TOKEN",
    "NO_OUTPUT",
    "cap_text",
    "capped_lines",
    "exact",
    "exact_line",
    "first_line",
    "homely",
    "join_names",
    "join_numbers",
    "keep_own_secret",
    "keep_secret",
    "keeps_own",
    "numerous",
    "presentable",
    "presentable_line",
    "printable",
    "printable_line",
    "redact",
    "without_known",
    "without_own",
]
