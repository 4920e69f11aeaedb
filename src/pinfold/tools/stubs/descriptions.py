"""What a tool's author says of it, as a docstring: bounded, and free of what a screen would not show as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pinfold.text import cap_text, printable, printable_line
from pinfold.tools.stubs.annotations import named_in
from pinfold.tools.stubs.forms import Form, Parameter
from pinfold.tools.stubs.notation import short
from pinfold.tools.stubs.shapes import ANY, Records, Table

TEXT_CHARS = 2_000
ARGUMENT_CHARS = 240
ARGUMENTS_CHARS = 4_000
SENTENCE_CHARS = 100
_READ = 4
"""Times as many characters are looked at as are told: escapes are slow to write."""
_END = re.compile(r"(?<=[^\s.][.!?])(?<!\.[a-z]\.)\s+(?=[^a-z\s])|\n\s*\n|:\n")


def docstring(description: str, form: Form) -> str:
    text = cap_text(printable(description[: _READ * TEXT_CHARS]).strip(), TEXT_CHARS)
    parts = [text] if text else []
    if lines := _limit_lines(_argument(one, _objects(one, form.records)) for one in form.parameters):
        parts.append("\n".join(["Args:", *(f"    {line}" for line in lines)]))
    if _is_worth_telling(form):
        parts.append(f"Returns:\n    {short(form.result, form.result_records)}")
    return "\n\n".join(parts)


def argument_lines(form: Form) -> list[str]:
    """Of each argument what its name and type do not say."""
    return _limit_lines(_argument(one, "") for one in form.parameters)


def first_sentence(description: str, limit: int = SENTENCE_CHARS) -> str:
    """On one line, without its full stop."""
    head = _END.split(printable(description.strip()[: _READ * limit]), maxsplit=1)[0]
    line = " ".join(head.split()).rstrip(".:")
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


def _argument(parameter: Parameter, objects: str) -> str:
    told = " ".join(printable(parameter.description[: _READ * ARGUMENT_CHARS]).split())
    if len(told) > ARGUMENT_CHARS:
        told = f"{told[: ARGUMENT_CHARS - 3]}..."
    renamed = parameter.name != parameter.identifier
    sent = f"(sent as {printable_line(repr(parameter.name))})" if renamed else ""
    said = " ".join(part for part in (told, objects, sent) if part)
    return f"{parameter.identifier}: {said}" if said else ""


def _objects(parameter: Parameter, records: Records) -> str:
    """In full, where the type has only a name for them."""
    return short(parameter.type, records) if any(named_in(parameter.type)) else ""


def _limit_lines(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    left = ARGUMENTS_CHARS
    for line in filter(None, lines):
        left -= len(line)
        if left < 0:
            return [*found, "..."]
        found.append(line)
    return found


def _is_worth_telling(form: Form) -> bool:
    return isinstance(form.result, Table) or (form.result != ANY and any(named_in(form.result)))
