"""Generates the source of a module of `servers`, which code in the session imports.

Text from a server appears only in string literals, bounded and printable. Names, numbers and types are never copied:
they are generated from the parsed schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from pinfold.text import cap_text, printable, printable_line
from pinfold.tools.stubs.forms import PLAINEST, AnyTool, Form, Parameter, form_of, short
from pinfold.tools.stubs.shapes import ANY, TABLE, WRITTEN, Definitions, annotation, identifiers, named_in

TOOLS = 2_000
"""Maximum per module; more are not offered."""
MODULE_CHARS = 1_000_000
"""Tools beyond this size accept any arguments, and have a docstring of one sentence."""
SCHEMA_CHARS = 20
"""Added to the size for each schema read, since reading takes time too."""
LISTED = 100
"""Tools listed in the module's docstring."""
NAME_CHARS = 200
"""Maximum length of a tool's name; a tool with a longer one cannot be called."""
DESCRIPTION_CHARS = 1_000
TEXT_CHARS = 2_000
ARGUMENT_CHARS = 240
ARGUMENTS_CHARS = 4_000
SENTENCE_CHARS = 100
_READ = 4
"""Factor: how many characters are escaped, at most, for each one that is kept; escaping is slow."""
_END = re.compile(r"(?<=[^\s.][.!?])(?<!\.[a-z]\.)\s+(?=[^a-z\s])|\n\s*\n|:\n")
_HEADER = """\
from typing import Any, Literal, NotRequired, TypedDict
from _pinfold_guest.servers import call as _call, OMITTED as _OMITTED
"""


def tools_by_name(tools: Sequence[AnyTool]) -> Mapping[str, AnyTool]:
    """Return the tools of one server by their function names in its module."""
    there = {local_name(tool): tool for tool in tools if len(tool.name) <= NAME_CHARS}
    named = identifiers(list(there))
    return {named[name]: there[name] for name in islice(there, TOOLS)}


def local_name(tool: AnyTool) -> str:
    """Return a tool's name without its server, before it is made an identifier."""
    return tool.name.removeprefix(f"{tool.server}.")


def module_source(server: str, description: str, tools: Sequence[AnyTool]) -> str:
    """Return source for Python 3.11 and later. `server` appears only in the docstring, not as a name."""
    there = tools_by_name(tools)
    definitions = Definitions({*WRITTEN, *there})
    functions: list[str] = []
    chars = 0
    for identifier, tool in there.items():
        is_crowded = chars + definitions.chars > MODULE_CHARS
        form = PLAINEST if is_crowded else form_of(tool, identifier)
        told = first_sentence(tool.description) if is_crowded else docstring(tool.description, form)
        functions.append(_function(tool.name, identifier, form, told, definitions))
        chars += len(functions[-1]) + SCHEMA_CHARS * form.looked_at
    return "\n".join(
        [
            repr(_module_docstring(server, description, there, len(tools))),
            _HEADER,
            f"__all__ = {list(there)!r}",
            "\ndef __dir__():\n    return list(__all__)\n",
            *definitions.lines,
            "",
            *functions,
        ]
    )


def signature(tool: AnyTool, identifier: str) -> str:
    """Return the signature on one line, as `help()` shows it."""
    form = form_of(tool, identifier)
    return f"{identifier}({_parameters(form, omitted='...')}) -> {annotation(form.result)}"


def _function(name: str, identifier: str, form: Form, told: str, definitions: Definitions) -> str:
    names = definitions.place(form.records)
    result = annotation(form.result, definitions.place(form.result_records))
    head = f"def {identifier}({_parameters(form, names, omitted='_OMITTED')}) -> {result}:"
    return f"{head}\n    {told!r}\n    return _call({name!r}, {_argument_expression(form)})\n"


def _parameters(form: Form, names: Mapping[str, str] | None = None, *, omitted: str) -> str:
    parts: list[str] = []
    for one in form.parameters:
        default = "" if one.is_required else f" = {omitted if one.default is None else one.default}"
        parts.append(f"{one.identifier}: {annotation(one.type, names)}{default}")
    if form.more is not None:
        parts.append(f"**{form.more[0]}: {annotation(form.more[1], names)}")
    return ", ".join(parts)


def _argument_expression(form: Form) -> str:
    if form.more is None and all(one.name == one.identifier for one in form.parameters):
        # Compiles a third faster than naming each argument again.
        return "locals()"
    if form.more is not None and not form.parameters:
        return form.more[0]
    parts = [f"**{form.more[0]}"] if form.more is not None else []
    parts += [f"{one.name!r}: {one.identifier}" for one in form.parameters]
    return f"{{{', '.join(parts)}}}"


def _module_docstring(server: str, description: str, tools: Mapping[str, AnyTool], count: int) -> str:
    head = cap_text(printable(description[: 4 * DESCRIPTION_CHARS]).strip(), DESCRIPTION_CHARS)
    lines = [
        f"{identifier}: {first_sentence(tool.description)}".removesuffix(": ")
        for identifier, tool in islice(tools.items(), LISTED)
    ]
    if len(tools) > LISTED:
        lines.append(f"and {len(tools) - LISTED:,} more: servers.search('words') finds them")
    if count > len(tools):
        lines.append(f"{count - len(tools):,} others are left out: too many, or their names too long")
    head = head or f"Tools of {printable_line(server[:NAME_CHARS])}."
    return "\n".join([head, "", *lines]) if lines else head


def docstring(description: str, form: Form) -> str:
    text = cap_text(printable(description[: _READ * TEXT_CHARS]).strip(), TEXT_CHARS)
    parts = [text] if text else []
    # Spell out objects whose type is only a name.
    objects = [short(one.type, form.records) if any(named_in(one.type)) else "" for one in form.parameters]
    if lines := _limit_lines(map(_argument, form.parameters, objects)):
        parts.append("\n".join(["Args:", *(f"    {line}" for line in lines)]))
    if form.result == TABLE or (form.result != ANY and any(named_in(form.result))):
        parts.append(f"Returns:\n    {short(form.result, form.result_records)}")
    return "\n\n".join(parts)


def argument_lines(form: Form) -> list[str]:
    """Return one line for each argument with a description."""
    return _limit_lines(_argument(one, "") for one in form.parameters)


def first_sentence(description: str) -> str:
    """Return the first sentence on one line, without its full stop."""
    head = _END.split(printable(description.strip()[: _READ * SENTENCE_CHARS]), maxsplit=1)[0]
    line = " ".join(head.split()).rstrip(".:")
    return line if len(line) <= SENTENCE_CHARS else f"{line[: SENTENCE_CHARS - 3].rstrip()}..."


def _argument(parameter: Parameter, objects: str) -> str:
    told = " ".join(printable(parameter.description[: _READ * ARGUMENT_CHARS]).split())
    if len(told) > ARGUMENT_CHARS:
        told = f"{told[: ARGUMENT_CHARS - 3]}..."
    renamed = parameter.name != parameter.identifier
    sent = f"(sent as {printable_line(repr(parameter.name))})" if renamed else ""
    said = " ".join(part for part in (told, objects, sent) if part)
    return f"{parameter.identifier}: {said}" if said else ""


def _limit_lines(lines: Iterable[str]) -> list[str]:
    found: list[str] = []
    left = ARGUMENTS_CHARS
    for line in filter(None, lines):
        left -= len(line)
        if left < 0:
            return [*found, "..."]
        found.append(line)
    return found
