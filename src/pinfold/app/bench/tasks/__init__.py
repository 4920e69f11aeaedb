"""The tasks of the bench. How they were chosen: docs/design/0036-counting-tokens.md."""

from pinfold.app.bench.task import Task
from pinfold.app.bench.tasks import logs, office, outside, tables, trade, work

__all__ = ["TASKS"]

TASKS: tuple[Task, ...] = (
    *office.TASKS,
    *work.TASKS,
    *trade.TASKS,
    *outside.TASKS,
    *tables.TASKS,
    *logs.TASKS,
)
