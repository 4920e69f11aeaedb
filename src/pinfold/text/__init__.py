"""Text on its way to a sink: bounded, safe to print, free of secrets."""

from pinfold.text.cap import BYTES_PER_TOKEN, NO_OUTPUT, cap_text, capped_lines, first_line
from pinfold.text.clean import printable, printable_line
from pinfold.text.homes import homely
from pinfold.text.lists import join_names, join_numbers, numerous
from pinfold.text.redact import keep_own_secret, keep_secret, keeps_own, redact, without_known, without_own
from pinfold.text.sinks import exact, exact_line, presentable, presentable_line

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
