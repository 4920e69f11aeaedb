"""The half that may be looked at."""

from __future__ import annotations

from bench.task_suite.dev import data, other_tasks

TASKS = (*data.TASKS.all, *other_tasks.TASKS.all)
