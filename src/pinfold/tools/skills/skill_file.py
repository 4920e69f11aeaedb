"""Reads and writes SKILL.md (agentskills.io): YAML between two `---` lines, then text for the model. Also the prompt
that lists skills."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from pinfold.tools.declared.tables import Plain, fault, parse, read_as
from pinfold.tools.results import BadTool

SKILL = "SKILL.md"
NAME_CHARS = 64
DESCRIPTION_CHARS = 1024
COMPATIBILITY_CHARS = 500
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT = re.compile(rb"\s*---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)

LINE_TOKENS = 40
"""Maximum tokens of a skill's line in the prompt; a longer description is cut."""
LISTED = 40
"""Maximum number of skills in the prompt."""
_INTRODUCTION = (
    "Skills: before a task that one fits, read it: `from servers.skills import read_skill; read_skill(NAME)`. "
    "Its files are in {place}/NAME.\n"
)
_IN_FILES = "Skills: before a task that one fits, read {place}/NAME/SKILL.md.\n"
_FUNCTIONS = "Functions you made before: `from servers.skills import NAME`.\n"
_AS_TOOLS = "Functions you made before, as tools:\n"
_NATIVE = "Tools you made before{}: {}.\n"
_ALSO_IN_CODE = ", which code imports too (`from servers.skills import NAME`)"
_PIECES = re.compile(r"[A-Za-z]+|\d+|\s+|.", re.DOTALL)


Entries: TypeAlias = Sequence[tuple[str, str]]
"""Names with their descriptions."""


class _FrontMatter(Struct, frozen=True, kw_only=True):
    name: str = ""
    description: str = ""
    compatibility: str = ""
    metadata: dict[str, Plain] = {}
    allowed_tools: str | tuple[Plain, ...] | None = field(default=None, name="allowed-tools")


class SkillFile(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    body: str = ""
    metadata: Mapping[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    """The tools it says it uses. This allows nothing: policy judges every call as usual."""


def check_name(name: str, source: str) -> str:
    """Return the name. Raises BadTool if it is not valid."""
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        rule = f"use up to {NAME_CHARS} small letters, digits and single hyphens between them"
        raise BadTool(f"{source}: {name[:80]!r} cannot be a skill's name: {rule}")
    return name


def parse_skill(data: bytes, folder: str) -> SkillFile:
    """Parse the file of the skill in `folder`. Raises BadTool with place, fault and fix in one line."""
    source = f"{folder}/{SKILL}"
    found = _FRONT.match(data.removeprefix(b"\xef\xbb\xbf"))
    if found is None:
        raise BadTool(f"{source}: it must begin with `---`, then name and description, then `---`")
    given = read_as(parse(found[1], source), _FrontMatter, source)
    if check_name(given.name, source) != folder:
        fault(source, "name", f"it is {given.name!r} and must be that of its folder, {folder!r}")
    description = " ".join(given.description.split())
    if not description:
        fault(source, "description", "say in a sentence what the skill does and when to use it")
    for key, most in (("description", DESCRIPTION_CHARS), ("compatibility", COMPATIBILITY_CHARS)):
        if (size := len(getattr(given, key))) > most:
            fault(source, key, f"it has {size:,} characters; {most:,} is the most")
    allowed = given.allowed_tools or ""
    try:
        body = data.removeprefix(b"\xef\xbb\xbf")[found.end() :].decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadTool(f"{source}: it is not UTF-8; save it as UTF-8") from error
    return SkillFile(
        name=given.name,
        description=description,
        body=body.strip(),
        metadata={name: str(value) for name, value in given.metadata.items()},
        allowed_tools=tuple(allowed.replace(",", " ").split() if isinstance(allowed, str) else map(str, allowed)),
    )


def format_skill(skill: SkillFile) -> str:
    """Return the content of a skill's file."""
    lines = ["---", f"name: {skill.name}", f"description: {_quote(skill.description)}"]
    if skill.metadata:
        lines += ["metadata:", *(f"  {key}: {_quote(value)}" for key, value in skill.metadata.items())]
    return "\n".join([*lines, "---", "", skill.body.strip(), ""])


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def skills_prompt(
    skills: Entries, functions: Entries, place: str, *, native: Sequence[str] = (), can_call: bool = True
) -> str:
    """List skills and functions with their descriptions; empty if there are none.

    `place` is the path of the skills' folders for code. `native` are functions sent as tools of their own.
    """
    heading = (_INTRODUCTION if can_call else _IN_FILES).format(place=place)
    offered = _NATIVE.format(_ALSO_IN_CODE if can_call else "", ", ".join(native)) if native else ""
    return _section(heading, skills) + offered + _section(_FUNCTIONS if can_call else _AS_TOOLS, functions)


def _section(heading: str, described: Entries) -> str:
    lines = [f"{cut_line(f'- {name}: {description}')}\n" for name, description in described[:LISTED]]
    if (more := len(described) - LISTED) > 0:
        lines.append(f'- and {more} more: read_skill("") lists all\n')
    return heading + "".join(lines) if lines else ""


def cut_line(text: str) -> str:
    """Cut a text to the tokens that one skill may use."""
    room = LINE_TOKENS - 2.0  # for the ellipsis and the end of the line
    kept = ""
    for piece in _PIECES.findall(text):
        room -= _estimate_tokens(piece)
        if room < 0:
            return f"{kept.rstrip()}…"
        kept += piece
    return kept


def _estimate_tokens(piece: str) -> float:
    """Estimate the tokens of a word, number or sign; usually more than a current tokenizer would count."""
    if piece.isspace():
        return 0
    if not piece.isascii():
        return 3 if piece > "\uffff" else len(piece.encode()) / 2
    if piece.isalpha():  # capitalized long words are rare and take more tokens
        return max(1.0, len(piece) / 3) if piece[0].isupper() else 1 + max(0, len(piece) - 6) / 3
    return len(piece) / 2 if piece.isdigit() else 1
