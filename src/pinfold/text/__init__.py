"""Text on its way to a sink: bounded, safe to print, free of secrets."""

from pinfold.text.cap import BYTES_PER_TOKEN, NO_OUTPUT, capped, capped_lines, first_line
from pinfold.text.clean import printable, printable_line
from pinfold.text.homes import homely
from pinfold.text.lists import listed, numbered, numerous
from pinfold.text.redact import keep_own_secret, keep_secret, keeps_own, redacted, without_known, without_own
from pinfold.text.sinks import exact, exact_line, presentable, presentable_line

__all__ = [
    "BYTES_PER_TOKEN",
    "NO_OUTPUT",
    "capped",
    "capped_lines",
    "exact",
    "exact_line",
    "first_line",
    "homely",
    "keep_own_secret",
    "keep_secret",
    "keeps_own",
    "listed",
    "numbered",
    "numerous",
    "presentable",
    "presentable_line",
    "printable",
    "printable_line",
    "redacted",
    "without_known",
    "without_own",
]
