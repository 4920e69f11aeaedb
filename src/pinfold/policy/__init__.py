"""Pure rules: an action, what is known of it, what was granted, and the mode give a verdict."""

from pinfold.policy.judge import Guards, check_code, explain, judge, strict
from pinfold.policy.rules import (
    NO_RULES,
    Facts,
    Reach,
    RuleError,
    Rules,
    Taint,
    covers,
    load_rules,
    pattern_of,
    shell_facts,
)
from pinfold.policy.shell import read_script

__all__ = [
    "NO_RULES",
    "Facts",
    "Guards",
    "Reach",
    "RuleError",
    "Rules",
    "Taint",
    "check_code",
    "covers",
    "explain",
    "judge",
    "load_rules",
    "pattern_of",
    "read_script",
    "shell_facts",
    "strict",
]
