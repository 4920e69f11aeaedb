"""The tasks of the held-out set. How they were chosen: docs/design/0036-counting-tokens.md."""

from pinfold.app.bench.held_out.tasks import (
    joins,
    lists,
    lookups,
    loops,
    refused,
    seconds,
    sums,
    tables,
    talks,
)
from pinfold.app.bench.task import Task

__all__ = ["TASKS"]

TASKS: tuple[Task, ...] = (
    *lookups.TASKS,
    *lists.TASKS,
    *joins.TASKS,
    *sums.TASKS,
    *loops.TASKS,
    *tables.TASKS,
    *talks.TASKS,
    *seconds.TASKS,
    *refused.TASKS,
)
