"""What a tool's author says of it, as a docstring: bounded, and free of what a screen would not show as it is."""

from __future__ import annotations

import re

from pinfold.text import capped, printable, printable_line
from pinfold.tools.stubs.annotations import named_in
from pinfold.tools.stubs.forms import Form, Parameter
from pinfold.tools.stubs.notation import short
from pinfold.tools.stubs.shapes import ANY, Records, Table

TEXT_CHARS = 2_000
ARGUMENT_CHARS = 240
ARGUMENTS_CHARS = 4_000
SENTENCE_CHARS = 100
_READ = 20_000
_END = re.compile(r"(?<=[^\s.][.!?])(?<!\.[a-z]\.)\s+(?=[^a-z\s])|\n\s*\n|:\n")


def docstring(description: str, form: Form) -> str:
    text = capped(printable(description[:_READ]).strip(), TEXT_CHARS)
    parts = [text] if text else []
    if lines := argument_lines(form):
        parts.append("\n".join(["Args:", *(f"    {line}" for line in lines)]))
    if _is_worth_telling(form):
        parts.append(f"Returns:\n    {short(form.result, form.result_records)}")
    return "\n\n".join(parts)


def argument_lines(form: Form) -> list[str]:
    """Of each argument what its name and type do not say."""
    lines: list[str] = []
    left = ARGUMENTS_CHARS
    for parameter in form.parameters:
        line = _argument(parameter, form.records)
        left -= len(line)
        if left < 0:
            lines.append("...")
            break
        if line:
            lines.append(line)
    return lines


def first_sentence(description: str, limit: int = SENTENCE_CHARS) -> str:
    """On one line, without its full stop."""
    head = _END.split(printable(description[:_READ]).strip(), maxsplit=1)[0]
    line = " ".join(head.split()).rstrip(".:")
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


def _argument(parameter: Parameter, records: Records) -> str:
    parts: list[str] = []
    if told := " ".join(printable(parameter.description[:_READ]).split()):
        parts.append(told if len(told) <= ARGUMENT_CHARS else f"{told[: ARGUMENT_CHARS - 3]}...")
    if any(named_in(parameter.type)):
        parts.append(short(parameter.type, records))
    if parameter.name != parameter.identifier:
        parts.append(f"(sent as {printable_line(repr(parameter.name))})")
    return f"{parameter.identifier}: {' '.join(parts)}" if parts else ""


def _is_worth_telling(form: Form) -> bool:
    return isinstance(form.result, Table) or (form.result != ANY and any(named_in(form.result)))
