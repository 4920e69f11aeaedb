"""A second set of tasks, written down whole before any of it was counted, over servers most of which do not say what
their results look like. How they were chosen: docs/design/0036-counting-tokens.md.
"""

from pinfold.app.bench.held_out.offered import new_tools
from pinfold.app.bench.held_out.tasks import TASKS

__all__ = ["TASKS", "new_tools"]
