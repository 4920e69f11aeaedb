"""Pure rules: judge an action by the facts about it, the mode, the grants and the taint of the session."""

from pinfold.policy.judge import Guards, explain, judge, strict
from pinfold.policy.rules import NO_RULES, Facts, RuleError, Rules, Taint, load_rules, shell_facts
from pinfold.policy.shell import read_script

__all__ = [
    "NO_RULES",
    "Facts",
    "Guards",
    "RuleError",
    "Rules",
    "Taint",
    "explain",
    "judge",
    "load_rules",
    "read_script",
    "shell_facts",
    "strict",
]
