"""Skills in the open format of SKILL.md, and functions that can become one. Pure: reads no disk and runs no code of a skill."""

from pinfold.tools.skills.function_slice import FunctionSlice, slice_function
from pinfold.tools.skills.prompt import LINE_TOKENS, skills_prompt
from pinfold.tools.skills.recorded_calls import (
    RecordedCall,
    calls_in_cells,
    calls_in_docstring,
    read_calls,
    write_calls,
)
from pinfold.tools.skills.signature import Signature, read_signature
from pinfold.tools.skills.skill_file import SKILL, SkillFile, check_name, format_skill, parse_skill
from pinfold.tools.skills.source_check import EFFECTS, MAX_SOURCE, Effects, check_source

__all__ = [
    "EFFECTS",
    "LINE_TOKENS",
    "MAX_SOURCE",
    "SKILL",
    "Effects",
    "FunctionSlice",
    "RecordedCall",
    "Signature",
    "SkillFile",
    "calls_in_cells",
    "calls_in_docstring",
    "check_name",
    "check_source",
    "format_skill",
    "parse_skill",
    "read_calls",
    "read_signature",
    "skills_prompt",
    "slice_function",
    "write_calls",
]
