"""Pure rules: an action, what was granted, and the mode give a verdict."""

from pinfold.policy.judge import judge

__all__ = [
    "judge",
]
